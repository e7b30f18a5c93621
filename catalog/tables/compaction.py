"""Compaction in the process: pending deletes are merged and small files put together, within a budget of bytes.

Changes no row. For tables beyond a function's memory the Spark job does the same; the budget keeps this one small.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.snapshots import Operation

from catalog.tables.deltas import Delta
from catalog.tables.live import FileReader, LiveFile, LiveFiles, take
from catalog.tables.writes import Planner, shaped

BUDGET_BYTES = 512 << 20
# A file below this share of the target size is small.
SMALL = 4


def plan_compaction(planner: Planner, budget_bytes: int = BUDGET_BYTES) -> Delta:
    """Files with deletes first, then small ones, until the budget of bytes read is spent."""
    version, io, files = planner.version, planner.io, planner.files
    live = LiveFiles.of(io, planner.manifests, version.head(planner.branch), version.name)
    reader = FileReader(version.metadata, io)
    target = schema_to_pyarrow(version.schema, include_field_ids=False)
    chosen = _chosen(live.data, files.target_bytes, budget_bytes)
    pool: list[pa.Table] = []
    added, rows = [], 0
    for file in chosen:
        pool.append(shaped(take(reader.read(file.file, version.schema), reader.alive(file)), target))
        rows += pool[-1].num_rows
        if sum(part.nbytes for part in pool) >= files.target_bytes:
            added += files.write(pa.concat_tables(pool), io)
            pool = []
    if pool:
        added += files.write(pa.concat_tables(pool), io)
    removed = [entry for file in chosen for entry in (file.entry, *file.own)]
    merged = sum(file.deleted for file in chosen)
    reason = f"{len(chosen)} files became {len(added)}, {merged} pending deletes were merged"
    return Delta(tuple(added), tuple(removed), rows, 0, "compact", reason, Operation.REPLACE)


def _chosen(files: tuple[LiveFile, ...], target: int, budget: int) -> list[LiveFile]:
    dirty = [file for file in files if file.own or file.shared]
    small = [f for f in files if not (f.own or f.shared) and f.file.file_size_in_bytes < target // SMALL]
    # One small file of its partition alone would only be written again as it is.
    alike = Counter((file.file.spec_id, file.file.partition) for file in [*dirty, *small])
    small = [file for file in small if alike[file.file.spec_id, file.file.partition] > 1]
    chosen: list[LiveFile] = []
    for file in [*dirty, *small]:
        budget -= file.file.file_size_in_bytes
        if chosen and budget < 0:
            break
        chosen.append(file)
    return chosen
