"""`export`: writes a table's rows as files below `jobs/export/`, with a list of their digests.

Formats represent values as `strandline export` does. The workers stream the files directly to S3. The list is written
last: an export with a list is complete. A run with the same run id writes the same keys.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pydantic import Field
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema

from catalog import NotFound, Settings, open_lake
from catalog.core import s3_layout
from catalog.core.object_writer import ObjectWriter
from catalog.formats import ExportFormat, check_representable, open_writer
from spark_jobs.arguments import TABLE
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.session import CATALOG

_COLUMNS: dict[str, Any] = {"key": pa.string(), "rows": pa.int64(), "bytes": pa.int64(), "sha256": pa.string()}
_FILE_SCHEMA = pa.schema(_COLUMNS)


class ExportArguments(Arguments):
    table: str = Field(pattern=TABLE)
    snapshot_id: int | None = Field(default=None, description="default: the current one")
    file_format: ExportFormat = ExportFormat.PARQUET
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
        check_representable(to_arrow_schema(frame.schema), arguments.file_format)
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
    settings: Settings, prefix: str, format_: ExportFormat, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Writes a partition as one object, none if it has no rows. Memory: a part of the object, and a row group."""
    nonempty = (batch for batch in batches if batch.num_rows)
    first = next(nonempty, None)
    if first is None:
        return
    task = TaskContext.get()
    key = f"{prefix}part-{task.partitionId() if task else 0:05d}.{format_}"
    rows = 0
    with ObjectWriter(open_lake(settings).s3, settings.bucket, key) as sink:
        writer = open_writer(format_, sink, first.schema)
        for batch in chain([first], nonempty):
            rows += batch.num_rows
            writer.write(batch)
        writer.close()
    file = {"key": key, "rows": rows, "bytes": sink.size, "sha256": sink.sha256}
    yield pa.RecordBatch.from_pylist([file], schema=_FILE_SCHEMA)


JOB = Job("export", ExportArguments, export)

if __name__ == "__main__":
    sys.exit(run(JOB))
