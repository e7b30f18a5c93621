"""`query`: a submitted query, run at the snapshots it was bound to; its rows as Parquet under `results/queries/`.

The list of parts is written last: where it lies the result is whole, and nobody sees a part of one. Run again, it finds
that list and does nothing. A query that was cancelled meanwhile leaves none.
"""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from catalog.errors import Conflict, Invalid, LakeError, NotFound, as_lake_error
from catalog.lake import open_lake
from catalog.query.history import History
from catalog.query.submissions import ID, Asked, Part, Submission, folder
from catalog.settings import Settings
from spark_jobs.job import Arguments, Cancelled, Context, Job, run

log = logging.getLogger(__name__)

PART_ROWS = 65_536
PART_BYTES = 4 << 20
"""In memory. A part is what a reader fetches at once, so it fits into an answer."""

_COLUMNS: dict[str, Any] = {"key": pa.string(), "rows": pa.int64(), "bytes": pa.int64(), "sha256": pa.string()}
_WRITTEN = pa.schema(_COLUMNS)
_SETTINGS = {
    # `${env:…}` in a text is text: Spark would put the driver's own variables there, its credentials among them.
    "spark.sql.variable.substitute": "false",
    "spark.sql.caseSensitive": "true",  # names are as exact as in DataFusion
    "spark.sql.cteRecursionLevelLimit": "-1",  # a recursion ends where its query says, not at a hundred steps
}


class QueryArguments(Arguments):
    query_id: str = Field(pattern=ID, description="as POST /query answered it")


def query(context: Context, arguments: QueryArguments) -> Mapping[str, Any]:
    lake = context.lake
    place = Submission(lake.s3, lake.settings.bucket, arguments.query_id)
    asked = place.asked()
    if asked is None:
        raise NotFound(f"there is no query {arguments.query_id}, or it has expired", subject=arguments.query_id)
    if (known := place.result()) is not None:
        return _reported(known)
    if place.cancelled():
        raise Conflict(f"query {asked.id} was cancelled", subject=asked.id)
    try:
        made = _run(context, asked)
    except Exception as problem:
        error = _blamed(problem)
        if not isinstance(error, Cancelled):
            place.fail(error.as_dict())
            _remember(context, asked, {"status": "failed"})
        raise error from problem
    if place.cancelled():
        place.forget()
        raise Conflict(f"query {asked.id} was cancelled", subject=asked.id)
    place.finish(made)
    _remember(context, asked, {"status": "done", "bytes": made["read_bytes"], "rows": made["rows"]})
    return _reported(made)


def answered(spark: SparkSession, asked: Asked) -> pa.Table:
    """The rows in this process, as the parts would hold them: for who has a session and a small answer."""
    with _session(spark):
        found = _frame(spark, asked).toArrow()
    return pa.Table.from_batches(
        [_as_asked(batch, asked.schema) for batch in found.to_batches()], schema=_plain(asked.schema)
    )


def _run(context: Context, asked: Asked) -> dict[str, Any]:
    for one in asked.reads:
        context.reads(one.table, None if one.snapshot_id is None else int(one.snapshot_id))
    with context.stage("query") as stage, _session(context.spark):
        work = partial(_write, context.lake.settings, folder(asked.id), _plain(asked.schema))
        frame = _frame(context.spark, asked).mapInArrow(work, "key string, rows bigint, bytes bigint, sha256 string")
        parts = sorted((Part(**row.asDict()) for row in frame.collect()), key=lambda part: part.key)
        stage.rows, stage.bytes = sum(part.rows for part in parts), sum(part.bytes for part in parts)
    return {
        "id": asked.id,
        "rows": stage.rows,
        "bytes": stage.bytes,
        "read_bytes": _read_bytes(frame),
        "columns": [[field.name, str(field.type)] for field in asked.schema],
        "parts": [vars(part) for part in parts],
        "ended_ms": int(time.time() * 1000),
    }


def _frame(spark: SparkSession, asked: Asked) -> DataFrame:
    """The query, under names that are no two alike: the answer's own may be."""
    for one in asked.reads:
        spark.sql(one.sql).createOrReplaceTempView(one.view)
    frame = spark.sql(asked.sql)
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))


def _write(
    settings: Settings, prefix: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A task's rows as objects, each in memory until it is whole. Every attempt has names of its own."""
    task = TaskContext.get()
    partition, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
    s3 = open_lake(settings).s3
    for number, table in enumerate(_sliced(schema, batches)):
        key = f"{prefix}part-{partition:06d}-{number:06d}-{attempt}.parquet"
        sink = io.BytesIO()
        # By number: two columns of an answer may have one name, and a file's may not. The record has the names.
        plain = table.rename_columns([f"c{column}" for column in range(table.num_columns)])
        pq.write_table(plain, sink, compression="zstd")
        body = sink.getvalue()
        s3.put_object(Bucket=settings.bucket, Key=key, Body=body)
        found = {"key": key, "rows": table.num_rows, "bytes": len(body), "sha256": sha256(body).hexdigest()}
        yield pa.RecordBatch.from_pylist([found], schema=_WRITTEN)


def _sliced(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of at most PART_ROWS rows, and of not much more than PART_BYTES."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        each = max(batch.nbytes // max(batch.num_rows, 1), 1)
        step = max(1, min(PART_ROWS, PART_BYTES // each))
        for start in range(0, batch.num_rows, step):
            part = _as_asked(batch.slice(start, step), schema)
            if held and (rows + part.num_rows > PART_ROWS or size + part.nbytes > PART_BYTES):
                yield pa.Table.from_batches(held, schema)
                held, rows, size = [], 0, 0
            held.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
    if held:
        yield pa.Table.from_batches(held, schema)


def _as_asked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns under the names and types that the planner said: those of the other engine."""
    plain = _plain(schema)
    columns = [_cast(batch.column(number), field.type) for number, field in enumerate(plain)]
    return pa.RecordBatch.from_arrays(columns, schema=plain)


def _cast(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    if pa.types.is_decimal(column.type) and pa.types.is_decimal(kind) and column.type.scale > kind.scale:
        column = pc.round(column, ndigits=kind.scale, round_mode="towards_zero")  # as the other engine does
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(kind) and column.type.tz and not kind.tz:
        column = column.cast(pa.timestamp(column.type.unit))  # the session's zone is UTC
    return column.cast(kind, safe=not pa.types.is_date(kind))


def _plain(schema: pa.Schema) -> pa.Schema:
    """Every column may be null; text and bytes in the forms that Parquet brings back."""
    return pa.schema([pa.field(field.name, _stored(field.type)) for field in schema])


def _stored(kind: Any) -> Any:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return kind


def _read_bytes(frame: DataFrame) -> int | None:
    """The size of the files that were read, as Iceberg's scans report it; None if they do not."""
    try:
        metrics = [
            leaf.metrics().get("totalDataFileSize") for leaf in _leaves(frame._jdf.queryExecution().executedPlan())
        ]
        found = sum(metric.get().value() for metric in metrics if metric.isDefined())
    except Exception:  # a figure for people, read through Spark's internals: never a reason to fail
        log.warning("what was read is not known", exc_info=True)
        return None
    return found or None


def _leaves(node: Any) -> Iterator[Any]:
    """The leaves of a plan as it ran: an adaptive one is made of stages, each with a plan of its own."""
    name = node.getClass().getSimpleName()
    if name == "AdaptiveSparkPlanExec":
        yield from _leaves(node.executedPlan())
    elif name.endswith("QueryStageExec"):
        yield from _leaves(node.plan())
    elif (children := node.children()).isEmpty():
        yield node
    else:
        for number in range(children.size()):
            yield from _leaves(children.apply(number))


def _blamed(problem: Exception) -> LakeError:
    """What the user can mend is Invalid, with Spark's reason in a line; all else is what it is."""
    if not isinstance(problem, PySparkException):
        return as_lake_error(problem)
    said = " ".join(str(problem).partition("\n")[0].split())[:500]
    condition = (problem.getCondition() or "") if hasattr(problem, "getCondition") else ""
    if said.startswith("[") or condition:
        return Invalid(f"the query cannot be run on Spark: {said}")
    return as_lake_error(problem)


def _remember(context: Context, asked: Asked, happened: Mapping[str, Any]) -> None:
    chosen = asked.explanation
    now = time.time()
    told = {
        "query_id": asked.id,
        "shape": asked.shape,
        "route": "spark",
        "estimated_bytes": chosen["bytes"],
        "estimated_memory": chosen["memory_bytes"],
        "estimated_seconds": round(chosen["seconds"].get("spark", 0.0), 3),
        "seconds": round(now - asked.submitted_ms / 1000, 3),
        "job_seconds": round(now - context.started, 3),
        **happened,
    }
    History(context.lake.s3, context.lake.settings.bucket).keep(told)


def _reported(made: Mapping[str, Any]) -> dict[str, Any]:
    return {name: made[name] for name in ("id", "rows", "bytes", "read_bytes", "columns")} | {
        "parts": len(made["parts"])
    }


@contextmanager
def _session(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


JOB = Job("query", QueryArguments, query)

if __name__ == "__main__":
    sys.exit(run(JOB))
