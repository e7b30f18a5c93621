"""Deduplicates bronze tables: of several rows for one unit it keeps the one committed last and deletes the others.

Ingestion only appends, so an edited note is in its table twice. The files' sequence numbers show which row is newer,
but only until the files are rewritten; so the older rows are deleted here, in a commit. Time travel still reads them
while their snapshots exist.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import Lake
from catalog.iceberg import FileReader, LiveFile, LiveFiles, project_schema
from catalog.tables import Delta, MatchedRows, WritePlanner


def deduplicate(lake: Lake, table: str, unit: str) -> tuple[int | None, int]:
    """Returns the snapshot in which every value of `unit` occurs once, and how many rows were deleted for it.

    Reads one column of every file; commits nothing when there is nothing to delete.
    """
    planned: dict[str, int | None] = {}

    def plan(planner: WritePlanner) -> Delta:
        head = planner.version.head(planner.branch)
        planned["snapshot_id"] = head.snapshot_id if head else None
        live = LiveFiles.of(planner.io, planner.manifests, head, table)
        reader = FileReader(planner.version.metadata, planner.io)
        superseded = _superseded(reader, live.data, project_schema(planner.version.schema, [unit]), unit)
        planned["deleted"] = sum(len(rows.positions) for rows in superseded)
        return planner.delete_rows(superseded, "newer rows came")

    _, snapshot, delta = lake.tables.committer.write(table, plan, properties={"strandline.settled": unit})
    snapshot_id = planned["snapshot_id"] if delta.is_empty or snapshot is None else snapshot.snapshot_id
    return snapshot_id, planned["deleted"] or 0


def _superseded(reader: FileReader, files: tuple[LiveFile, ...], schema: Any, unit: str) -> list[MatchedRows]:
    """The rows with a later row of the same unit: later by data sequence number, then file path, then position."""
    files = tuple(sorted(files, key=lambda live: (live.entry.sequence_number or 0, live.file.file_path)))
    alive = [reader.alive(live) for live in files]
    columns: list[Any] = [reader.read(live.file, schema)[unit] for live in files]
    if not columns:
        return []
    kind, mask = columns[0].type, np.concatenate(alive)
    units = pa.chunked_array([chunk for column in columns for chunk in pc.cast(column, kind).chunks], type=kind)
    encoded: Any = pc.dictionary_encode(units, null_encoding="encode").unify_dictionaries()  # NULL is a unit, too
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks])
    last = np.full(codes.max(initial=-1) + 1, -1, dtype=np.int64)
    positions = np.flatnonzero(mask)
    np.maximum.at(last, codes[positions], positions)
    superseded = np.zeros(len(mask), dtype=bool)
    superseded[positions] = last[codes[positions]] != positions
    matches, start = [], 0
    for live, file_mask in zip(files, alive, strict=True):
        in_file = np.flatnonzero(superseded[start : start + len(file_mask)])
        start += len(file_mask)
        if len(in_file):
            matches.append(MatchedRows(live, in_file, file_mask))
    return matches
