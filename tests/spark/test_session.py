"""The session on Spark and Iceberg as pinned: what Spark writes pyiceberg reads, and the other way."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.errors import NumberFormatException
from pyspark.sql import SparkSession

from catalog.core.errors import Conflict
from catalog.core.settings import Settings
from spark_jobs import releases
from spark_jobs.session import ROOT, TMPFS, catalog_conf, scratch_directory, spark_session

pytestmark = pytest.mark.xdist_group("spark")

MODES = {"cow": "copy-on-write", "mor": "merge-on-read"}


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_versions_are_those_of_the_release_label(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert spark.version == releases.SPARK == "4.1.1"
    assert jvm.org.apache.iceberg.IcebergBuild.version() == releases.ICEBERG


def test_times_are_utc_and_bad_casts_are_errors(spark: SparkSession) -> None:
    instant = spark.sql("SELECT unix_seconds(timestamp'1970-01-02 00:00:00')").first()
    assert instant is not None and instant[0] == 86400
    with pytest.raises(NumberFormatException):
        spark.sql("SELECT cast('x' AS int)").collect()


@pytest.mark.parametrize("mode", MODES)
def test_merge_update_delete(spark: SparkSession, iceberg: Catalog, namespace: str, mode: str) -> None:
    name = f"{namespace}.notes"
    properties = ", ".join(f"'write.{verb}.mode'='{MODES[mode]}'" for verb in ("merge", "update", "delete"))
    spark.sql(f"CREATE TABLE {name} (id bigint, text string) USING iceberg TBLPROPERTIES ({properties})")
    # One file: a delete that takes whole files would not show the difference between the modes.
    spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, concat('v', id) FROM range(6)")

    spark.sql(
        f"MERGE INTO {name} t USING (SELECT * FROM VALUES (1, 'one'), (7, 'seven') AS v (id, text)) s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"UPDATE {name} SET text = 'two' WHERE id = 2")
    spark.sql(f"DELETE FROM {name} WHERE id = 3")

    expected = [(0, "v0"), (1, "one"), (2, "two"), (4, "v4"), (5, "v5"), (7, "seven")]
    assert sorted(tuple(row) for row in spark.table(name).collect()) == expected
    assert rows(iceberg.load_table(name).scan().to_arrow()) == expected
    delete_files = spark.table(f"{name}.delete_files").count()
    assert (delete_files > 0) == (mode == "mor")


def test_time_travel(spark: SparkSession, iceberg: Catalog, namespace: str) -> None:
    name = f"{namespace}.notes"
    spark.sql(f"CREATE TABLE {name} (id bigint) USING iceberg")
    for number in (1, 2, 3):
        spark.sql(f"INSERT INTO {name} VALUES ({number})")
    first, second, _ = iceberg.load_table(name).metadata.snapshots

    by_version = spark.sql(f"SELECT id FROM {name} VERSION AS OF {first.snapshot_id}").collect()
    assert [row.id for row in by_version] == [1]
    at = f"timestamp_millis({second.timestamp_ms})"
    by_time = spark.sql(f"SELECT id FROM {name} TIMESTAMP AS OF {at} ORDER BY id").collect()
    assert [row.id for row in by_time] == [1, 2]


def test_spark_sees_every_commit_of_pyiceberg_at_once(spark: SparkSession, iceberg: Catalog, namespace: str) -> None:
    name = f"{namespace}.notes"
    written = pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array([0, 1], pa.timestamp("us", "UTC"))})
    table = iceberg.create_table(name, written.schema)
    table.append(written)
    assert spark.table(name).count() == 2  # a cached table would answer so for ever
    table.append(written)
    assert spark.table(name).count() == 4
    spark.sql(f"INSERT INTO {name} VALUES (3, timestamp'1970-01-01 00:00:01')")
    assert rows(iceberg.load_table(name).scan(row_filter="id = 3").to_arrow())[0][0] == 3


def test_endpoint_is_only_named_when_there_is_one(settings: Settings) -> None:
    assert any("endpoint" in key for key in catalog_conf(settings))
    on_aws = catalog_conf(settings.model_copy(update={"endpoint_url": None}))
    assert not any("endpoint" in key or "path-style" in key for key in on_aws)


def test_a_second_session_in_one_process_is_refused(spark: SparkSession, settings: Settings) -> None:
    with pytest.raises(Conflict, match="only one"), spark_session("second", settings, local=True):
        pass
    assert spark.range(3).count() == 3


def test_a_worker_has_the_jobs_modules_before_it_is_asked_for_any(spark: SparkSession) -> None:
    def loaded(_: int) -> list[str]:
        import sys

        return [name for name in sys.modules if name.startswith(("spark_jobs.", "catalog."))]

    modules = spark.sparkContext.parallelize([0], 1).flatMap(loaded).collect()
    assert "spark_jobs.digest_workers" in modules


def test_abandoned_scratch_is_swept_and_living_is_not() -> None:
    with scratch_directory() as living:
        abandoned = living.parent / "strandline-spark-abandoned"
        abandoned.mkdir(exist_ok=True)
        os.utime(abandoned, (0, 0))
        with scratch_directory():
            assert living.exists()
            assert not abandoned.exists()
    assert not living.exists()


SHORT_SESSION = """
from catalog.core.settings import load_settings
from spark_jobs.session import spark_session
with spark_session("short", load_settings(), local=True) as spark:
    jvm = spark.sparkContext._gateway.proc
    print(spark.conf.get("spark.local.dir"))
    print(spark.range(100).repartition(3).selectExpr("id % 7 AS k").groupBy("k").count().count())
print(jvm.poll())
"""


def test_a_session_writes_to_memory_only_and_leaves_nothing(settings: Settings, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=%file", "-o", str(trace)]
    traced = strace if shutil.which("strace") else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STRANDLINE_BUCKET": settings.bucket}
    environment["AWS_REGION"] = settings.region
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [*traced, sys.executable, "-c", SHORT_SESSION],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    scratch, groups, exit_code = done.stdout.split()
    assert groups == "7"
    assert exit_code != "None"  # the JVM has ended with its session
    assert not Path(scratch).exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"trace"}
    if traced:
        made = [line for line in trace.read_text().splitlines() if CREATES.search(line)]
        assert any(scratch in line for line in made)  # what is looked for can be seen
        assert [line for line in made if not IN_MEMORY.search(line)] == []


CREATES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|\bcreat\(|\bmkdir\(|\bmkdirat\(|\brename\w*\(|\b(sym)?link\(")
IN_MEMORY = re.compile(rf'"{TMPFS}|"/dev/(null|tty)"|"/proc/|= -1 E')
