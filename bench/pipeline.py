"""The Spark pipeline's figures: notes from bronze to gold, what a small change costs, compaction with its proof."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import SparkSession

from bench.harness import Figure, stopwatch, suite
from bench.pipeline_world import NotesWorld
from bench.timeline_world import cloud
from catalog.lake import Lake, open_lake
from catalog.pipeline.layers import RAW_IMPORTS, RAW_NOTES
from catalog.settings import Settings
from spark_jobs.compact import JOB as COMPACT
from spark_jobs.compact import CompactArguments
from spark_jobs.job import execute
from spark_jobs.medallion import JOB as MEDALLION
from spark_jobs.medallion import MedallionArguments
from spark_jobs.proof import digest
from spark_jobs.session import CATALOG, spark_session


@suite("pipeline")
def pipeline(quick: bool) -> Iterator[Figure]:
    with cloud() as running:
        settings = Settings(stage="dev", region="us-east-1", endpoint_url=running.url, bucket=running.bucket())
        lake = open_lake(settings)
        with spark_session("bench", settings, local=True) as spark:
            spark.sparkContext.setLogLevel("ERROR")
            cores = spark.sparkContext.defaultParallelism
            yield _row_digest(spark, cores, 500_000 if quick else 4_000_000)
            yield from _notes(spark, lake, cores, 2_000 if quick else 20_000)
            yield from _compaction(spark, lake, 200 if quick else 2_000)


def _row_digest(spark: SparkSession, cores: int, count: int) -> Figure:
    """Ten columns of all kinds. The rows come from a generator, whose own time is told beside."""
    rows = spark.range(count, numPartitions=cores).selectExpr(
        "id", "string(id) AS text", "id / 7D AS ratio", "id % 2 = 0 AS even",
        "date_add(date'2026-01-01', int(id % 365)) AS day",
        "timestamp_micros(id) AS at", "decimal(id) AS exact", "int(id % 100) AS small", "concat('note ', id) AS name",
        "if(id % 3 = 0, NULL, id) AS sparse",
    )  # fmt: skip
    kinds: list[Any] = [
        pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us", tz="UTC"),
        pa.decimal128(10, 0), pa.int32(), pa.string(), pa.int64(),
    ]  # fmt: skip
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
        for number, (name, kind) in enumerate(zip(rows.columns, kinds, strict=True), 1)
    ]
    schema = pa.schema(fields)
    digest(rows.limit(1000), schema)  # the code is generated once
    with stopwatch() as bare:
        rows.selectExpr("max(struct(*))").collect()
    with stopwatch() as seconds:
        digest(rows, schema)
    rate = count / seconds() / cores
    detail = {"generating_alone_s": round(bare(), 2), "with_digest_s": round(seconds(), 2), "rows": count}
    return Figure("row digest in Spark, per core", rate, "rows/s", 150_000, "higher", detail)


def _notes(spark: SparkSession, lake: Lake, cores: int, size: int) -> Iterator[Figure]:
    times: dict[int, float] = {}
    for count in (size // 20, size // 10, size):  # the first one warms the JVM and the Python workers
        prefix, world = f"n{count}_", NotesWorld(count)
        lake.tables.create(prefix + RAW_NOTES.name, RAW_NOTES.schema)
        lake.tables.create(prefix + RAW_IMPORTS.name, RAW_IMPORTS.schema)
        lake.tables.insert(prefix + RAW_NOTES.name, pa.Table.from_pylist(list(world.notes()), schema=RAW_NOTES.schema))
        events = pa.Table.from_pylist(world.events(count), schema=RAW_IMPORTS.schema)
        lake.tables.insert(prefix + RAW_IMPORTS.name, events)
        times[count], stages = _run(spark, lake, prefix)
    yield Figure(
        f"bronze to gold, {size:,} notes, per core", size / times[size] / cores, "notes/s", detail={"stages": stages}
    )
    yield Figure(
        f"time for {size:,} notes / for {size // 10:,}", times[size] / times[size // 10], "x", 10.5,
        detail={f"{count}_s": round(time, 1) for count, time in times.items()},
    )  # fmt: skip
    changed = list(range(0, size, 100))
    edited = pa.Table.from_pylist(list(world.notes(changed, version=1)), schema=RAW_NOTES.schema)
    lake.tables.insert(prefix + RAW_NOTES.name, edited)
    again, stages = _run(spark, lake, prefix)
    full, _ = _run(spark, lake, prefix, full=True)
    detail = {"incremental_s": round(again, 2), "full_s": round(full, 1), "notes": len(changed), "stages": stages}
    yield Figure("a run over 1% changed notes / a full rebuild", again / full, "", 0.10, detail=detail)


def _run(spark: SparkSession, lake: Lake, prefix: str, **given: Any) -> tuple[float, dict[str, Any]]:
    with stopwatch() as seconds:
        outcome = execute(MEDALLION, MedallionArguments(prefix=prefix, **given), spark, lake)
    assert outcome.error is None, outcome.error
    return seconds(), {stage["name"]: stage["seconds"] for stage in outcome.report["stages"]}


def _compaction(spark: SparkSession, lake: Lake, files: int) -> Iterator[Figure]:
    """Two tables alike: one for the job, one for Iceberg's own action, which proves nothing."""
    rows_per_file = 500
    for table in ("small.ours", "small.theirs"):
        lake.tables.create(table, {"id": "long", "name": "string", "value": "double"})
        spark.range(files * rows_per_file, numPartitions=files).selectExpr(
            "id", "concat('reading ', id) AS name", "cos(id) AS value"
        ).writeTo(f"{CATALOG}.{table}").option("distribution-mode", "none").option(
            "check-nullability", "false"
        ).append()
    before = _scan(spark, "small.ours")
    with stopwatch() as theirs:
        spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => 'small.theirs')").collect()
    with stopwatch() as ours:
        outcome = execute(COMPACT, CompactArguments(table="small.ours"), spark, lake)
    assert outcome.error is None, outcome.error
    assert outcome.report["result"]["files_before"] == files
    after = _scan(spark, "small.ours")
    schema = schema_to_pyarrow(lake.tables.load("small.ours").schema(), include_field_ids=True)
    assert digest(spark.table("small.theirs"), schema).hex == outcome.report["result"]["rows_digests"][0]
    detail = {"before_s": round(before, 2), "after_s": round(after, 2), "files": files, **outcome.report["result"]}
    yield Figure(f"full scan before / after compaction of {files:,} files", before / after, "x", 5, "higher", detail)
    detail = {"with_proof_s": round(ours(), 2), "iceberg_action_s": round(theirs(), 2)}
    yield Figure("compaction with proof / Iceberg's own without", ours() / theirs(), "x", 1.25, detail=detail)


def _scan(spark: SparkSession, table: str) -> float:
    spark.sql(f"SELECT max(value) FROM {CATALOG}.{table} WHERE id < 0").collect()
    with stopwatch() as seconds:
        spark.sql(f"SELECT sum(value), max(name), count(*) FROM {CATALOG}.{table}").collect()
    return seconds()
