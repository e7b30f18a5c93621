"""The medallion's vectors: `gold.note_embeddings` is the vector table of the notes' text, kept up by each run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from catalog.errors import Conflict, NotFound
from catalog.pipeline.layers import NOTE_EMBEDDINGS
from spark_jobs.job import Context
from spark_jobs.vectors import told


def embed_notes(context: Context, prefix: str, *, full: bool) -> dict[str, Any]:
    """Creates it or follows what changed in the notes. A crash anywhere is mended by the next run."""
    vectors, source = context.lake.vectors, prefix + NOTE_EMBEDDINGS.source
    id_ = f"{source}.{NOTE_EMBEDDINGS.column}"
    with context.stage(NOTE_EMBEDDINGS.name) as stage:
        how = "anew" if full else "mended"
        before = None
        try:
            before = vectors.describe(id_).newest
        except NotFound:
            how = "anew"
            with suppress(Conflict):  # another run was quicker
                vectors.create(source, NOTE_EMBEDDINGS.column, columns=NOTE_EMBEDDINGS.columns)
        head = vectors.refresh(id_, rebuild=full and before is not None)
        stage.rows = told(context, head)
        if head.newest == before:
            return {"how": "nothing new", "rows": 0, "vectors": id_}
        return {"how": how, "rows": stage.rows, "vectors": id_}
