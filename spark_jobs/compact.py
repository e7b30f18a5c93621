"""`compact`: small files put together and pending deletes merged, sorted or z-ordered if asked; no row is changed.

Only files that need it are read, whole partitions' worth at a time, and every commit carries the proof that its rows
before are its rows after (see rewriting.py).
"""

from __future__ import annotations

import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, Literal

from pydantic import Field
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import array, coalesce, col, lit, shiftleft, shiftright, size
from pyspark.sql.functions import filter as filter_items

from catalog.errors import Invalid, LakeError
from spark_jobs.arguments import TABLE
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.rewriting import Rewriter, Task
from spark_jobs.settle import UNIT, settle

log = logging.getLogger(__name__)

_MIB = 1 << 20
_SMALL = 0.75  # of the target: as Iceberg has it
_RANK_BITS = 8
_SAMPLE = 20_000
_Z = "__strandline_z"


class CompactArguments(Arguments):
    table: str | None = Field(default=None, pattern=TABLE, description="default: every table, as far as it needs it")
    strategy: Literal["binpack", "sort", "zorder"] = "binpack"
    columns: list[str] = Field(default_factory=list, description="to sort by (`at desc`), or to z-order by")
    target_mb: int = Field(default=128, gt=0, le=4096)
    group_mb: int = Field(default=4096, gt=0, description="read and committed at once")
    rewrite_all: bool = False


def compact(context: Context, arguments: CompactArguments) -> Mapping[str, Any]:
    if arguments.table is not None:
        return _compact(context, arguments.table, arguments)
    if arguments.strategy != "binpack":
        raise Invalid(f"the strategy {arguments.strategy} is for one table: name it")
    found: dict[str, Any] = {}
    failed: list[LakeError] = []
    for table in context.lake.tables.list():  # one that cannot be compacted does not keep the others from it
        try:
            found[table] = _compact(context, table, arguments)
        except LakeError as error:
            log.warning("table not compacted", extra={"table": table, "error": error.as_dict()})
            failed.append(error)
    if failed:
        raise type(failed[0])(f"{len(found)} tables compacted, {len(failed)} not; the first: {failed[0].message}")
    return found


def _compact(context: Context, table: str, arguments: CompactArguments) -> dict[str, Any]:
    loaded = context.lake.tables.load(table)
    reorder = _reorder(context, table, arguments, loaded.schema().column_names)
    if unit := loaded.properties.get(UNIT):  # rewritten files no longer tell which row came last
        snapshot_id, deleted = settle(context.lake, table, unit)
        if deleted:
            context.committed(table, snapshot_id, superseded=deleted)
    with context.stage(f"plan {table}") as stage:
        rewriter = Rewriter(context.spark, context.lake, table)
        tasks = rewriter.tasks()
        groups = plan(tasks, arguments)
        stage.rows, stage.bytes = sum(t.rows for t in tasks), sum(t.bytes for t in tasks)
    digests, before, after, merged = list[str](), 0, 0, 0
    for number, paths in enumerate(groups):
        with context.stage(f"rewrite {table}, {number + 1} of {len(groups)}") as stage:
            if number:  # the group before this one has moved the table
                rewriter = Rewriter(context.spark, context.lake, table)
                tasks = rewriter.tasks()
            group = [task for task in tasks if task.path in paths]
            if not group:
                continue
            context.reads(table, rewriter.snapshot_id)
            done = rewriter.rewrite(
                group,
                tasks,
                target_bytes=arguments.target_mb * _MIB,
                reorder=reorder,
                reads_twice=arguments.strategy != "binpack",
            )
            stage.rows, stage.bytes = done.digest.rows, done.bytes_after
            context.committed(table, done.snapshot_id, rows_digest=done.digest.hex, rows=done.digest.rows)
            digests.append(done.digest.hex)
            before, after, merged = before + done.files_before, after + done.files_after, merged + done.deletes_merged
    return {"files_before": before, "files_after": after, "delete_files_merged": merged, "rows_digests": digests}


def plan(every: Sequence[Task], arguments: CompactArguments) -> list[set[str]]:
    """Paths by group. A partition needs it if it has deletes to merge, or two files too small for their size."""
    target, limit = arguments.target_mb * _MIB, arguments.group_mb * _MIB
    partitions: dict[str, list[Task]] = defaultdict(list)
    for task in every:
        is_due = task.deletes or task.bytes < _SMALL * target or task.bytes > 1.8 * target
        if is_due or arguments.rewrite_all or arguments.strategy != "binpack":
            partitions[task.partition].append(task)
    groups: list[set[str]] = []
    size = limit
    for tasks in partitions.values():
        small = sum(task.bytes < _SMALL * target for task in tasks)
        whole = arguments.rewrite_all or arguments.strategy != "binpack"
        if not (whole or small > 1 or any(task.deletes or task.bytes > 1.8 * target for task in tasks)):
            continue
        for task in tasks:
            if size + task.bytes > limit:
                groups.append(set())
                size = 0
            groups[-1].add(task.path)
            size += task.bytes
    return groups


def _reorder(
    context: Context, table: str, arguments: CompactArguments, names: Sequence[str]
) -> Callable[[DataFrame], DataFrame]:
    columns = [column.split() for column in arguments.columns]
    for column, *direction in columns:
        if column not in names or [word.lower() for word in direction] not in ([], ["asc"], ["desc"]):
            raise Invalid(f"{' '.join([column, *direction])!r} is no order: name a column of {', '.join(names)}")
    if arguments.strategy == "binpack":
        if columns:
            raise Invalid("bin-packing keeps the order: choose the strategy sort or zorder for columns")
        return lambda frame: frame
    if not columns:
        raise Invalid(f"the strategy {arguments.strategy} needs columns")
    if arguments.strategy == "sort":
        order = [col(c).desc() if [w.lower() for w in d] == ["desc"] else col(c).asc() for c, *d in columns]
        return lambda frame: frame.repartitionByRange(*order).sortWithinPartitions(*order)
    cuts = _cuts(context, table, [column for column, *_ in columns])
    return lambda frame: _z_ordered(frame, cuts)


def _z_ordered(frame: DataFrame, cuts: Mapping[str, Sequence[Any]]) -> DataFrame:
    """By the interleaved bits of each column's rank: rows that are near in all columns are near in the file."""
    bits: list[Column] = []
    for at, (column, values) in enumerate(cuts.items()):
        bounds, value = array(*map(lit, values)), col(column)
        rank = coalesce(size(filter_items(bounds, partial(_reached, value))), lit(0)) if values else lit(0)
        bits += [
            shiftleft(shiftright(rank, bit).bitwiseAND(lit(1)).cast("bigint"), bit * len(cuts) + at)
            for bit in range(_RANK_BITS)
        ]
    z = reduce(add, bits)
    return frame.withColumn(_Z, z).repartitionByRange(_Z).sortWithinPartitions(_Z).drop(_Z)


def _reached(value: Column, bound: Column) -> Column:
    return bound <= value


def _cuts(context: Context, table: str, columns: Sequence[str]) -> dict[str, list[Any]]:
    """For each column the values that cut a sample of it into parts of the same size."""
    found: dict[str, list[Any]] = {}
    for column in columns:
        sample = context.spark.table(table).select(column).where(f"`{column}` IS NOT NULL").limit(_SAMPLE)
        values = [row[0] for row in sample.distinct().orderBy(column).collect()]
        step = max(1, -(-len(values) // 2**_RANK_BITS))
        found[column] = values[step::step]
    return found


JOB = Job("compact", CompactArguments, compact)

if __name__ == "__main__":
    sys.exit(run(JOB))
