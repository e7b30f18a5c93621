"""The Spark pipeline: notes from bronze to gold, the cost of a small change, and compaction with its proof.

The costs of a change, a digest and a proof are in CPU seconds, which do not depend on other load. The growth of time is
measured from 2,000 to 20,000 notes; with BENCH_NOTES=200000 from 20,000 to 200,000, which takes longer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing import active_children
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import SparkSession

from bench.harness import Figure, cpu_seconds, stopwatch, suite
from bench.pipeline_world import NotesWorld
from bench.timeline_world import cloud
from catalog import Lake, Settings, open_lake
from catalog.changes import RowsDigest
from catalog.notes.layers import RAW_IMPORTS, RAW_NOTES
from spark_jobs import rewriter
from spark_jobs.compact import JOB as COMPACT
from spark_jobs.compact import CompactArguments
from spark_jobs.job import execute
from spark_jobs.medallion import JOB as MEDALLION
from spark_jobs.medallion import MedallionArguments
from spark_jobs.proof import digest
from spark_jobs.session import CATALOG, spark_session

USUAL = 20_000


@suite("pipeline")
def pipeline(quick: bool) -> Iterator[Figure]:
    with cloud() as running:
        settings = Settings(stage="dev", region="us-east-1", endpoint_url=running.url, bucket=running.bucket())
        lake = open_lake(settings)
        with spark_session("bench", settings, local=True, long_lived=True) as spark:
            spark.sparkContext.setLogLevel("ERROR")
            yield _row_digest(spark, 250_000 if quick else 4_000_000)
            yield from _notes(spark, lake, 600 if quick else int(os.environ.get("BENCH_NOTES", USUAL)))
            yield from _compaction(spark, lake, 60 if quick else 2_000, 1 if quick else 3)


def _row_digest(spark: SparkSession, count: int) -> Figure:
    """Ten columns of different types. Spark generates the rows; the detail has the CPU time of generating them."""
    rows = spark.range(count, numPartitions=spark.sparkContext.defaultParallelism).selectExpr(
        "id", "string(id) AS text", "id / 7D AS ratio", "id % 2 = 0 AS even",
        "date_add(date'2026-01-01', int(id % 365)) AS day",
        "timestamp_micros(id) AS at", "decimal(id) AS exact", "int(id % 100) AS small", "concat('note ', id) AS name",
        "if(id % 3 = 0, NULL, id) AS sparse",
    )  # fmt: skip
    types: list[Any] = [
        pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us", tz="UTC"),
        pa.decimal128(10, 0), pa.int32(), pa.string(), pa.int64(),
    ]  # fmt: skip
    fields = [
        pa.field(name, type_, metadata={"PARQUET:field_id": str(number)})
        for number, (name, type_) in enumerate(zip(rows.columns, types, strict=True), 1)
    ]
    schema = pa.schema(fields)
    digest(rows.where("id % 10 = 0"), schema)  # warms up: generates and compiles code, starts workers
    generating_began = cpu_seconds()
    rows.write.format("noop").mode("append").save()
    began = cpu_seconds()
    with stopwatch() as seconds:
        digest(rows, schema)
    spent = cpu_seconds() - began
    detail = {
        "cpu_s": round(spent, 2),
        "of_it_generating": round(began - generating_began, 2),
        "wall_s": round(seconds(), 2),
    }
    return Figure(
        "row digest in Spark, per core", count / spent, "rows/s", 150_000, "higher", {**detail, "rows": count}
    )


def _notes(spark: SparkSession, lake: Lake, size: int) -> Iterator[Figure]:
    runs: dict[int, _Run] = {}
    worlds = {count: NotesWorld(count) for count in (size // 20, size // 10, size)}
    for count, world in worlds.items():  # the first one warms up the JVM and the Python workers
        prefix = f"n{count}_"
        lake.tables.create(prefix + RAW_NOTES.name, RAW_NOTES.schema)
        lake.tables.create(prefix + RAW_IMPORTS.name, RAW_IMPORTS.schema)
        lake.tables.insert(prefix + RAW_NOTES.name, pa.Table.from_pylist(list(world.notes()), schema=RAW_NOTES.schema))
        events = pa.Table.from_pylist(world.events(count), schema=RAW_IMPORTS.schema)
        lake.tables.insert(prefix + RAW_IMPORTS.name, events)
        runs[count] = _run(spark, lake, prefix, full=True)
    # Wall time: Spark's Python workers exit when idle, so `cpu_seconds` misses some CPU time of a long run.
    rate = size / runs[size].wall / len(os.sched_getaffinity(0))
    yield Figure(f"bronze to gold, {size:,} notes, per core", rate, "notes/s", detail=asdict(runs[size]))
    yield Figure(
        f"time for {size:,} notes / for {size // 10:,}", runs[size].wall / runs[size // 10].wall, "x", 10.5,
        detail={str(count): {"cpu_s": run.cpu, "wall_s": run.wall} for count, run in runs.items()},
    )  # fmt: skip
    base = min(size, USUAL)  # the cost of a change is measured at the usual size
    prefix, changed = f"n{base}_", list(range(0, base, 100))
    edited = pa.Table.from_pylist(list(worlds[base].notes(changed, version=1)), schema=RAW_NOTES.schema)
    lake.tables.insert(prefix + RAW_NOTES.name, edited)
    incremental = _run(spark, lake, prefix)
    full = _run(spark, lake, prefix, full=True)
    detail = {
        "incremental": asdict(incremental),
        "full_cpu_s": full.cpu,
        "full_wall_s": full.wall,
        "notes": len(changed),
    }
    yield Figure("a run over 1% changed notes / a full rebuild", incremental.cpu / full.cpu, "", 0.10, detail=detail)


@dataclass(frozen=True)
class _Run:
    cpu: float
    wall: float
    stages: dict[str, Any]


def _run(spark: SparkSession, lake: Lake, prefix: str, **options: Any) -> _Run:
    began = cpu_seconds()
    with stopwatch() as seconds:
        outcome = execute(MEDALLION, MedallionArguments(prefix=prefix, **options), spark, lake)
    assert outcome.error is None, outcome.error
    stages = {stage["name"]: stage["seconds"] for stage in outcome.report["stages"]}
    return _Run(round(cpu_seconds() - began, 2), round(seconds(), 2), stages)


def _compaction(spark: SparkSession, lake: Lake, files: int, turns: int) -> Iterator[Figure]:
    """Compacts three equal tables: with the job, with the job without its proof, and with Iceberg's own action.

    Each compacts a small table first, to warm up the session. Then they take turns, and the minimum of each counts,
    because the ratio of single turns varied between 1.2 and 1.8.
    """
    ways: dict[str, Callable[[str], Any]] = {
        "iceberg": lambda table: spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}')").collect(),
        "unproven": lambda table: _unproven(spark, lake, table),
        "proven": lambda table: _compact(spark, lake, table),
    }
    for name, compact in ways.items():
        compact(_small_files(spark, lake, f"warm.{name}", 20))
    spent: dict[str, dict[str, float]] = {}
    results: dict[str, Any] = {}
    for turn in range(turns):
        tables = {name: _small_files(spark, lake, f"small{turn}.{name}", files) for name in ways}
        before = _scan(spark, tables["proven"])
        for name, compact in ways.items():
            began, engine = cpu_seconds(), cpu_seconds(without=_store())
            with stopwatch() as seconds:
                results[name] = compact(tables[name])
            cost = {
                "cpu_s": round(cpu_seconds() - began, 2),
                "cpu_s_without_the_store": round(cpu_seconds(without=_store()) - engine, 2),
                "wall_s": round(seconds(), 2),
            }
            spent[name] = min(spent.get(name, cost), cost, key=lambda costs: costs["cpu_s"])
    after = _scan(spark, tables["proven"])
    assert results["proven"]["files_before"] == results["unproven"]["files_before"] == files
    schema = schema_to_pyarrow(lake.tables.load(tables["proven"]).schema(), include_field_ids=True)
    assert digest(spark.table(tables["iceberg"]), schema).hex == results["proven"]["rows_digests"][0]
    detail: dict[str, Any] = {"before_s": round(before, 2), "after_s": round(after, 2), "files": files}
    yield Figure(f"full scan before / after compaction of {files:,} files", before / after, "x", 5, "higher", detail)
    cpu = {name: cost["cpu_s"] for name, cost in spent.items()}
    yield Figure(
        "compaction with its proof / the same job without", cpu["proven"] / cpu["unproven"], "x", 1.25, detail={**spent}
    )
    yield Figure(
        "compaction with its proof / Iceberg's own action", cpu["proven"] / cpu["iceberg"], "x", detail={**spent}
    )


def _small_files(spark: SparkSession, lake: Lake, table: str, files: int) -> str:
    lake.tables.create(table, {"id": "long", "name": "string", "value": "double"})
    rows = spark.range(files * 500, numPartitions=files).selectExpr(
        "id", "concat('reading ', id) AS name", "cos(id) AS value"
    )
    writer = rows.writeTo(f"{CATALOG}.{table}").option("distribution-mode", "none")
    writer.option("check-nullability", "false").append()
    return table


def _compact(spark: SparkSession, lake: Lake, table: str) -> dict[str, Any]:
    outcome = execute(COMPACT, CompactArguments(table=table), spark, lake)
    assert outcome.error is None, outcome.error
    result: dict[str, Any] = outcome.report["result"]
    return result


def _unproven(spark: SparkSession, lake: Lake, table: str) -> dict[str, Any]:
    """Runs the compaction job without its proof: no row is digested, neither while writing nor afterwards."""
    empty = RowsDigest()
    with (
        patch.object(rewriter, "with_digest", lambda frame, schema, into: frame),
        patch.object(rewriter, "observed_digest", lambda observation: empty),
        patch.object(rewriter, "digest_files", lambda *_: empty),
    ):
        return _compact(spark, lake, table)


def _store() -> set[int]:
    """The process of the object store, whose CPU time AWS would bear."""
    return {child.pid for child in active_children() if child.pid is not None}


def _scan(spark: SparkSession, table: str) -> float:
    spark.sql(f"SELECT max(value) FROM {CATALOG}.{table} WHERE id < 0").collect()
    with stopwatch() as seconds:
        spark.sql(f"SELECT sum(value), max(name), count(*) FROM {CATALOG}.{table}").collect()
    return seconds()
