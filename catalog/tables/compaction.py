"""Compaction in this process: merges pending deletes and small files, within a budget of bytes read.

Changes no row. The Spark job does the same for tables that do not fit a function's memory.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.snapshots import Operation

from catalog.core.errors import Invalid
from catalog.iceberg import FileReader, LiveFile, LiveFiles, filter_rows
from catalog.tables.delta import Delta
from catalog.tables.planner import UNIT_PROPERTY, WritePlanner, cast_rows

BUDGET_BYTES = 512 << 20
# A file is small below the target size divided by this.
SMALL_FILE_DIVISOR = 4


def plan_compaction(planner: WritePlanner, budget_bytes: int = BUDGET_BYTES) -> Delta:
    """Rewrites files with deletes first, then small ones, until the budget is spent. Memory: about one target file.

    Invalid for a table whose rows' order is that of their files, which a merge would lose.
    """
    version, io, files = planner.version, planner.io, planner.files
    if unit := version.properties.get(UNIT_PROPERTY):
        raise Invalid(
            f"{version.name} may have several rows for one {unit}, of which the newest file's counts: compact it with "
            f"`strandline job run compact -- --table {version.name}`, which removes the others first",
            subject=version.name,
        )
    live = LiveFiles.of(io, planner.manifests, version.head(planner.branch), version.name)
    reader = FileReader(version.metadata, io)
    target = schema_to_pyarrow(version.schema, include_field_ids=False)
    chosen = _choose_files(live.data, files.target_bytes, budget_bytes)
    pending: list[pa.Table] = []
    added, rows = [], 0
    for file in chosen:
        pending.append(cast_rows(filter_rows(reader.read(file.file, version.schema), reader.alive(file)), target))
        rows += pending[-1].num_rows
        if sum(part.nbytes for part in pending) >= files.target_bytes:
            added += files.write(pa.concat_tables(pending), io)
            pending = []
    if pending:
        added += files.write(pa.concat_tables(pending), io)
    removed = [entry for file in chosen for entry in (file.entry, *file.own)]
    merged = sum(file.deleted for file in chosen)
    reason = f"{len(chosen)} files became {len(added)}, {merged} pending deletes were merged"
    return Delta(tuple(added), tuple(removed), rows, 0, "compact", reason, Operation.REPLACE)


def _choose_files(files: tuple[LiveFile, ...], target: int, budget: int) -> list[LiveFile]:
    dirty = [file for file in files if file.deletes]
    small = [f for f in files if not f.deletes and f.file.file_size_in_bytes < target // SMALL_FILE_DIVISOR]
    # The only candidate of its partition would be rewritten without being merged.
    candidates = Counter((file.file.spec_id, file.file.partition) for file in [*dirty, *small])
    small = [file for file in small if candidates[file.file.spec_id, file.file.partition] > 1]
    chosen: list[LiveFile] = []
    for file in [*dirty, *small]:
        budget -= file.file.file_size_in_bytes
        if chosen and budget < 0:
            break
        chosen.append(file)
    return chosen
