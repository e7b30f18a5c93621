"""`query`: runs a submitted query at the snapshots it is bound to; writes its rows as Parquet below `results/queries/`.

The list of parts is written last: a result with a list is complete, and readers never see a partial one. A second run
finds the list and does nothing. A query that is cancelled while it runs leaves no list.
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

from catalog import Conflict, Invalid, LakeError, NotFound, Settings, open_lake
from catalog.core.errors import as_lake_error
from catalog.query import QUERY_ID_PATTERN, EstimateHistory, QueryRecord, QueryRecords, ResultPart, query_prefix
from spark_jobs.job import Arguments, Cancelled, Context, Job, run

log = logging.getLogger(__name__)

PART_ROWS = 65_536
PART_BYTES = 4 << 20
"""Size in memory. A reader fetches one part at a time, so a part fits into a response."""

_COLUMNS: dict[str, Any] = {"key": pa.string(), "rows": pa.int64(), "bytes": pa.int64(), "sha256": pa.string()}
_PART_SCHEMA = pa.schema(_COLUMNS)
_SETTINGS = {
    # Otherwise Spark replaces `${env:…}` in the statement by the driver's variables, which include credentials.
    "spark.sql.variable.substitute": "false",
    "spark.sql.caseSensitive": "false",  # as in DuckDB
    "spark.sql.iceberg.aggregate-push-down.enabled": "false",  # bounds exclude NaN, max() does not
    "spark.sql.cteRecursionLevelLimit": "-1",  # no limit of 100 recursions
}


class QueryArguments(Arguments):
    query_id: str = Field(pattern=QUERY_ID_PATTERN, description="as POST /query returned it")


def query(context: Context, arguments: QueryArguments) -> Mapping[str, Any]:
    lake = context.lake
    records = QueryRecords(lake.s3, lake.settings.bucket, arguments.query_id)
    record = records.record()
    if record is None:
        raise NotFound(f"there is no query {arguments.query_id}, or it has expired", subject=arguments.query_id)
    if (earlier := records.result()) is not None:
        return _summary(earlier)
    if records.cancelled():
        raise Conflict(f"query {record.id} was cancelled", subject=record.id)
    try:
        result = _run(context, record)
    except Exception as problem:
        error = _lake_error(problem)
        if not isinstance(error, Cancelled):
            records.fail(error.as_dict())
            _store_history(context, record, {"status": "failed"})
        raise error from problem
    if records.cancelled():
        records.delete_result()
        raise Conflict(f"query {record.id} was cancelled", subject=record.id)
    records.finish(result)
    _store_history(context, record, {"status": "done", "bytes": result["read_bytes"], "rows": result["rows"]})
    return _summary(result)


def collect(spark: SparkSession, record: QueryRecord) -> pa.Table:
    """The result as one table in this process, with the same rows and types as the parts. For small results."""
    with _query_settings(spark):
        rows = _frame(spark, record).toArrow()
    return pa.Table.from_batches(
        [_conformed(batch, record.schema) for batch in rows.to_batches()], schema=_stored_schema(record.schema)
    )


def _run(context: Context, record: QueryRecord) -> dict[str, Any]:
    for read in record.reads:
        context.reads(read.table, None if read.snapshot_id is None else int(read.snapshot_id))
    with context.stage("query") as stage, _query_settings(context.spark):
        write = partial(_write, context.lake.settings, query_prefix(record.id), _stored_schema(record.schema))
        frame = _frame(context.spark, record).mapInArrow(write, "key string, rows bigint, bytes bigint, sha256 string")
        parts = sorted((ResultPart(**row.asDict()) for row in frame.collect()), key=lambda part: part.key)
        stage.rows, stage.bytes = sum(part.rows for part in parts), sum(part.bytes for part in parts)
    return {
        "id": record.id,
        "rows": stage.rows,
        "bytes": stage.bytes,
        "read_bytes": _read_bytes(frame),
        "columns": [[field.name, str(field.type)] for field in record.schema],
        "parts": [vars(part) for part in parts],
        "ended_ms": int(time.time() * 1000),
    }


def _frame(spark: SparkSession, record: QueryRecord) -> DataFrame:
    """The query's frame, with its columns renamed to c0, c1, …: the result's own names may repeat."""
    for read in record.reads:
        spark.sql(read.sql).createOrReplaceTempView(read.view)
    frame = spark.sql(record.sql)
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))


def _write(
    settings: Settings, prefix: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Writes a task's rows as objects. Keys contain the attempt, so attempts do not collide. Memory: one object."""
    task = TaskContext.get()
    partition, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
    s3 = open_lake(settings).s3
    for number, table in enumerate(_sliced(schema, batches)):
        key = f"{prefix}part-{partition:06d}-{number:06d}-{attempt}.parquet"
        sink = io.BytesIO()
        # Columns are numbered: a result may have a name twice, a file may not. The query record has the names.
        numbered = table.rename_columns([f"c{column}" for column in range(table.num_columns)])
        pq.write_table(numbered, sink, compression="zstd")
        body = sink.getvalue()
        s3.put_object(Bucket=settings.bucket, Key=key, Body=body)
        part = {"key": key, "rows": table.num_rows, "bytes": len(body), "sha256": sha256(body).hexdigest()}
        yield pa.RecordBatch.from_pylist([part], schema=_PART_SCHEMA)


def _sliced(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of at most PART_ROWS rows, and of not much more than PART_BYTES."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        row_bytes = max(batch.nbytes // max(batch.num_rows, 1), 1)
        step = max(1, min(PART_ROWS, PART_BYTES // row_bytes))
        for start in range(0, batch.num_rows, step):
            part = _conformed(batch.slice(start, step), schema)
            if pending and (rows + part.num_rows > PART_ROWS or size + part.nbytes > PART_BYTES):
                yield pa.Table.from_batches(pending, schema)
                pending, rows, size = [], 0, 0
            pending.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
    if pending:
        yield pa.Table.from_batches(pending, schema)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns with the names and types that the planner computed, which are DuckDB's."""
    stored = _stored_schema(schema)
    columns = [_cast(batch.column(number), field.type) for number, field in enumerate(stored)]
    return pa.RecordBatch.from_arrays(columns, schema=stored)


def _cast(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    if pa.types.is_decimal(column.type) and pa.types.is_decimal(kind) and column.type.scale > kind.scale:
        column = pc.round(column, ndigits=kind.scale, round_mode="half_towards_infinity")  # as DuckDB does
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(kind) and column.type.tz and not kind.tz:
        column = column.cast(pa.timestamp(column.type.unit))  # the session's zone is UTC
    return column.cast(kind, safe=not pa.types.is_date(kind))


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as Parquet returns it: nullable columns, plain text and binary types, microseconds."""
    return pa.schema([pa.field(field.name, _stored_type(field.type)) for field in schema])


def _stored_type(kind: Any) -> Any:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return kind


def _read_bytes(frame: DataFrame) -> int | None:
    """The size of the files that were read, from the metrics of Iceberg's scans; None if there are none."""
    try:
        metrics = [
            leaf.metrics().get("totalDataFileSize") for leaf in _leaves(frame._jdf.queryExecution().executedPlan())
        ]
        total = sum(metric.get().value() for metric in metrics if metric.isDefined())
    except Exception:  # informative only, and from Spark's internals: must not fail the query
        log.warning("read bytes unknown", exc_info=True)
        return None
    return total or None


def _leaves(node: Any) -> Iterator[Any]:
    """The leaves of an executed plan. An adaptive plan consists of stages, each with its own plan."""
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


def _lake_error(problem: Exception) -> LakeError:
    """Spark's errors that the user can fix become Invalid, with Spark's reason in one line."""
    if not isinstance(problem, PySparkException):
        return as_lake_error(problem)
    reason = " ".join(str(problem).partition("\n")[0].split())[:500]
    condition = (problem.getCondition() or "") if hasattr(problem, "getCondition") else ""
    if reason.startswith("[") or condition:
        return Invalid(f"the query cannot be run on Spark: {reason}")
    return as_lake_error(problem)


def _store_history(context: Context, record: QueryRecord, outcome: Mapping[str, Any]) -> None:
    """Stores estimates and outcome, from which later estimates are corrected."""
    estimate = record.explanation
    now = time.time()
    history = {
        "query_id": record.id,
        "shape": record.shape,
        "route": "spark",
        "estimated_bytes": estimate["bytes"],
        "estimated_memory": estimate["memory_bytes"],
        "estimated_seconds": round(estimate["seconds"].get("spark", 0.0), 3),
        "seconds": round(now - record.submitted_ms / 1000, 3),
        "job_seconds": round(now - context.started, 3),
        **outcome,
    }
    EstimateHistory(context.lake.s3, context.lake.settings.bucket).record(history)


def _summary(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("id", "rows", "bytes", "read_bytes", "columns")} | {
        "parts": len(result["parts"])
    }


@contextmanager
def _query_settings(spark: SparkSession) -> Iterator[None]:
    """Sets the session's configuration for user queries, and restores it afterwards."""
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
