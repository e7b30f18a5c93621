"""The medallion's vectors: `gold.note_embeddings` is the vector table of the notes' text, refreshed by each run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from catalog import Conflict, NotFound
from catalog.notes import NOTE_EMBEDDINGS
from spark_jobs.job import Context
from spark_jobs.vectors import report_vectors


def embed_notes(context: Context, prefix: str, *, full: bool) -> dict[str, Any]:
    """Creates the vector table, or applies the changes of the notes. After a crash, the next run completes it."""
    vectors, source = context.lake.vectors, prefix + NOTE_EMBEDDINGS.source
    id_ = f"{source}.{NOTE_EMBEDDINGS.column}"
    with context.stage(NOTE_EMBEDDINGS.name) as stage:
        how = "anew" if full else "mended"
        before = None
        try:
            before = vectors.describe(id_).newest
        except NotFound:
            how = "anew"
            with suppress(Conflict):  # another run created it first
                vectors.create(source, NOTE_EMBEDDINGS.column, columns=NOTE_EMBEDDINGS.columns)
        head = vectors.refresh(id_, rebuild=full and before is not None)
        stage.rows = report_vectors(context, head)
        if head.newest == before:
            return {"how": "nothing new", "rows": 0, "vectors": id_}
        return {"how": how, "rows": stage.rows, "vectors": id_}
