"""Bronze tables, settled: of several rows for one thing the one committed last stays, the older ones are deleted.

Ingestion only appends, so an edited note is in its table twice. Which one is newer is told by the files' sequence
numbers, and only until somebody rewrites the files; so it is decided once, here, and committed. The older versions
stay within reach of time travel for as long as their snapshots do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.lake import Lake
from catalog.tables.deltas import Delta
from catalog.tables.live import FileReader, LiveFile, LiveFiles, schema_of
from catalog.tables.matching import Touched
from catalog.tables.writes import Planner

UNIT = "strandline.unit"
"""The table property that names the column which says what a row is about."""


def settle(lake: Lake, table: str, unit: str) -> tuple[int | None, int]:
    """The snapshot in which every value of `unit` is there once, and how many rows were deleted to get there.

    Reads one column of every file; commits nothing when there is nothing to delete.
    """
    seen: dict[str, int | None] = {}

    def plan(planner: Planner) -> Delta:
        head = planner.version.head(planner.branch)
        seen["at"] = head.snapshot_id if head else None
        live = LiveFiles.of(planner.io, planner.manifests, head, table)
        reader = FileReader(planner.version.metadata, planner.io)
        found = _superseded(reader, live.data, schema_of(planner.version.schema, [unit]), unit)
        seen["deleted"] = sum(len(item.positions) for item in found)
        return planner.delete_rows(found, "newer rows came")

    _, snapshot, delta = lake.tables.committer.write(table, plan, properties={"strandline.settled": unit})
    return (seen["at"] if delta.is_empty or snapshot is None else snapshot.snapshot_id), seen["deleted"] or 0


def _superseded(reader: FileReader, files: tuple[LiveFile, ...], schema: Any, unit: str) -> list[Touched]:
    """The rows that a later one stands for: later by data sequence, then by file, then by place in it."""
    files = tuple(sorted(files, key=lambda live: (live.entry.sequence_number or 0, live.file.file_path)))
    alive = [reader.alive(live) for live in files]
    columns: list[Any] = [reader.read(live.file, schema)[unit] for live in files]
    if not columns:
        return []
    kind, mask = columns[0].type, np.concatenate(alive)
    every = pa.chunked_array([chunk for column in columns for chunk in pc.cast(column, kind).chunks], type=kind)
    encoded: Any = pc.dictionary_encode(every, null_encoding="encode").unify_dictionaries()  # null is a name, too
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks])
    last = np.full(codes.max(initial=-1) + 1, -1, dtype=np.int64)
    places = np.flatnonzero(mask)
    np.maximum.at(last, codes[places], places)
    superseded = np.zeros(len(mask), dtype=bool)
    superseded[places] = last[codes[places]] != places
    found, start = [], 0
    for live, living in zip(files, alive, strict=True):
        positions = np.flatnonzero(superseded[start : start + len(living)])
        start += len(living)
        if len(positions):
            found.append(Touched(live, positions, living))
    return found
