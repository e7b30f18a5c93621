"""`compact`: merges small files and position deletes, optionally sorted or z-ordered; changes no row.

Reads only files that need it, a group at a time, beside writers: what they delete meanwhile is deleted in the new files
too. Every commit carries the proof that its rows before and after are the same (see rewriter.py).
"""

from __future__ import annotations

import logging
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any, Literal

from pydantic import Field
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import array, coalesce, col, lit, shiftleft, shiftright, size
from pyspark.sql.functions import filter as filter_items

from catalog import Conflict, Invalid, LakeError
from catalog.tables import UNIT_PROPERTY
from spark_jobs.arguments import TABLE
from spark_jobs.deduplication import deduplicate
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.rewriter import Rewriter, Rewritten, Task

log = logging.getLogger(__name__)

_MIB = 1 << 20
_SMALL = 0.75  # of the target size, as in Iceberg
_RANK_BITS = 8
_SAMPLE = 20_000
_ATTEMPTS = 5  # to rewrite a group, in halves after each that is lost
_Z = "__strandline_z"


class CompactArguments(Arguments):
    table: str | None = Field(default=None, pattern=TABLE, description="default: every table that needs it")
    strategy: Literal["binpack", "sort", "zorder"] = "binpack"
    columns: list[str] = Field(default_factory=list, description="to sort by (`at desc`) or to z-order by")
    target_mb: int = Field(default=128, gt=0, le=4096)
    group_mb: int = Field(default=4096, gt=0, description="how much is read for one commit")
    rewrite_all: bool = False


def compact(context: Context, arguments: CompactArguments) -> Mapping[str, Any]:
    if arguments.table is not None:
        return _compact(context, arguments.table, arguments)
    if arguments.strategy != "binpack":
        raise Invalid(f"the strategy {arguments.strategy} is for one table: name it with --table")
    compacted: dict[str, Any] = {}
    failed: list[LakeError] = []
    for table in context.lake.tables.list():  # a table that fails does not stop the others
        try:
            compacted[table] = _compact(context, table, arguments)
        except LakeError as error:
            log.warning("table not compacted", extra={"table": table, "error": error.as_dict()})
            failed.append(error)
    if failed:
        raise type(failed[0])(
            f"{len(compacted)} tables compacted, {len(failed)} failed; the first: {failed[0].message}"
        )
    return compacted


def _compact(context: Context, table: str, arguments: CompactArguments) -> dict[str, Any]:
    loaded = context.lake.tables.load(table)
    reorder = _reorder(context, table, arguments, loaded.schema().column_names)
    if unit := loaded.properties.get(
        UNIT_PROPERTY
    ):  # after a rewrite, sequence numbers no longer show which row is newer
        snapshot_id, deleted = deduplicate(context.lake, table, unit)
        if deleted:
            context.committed(table, snapshot_id, superseded=deleted)
    with context.stage(f"plan {table}") as stage:
        rewriter = Rewriter(context.spark, context.lake, table)
        tasks = rewriter.tasks()
        groups = plan(tasks, arguments)
        stage.rows, stage.bytes = sum(t.rows for t in tasks), sum(t.bytes for t in tasks)
    total = _Totals()
    waiting = deque((group, _ATTEMPTS) for group in groups)
    while waiting:
        paths, attempts = waiting.popleft()
        with context.stage(f"rewrite {table}, {len(waiting)} groups left") as stage:
            rewriter = Rewriter(context.spark, context.lake, table)  # every commit changes the table
            tasks = rewriter.tasks()
            group = [task for task in tasks if task.path in paths]
            if not group:
                continue
            context.reads(table, rewriter.snapshot_id)
            try:
                rewritten = rewriter.rewrite(
                    group,
                    tasks,
                    target_bytes=arguments.target_mb * _MIB,
                    reorder=reorder,
                    reads_twice=arguments.strategy != "binpack",
                )
            except Conflict as conflict:
                if attempts == 1:
                    raise
                log.info("group planned again", extra={"table": table, "files": len(group), "reason": conflict.message})
                waiting.extendleft((half, attempts - 1) for half in _halves(group))
                continue
            stage.rows, stage.bytes = rewritten.digest.rows, rewritten.bytes_after
            context.committed(
                table, rewritten.snapshot_id, rows_digest=rewritten.digest.hex, rows=rewritten.digest.rows
            )
            total.add(rewritten)
    return asdict(total)


@dataclass
class _Totals:
    """What the commits of a compaction did together."""

    files_before: int = 0
    files_after: int = 0
    delete_files_merged: int = 0
    rows_digests: list[str] = field(default_factory=list)

    def add(self, rewritten: Rewritten) -> None:
        self.files_before += rewritten.files_before
        self.files_after += rewritten.files_after
        self.delete_files_merged += rewritten.deletes_merged
        self.rows_digests.append(rewritten.digest.hex)


def _halves(group: Sequence[Task]) -> list[set[str]]:
    """The paths in two parts of about as many files: what a smaller rewrite changes is less likely to be in use."""
    middle = len(group) // 2
    return [{task.path for task in part} for part in (group[:middle], group[middle:]) if part]


def plan(tasks: Sequence[Task], arguments: CompactArguments) -> list[set[str]]:
    """The paths to rewrite, by group. A partition is rewritten if it has deletes, a file far too large, or two files
    that are too small.
    """
    target, limit = arguments.target_mb * _MIB, arguments.group_mb * _MIB
    partitions: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        is_due = task.deletes or task.bytes < _SMALL * target or task.bytes > 1.8 * target
        if is_due or arguments.rewrite_all or arguments.strategy != "binpack":
            partitions[task.partition].append(task)
    groups: list[set[str]] = []
    size = limit
    for due in partitions.values():
        small = sum(task.bytes < _SMALL * target for task in due)
        all_files = arguments.rewrite_all or arguments.strategy != "binpack"
        if not (all_files or small > 1 or any(task.deletes or task.bytes > 1.8 * target for task in due)):
            continue
        for task in due:
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
            item = " ".join([column, *direction])
            raise Invalid(f"{item!r} is not a sort order: write a column, asc or desc; columns are {', '.join(names)}")
    if arguments.strategy == "binpack":
        if columns:
            raise Invalid("the strategy binpack keeps the order of rows: for columns, use sort or zorder")
        return lambda frame: frame
    if not columns:
        raise Invalid(f"the strategy {arguments.strategy} needs columns: name them with --columns")
    if arguments.strategy == "sort":
        return partial(_sorted, columns)
    cuts = _cuts(context, table, [column for column, *_ in columns])
    return lambda frame: _z_ordered(frame, cuts)


def _sorted(columns: Sequence[Sequence[str]], frame: DataFrame) -> DataFrame:
    """Sorts by columns, each with an optional direction. Columns need a session, which a frame has."""
    order = [col(c).desc() if [w.lower() for w in d] == ["desc"] else col(c).asc() for c, *d in columns]
    return frame.repartitionByRange(*order).sortWithinPartitions(*order)


def _z_ordered(frame: DataFrame, cuts: Mapping[str, Sequence[Any]]) -> DataFrame:
    """Sorts by the interleaved bits of each column's rank, so that rows near in all columns are near in the file."""
    bits: list[Column] = []
    for at, (column, values) in enumerate(cuts.items()):
        bounds, value = array(*map(lit, values)), col(column)
        rank = coalesce(size(filter_items(bounds, partial(_at_most, value))), lit(0)) if values else lit(0)
        bits += [
            shiftleft(shiftright(rank, bit).bitwiseAND(lit(1)).cast("bigint"), bit * len(cuts) + at)
            for bit in range(_RANK_BITS)
        ]
    z = reduce(add, bits)
    return frame.withColumn(_Z, z).repartitionByRange(_Z).sortWithinPartitions(_Z).drop(_Z)


def _at_most(value: Column, bound: Column) -> Column:
    return bound <= value


def _cuts(context: Context, table: str, columns: Sequence[str]) -> dict[str, list[Any]]:
    """For each column, the values that cut a sample of it into parts of equal size."""
    cuts: dict[str, list[Any]] = {}
    for column in columns:
        sample = context.spark.table(table).select(column).where(f"`{column}` IS NOT NULL").limit(_SAMPLE)
        values = [row[0] for row in sample.distinct().orderBy(column).collect()]
        step = max(1, -(-len(values) // 2**_RANK_BITS))
        cuts[column] = values[step::step]
    return cuts


JOB = Job("compact", CompactArguments, compact)

if __name__ == "__main__":
    sys.exit(run(JOB))
