"""`export`: writes a table's rows as files below `jobs/export/`, with a list of their digests.

The workers write the files directly to S3. The list is written last: an export with a list is complete. A run with the
same run id writes the same keys.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pydantic import Field
from pyspark import TaskContext

from catalog import NotFound, Settings, open_lake
from catalog.core import s3_layout
from spark_jobs.arguments import TABLE
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.session import CATALOG

Format = Literal["parquet", "csv", "jsonl"]
_COLUMNS: dict[str, Any] = {"key": pa.string(), "rows": pa.int64(), "bytes": pa.int64(), "sha256": pa.string()}
_FILE_SCHEMA = pa.schema(_COLUMNS)


class ExportArguments(Arguments):
    table: str = Field(pattern=TABLE)
    snapshot_id: int | None = Field(default=None, description="default: the current one")
    file_format: Format = "parquet"
    columns: list[str] = Field(default_factory=list)
    where: str | None = None
    files: int = Field(default=0, ge=0, le=10_000, description="0: one for each of Spark's partitions")


def export(context: Context, arguments: ExportArguments) -> Mapping[str, Any]:
    current = context.lake.tables.load(arguments.table).current_snapshot()
    snapshot_id = arguments.snapshot_id or (current.snapshot_id if current else None)
    if snapshot_id is None:
        raise NotFound(f"{arguments.table} has no rows yet: nothing to export", subject=arguments.table)
    context.reads(arguments.table, snapshot_id)
    prefix = f"{s3_layout.JOBS}export/{arguments.table}/{context.run_id}/"
    with context.stage("export") as stage:
        frame = context.spark.sql(f"SELECT * FROM {CATALOG}.{arguments.table} VERSION AS OF {snapshot_id}")
        frame = frame.where(arguments.where) if arguments.where else frame
        frame = frame.select(*arguments.columns) if arguments.columns else frame
        frame = frame.repartition(arguments.files) if arguments.files else frame
        write = partial(_write, context.lake.settings, prefix, arguments.file_format)
        files = frame.mapInArrow(write, "key string, rows bigint, bytes bigint, sha256 string").collect()
        stage.rows, stage.bytes = sum(file.rows for file in files), sum(file.bytes for file in files)
    file_list = sorted((file.asDict() for file in files), key=lambda file: file["key"])
    body = {"table": arguments.table, "snapshot_id": str(snapshot_id), "rows": stage.rows, "files": file_list}
    context.lake.s3.put_object(
        Bucket=context.lake.settings.bucket, Key=f"{prefix}files.json", Body=json.dumps(body, indent=1).encode()
    )
    return {"place": prefix, "rows": stage.rows, "files": len(files), "bytes": stage.bytes}


def _write(
    settings: Settings, prefix: str, kind: Format, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Writes a partition as one object, none if it has no rows. Memory: the partition."""
    nonempty = (batch for batch in batches if batch.num_rows)
    first = next(nonempty, None)
    if first is None:
        return
    task = TaskContext.get()
    key = f"{prefix}part-{task.partitionId() if task else 0:05d}.{kind}"
    rows, body = _body(kind, first.schema, chain([first], nonempty))
    open_lake(settings).s3.put_object(Bucket=settings.bucket, Key=key, Body=body)
    file = {"key": key, "rows": rows, "bytes": len(body), "sha256": sha256(body).hexdigest()}
    yield pa.RecordBatch.from_pylist([file], schema=_FILE_SCHEMA)


def _body(kind: Format, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[int, bytes]:
    sink, rows = io.BytesIO(), 0
    if kind == "jsonl":
        for batch in batches:
            rows += batch.num_rows
            for row in batch.to_pylist():
                sink.write(json.dumps(row, default=str, ensure_ascii=False).encode() + b"\n")
        return rows, sink.getvalue()
    writer: Any = pq.ParquetWriter(sink, schema) if kind == "parquet" else pacsv.CSVWriter(sink, schema)
    with writer:
        for batch in batches:
            rows += batch.num_rows
            writer.write_batch(batch)
    return rows, sink.getvalue()


JOB = Job("export", ExportArguments, export)

if __name__ == "__main__":
    sys.exit(run(JOB))
