"""Jobs on a real session: what they do to tables, what they prove, what they report, and how they fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import Field
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import DataFrame, SparkSession

from catalog.changes import conform
from catalog.changes.changes_root import recount_rows
from catalog.changes.multiset import RowsDigest
from catalog.core.errors import Invalid, Unverified
from catalog.core.settings import Settings
from catalog.formats import ExportFormat
from catalog.iceberg.summary import ROWS_DIGEST
from catalog.lake import Lake
from catalog.timeline.sequencer.attestation import compute
from infra.local.endpoint import Endpoint
from spark_jobs import attest, backfill, compact, export, maintain, merge_changes, transform, vectors
from spark_jobs.job import Arguments, Context, Job, Outcome, execute, parse
from spark_jobs.rewriter import Rewriter
from tests.spark.lakes import open_with, rows

pytestmark = pytest.mark.xdist_group("spark")

SCHEMA = {"id": "long", "region": "string", "metres": "double", "at": "timestamptz"}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def lake(endpoint: Endpoint, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return open_with(endpoint, settings, monkeypatch)


Runs = Callable[..., Outcome]


@pytest.fixture
def runs(spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture) -> Runs:
    caplog.set_level("INFO", logger="spark_jobs")  # as a job's own process has it

    def run(module: Any, **given: Any) -> Outcome:
        outcome = execute(module.JOB, module.JOB.arguments(**given), spark, lake)
        assert outcome.error is None, outcome.error
        return outcome

    return run


def fill(lake: Lake, table: str, **properties: str) -> None:
    """Small files in two partitions, with rows updated and deleted since."""
    lake.tables.create(table, SCHEMA, mode="mor", key=["id"], partition=["region"], properties=properties)
    for start in range(0, 40, 10):
        lake.tables.insert(table, [row(number) for number in range(start, start + 10)])
    lake.tables.upsert(table, [{**row(7), "metres": None}, row(70)])
    lake.tables.delete(table, where="id == 12 or id == 13")


def row(number: int) -> dict[str, Any]:
    return {"id": number, "region": "ab"[number % 2], "metres": number / 7, "at": NOON}


def digest_of(lake: Lake, table: str) -> RowsDigest:
    """By the other implementation: pyiceberg reads, Python hashes."""
    schema = schema_to_pyarrow(lake.tables.load(table).schema(), include_field_ids=True)
    return RowsDigest.of(conform(lake.tables.scan(table), schema))


class TestArguments:
    class Some(Arguments):
        table: str
        size: int = 1
        deep: bool = False
        names: list[str] = Field(default_factory=list)

    def test_options_become_typed_fields(self) -> None:
        given = ["--table", "a.b", "--size=3", "--deep", "--names", "x", "--names=y-z", "--run-id", "r1"]
        arguments = parse(self.Some, given)
        assert (arguments.table, arguments.size, arguments.deep) == ("a.b", 3, True)
        assert (arguments.names, arguments.run_id) == (["x", "y-z"], "r1")

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            (["--tabel", "x"], "--table"),
            (["x"], "no option"),
            (["--table"], "needs a value"),
            (["--table", "a", "--table", "b"], "twice"),
            (["--table", "a", "--size", "big"], "--size"),
            ([], "--table"),
        ],
        ids=["unknown", "stray", "no value", "twice", "type", "missing"],
    )
    def test_what_is_wrong_is_named(self, given: list[str], says: str) -> None:
        with pytest.raises(Invalid, match=says):
            parse(self.Some, given)


def test_compaction_merges_deletes_and_small_files_and_proves_that_no_row_changed(
    lake: Lake, namespace: str, runs: Runs
) -> None:
    table = f"{namespace}.tides"
    fill(lake, table)
    before, proven = rows(lake, table), digest_of(lake, table)
    report = runs(compact, table=table).report
    assert rows(lake, table) == before and digest_of(lake, table) == proven
    assert report["result"]["files_after"] == 2 and report["result"]["files_before"] > 6
    described = lake.tables.load(table).current_snapshot()
    assert described is not None and described.summary is not None
    assert described.summary["total-delete-files"] == "0" and described.summary.operation.value == "replace"
    assert described.summary[ROWS_DIGEST] == proven.hex == report["result"]["rows_digests"][0]
    loaded = lake.tables.load(table)
    parent = loaded.snapshot_by_id(described.parent_snapshot_id or 0)
    assert parent is not None
    recounted = recount_rows(loaded, parent, described, loaded.schema().schema_id)  # as deep verification does
    assert recounted == (proven.hex, proven.hex)
    assert runs(compact, table=table).report["commits"] == []  # nothing needs it any more


@pytest.mark.parametrize("tampering", ["a row lost", "a row doubled", "a value changed"])
def test_a_compaction_that_would_change_a_row_never_happened(
    spark: SparkSession, lake: Lake, namespace: str, tampering: str
) -> None:
    tamper: dict[str, Callable[[DataFrame], DataFrame]] = {
        "a row lost": lambda frame: frame.where("id <> 3"),
        "a row doubled": lambda frame: frame.selectExpr(
            "explode(array_repeat(struct(*), if(id = 3, 2, 1))) AS row"
        ).select("row.*"),
        "a value changed": lambda frame: frame.selectExpr("id", "region", "if(id = 3, 0.0D, metres) AS metres", "at"),
    }
    table = f"{namespace}.tides"
    fill(lake, table)
    head, stored = lake.tables.history(table)[0].snapshot_id, objects(lake, table)
    rewriter = Rewriter(spark, lake, table)
    tasks = rewriter.tasks()
    with pytest.raises(Unverified, match="nothing was committed"):
        rewriter.rewrite(tasks, tasks, target_bytes=1 << 27, reorder=tamper[tampering])
    assert lake.tables.history(table)[0].snapshot_id == head and objects(lake, table) == stored


def test_some_files_are_rewritten_and_the_others_stay_with_their_deletes(
    spark: SparkSession, lake: Lake, namespace: str
) -> None:
    table = f"{namespace}.tides"
    fill(lake, table)
    before, rewriter = rows(lake, table), Rewriter(spark, lake, table)
    tasks = rewriter.tasks()
    group, others = tasks[::2], tasks[1::2]
    done = rewriter.rewrite(group, tasks, target_bytes=1 << 27)
    assert rows(lake, table) == before and done.files_before == len(group)
    left = {task.path: task for task in Rewriter(spark, lake, table).tasks()}
    assert all(left[task.path].deletes == task.deletes for task in others)
    assert left.keys().isdisjoint(task.path for task in group) and len(left) == len(others) + done.files_after


def objects(lake: Lake, table: str) -> set[str]:
    prefix = lake.tables.load(table).location().removeprefix(f"s3://{lake.settings.bucket}/")
    return {item["Key"] for item in lake.s3.list_objects_v2(Bucket=lake.settings.bucket, Prefix=prefix)["Contents"]}


@pytest.mark.parametrize(("strategy", "columns"), [("sort", ["metres desc"]), ("zorder", ["id", "at"])])
def test_an_orc_table_is_sorted_or_z_ordered_without_changing_a_row(
    spark: SparkSession, lake: Lake, namespace: str, runs: Runs, strategy: str, columns: list[str]
) -> None:
    table = f"{namespace}.orc"
    spark.sql(
        f"CREATE TABLE {table} (id bigint, metres double, at timestamp) USING iceberg "
        "TBLPROPERTIES ('format-version'='2', 'write.format.default'='orc', 'write.delete.mode'='merge-on-read')"
    )
    for start in (0, 50):
        spark.sql(f"INSERT INTO {table} SELECT id, cos(id), timestamp'2026-01-01' FROM range({start}, {start + 50})")
    spark.sql(f"DELETE FROM {table} WHERE id = 8")
    before, proven = rows(lake, table), digest_of(lake, table)
    report = runs(compact, table=table, strategy=strategy, columns=columns).report
    assert rows(lake, table) == before and report["result"]["rows_digests"] == [proven.hex]
    files = [task.file.file_path for task in lake.tables.load(table).scan().plan_files()]
    assert files and all(path.endswith(".orc") for path in files)
    if strategy == "sort":
        values = [value.as_py() for value in lake.tables.scan(table)["metres"]]
        assert values == sorted(values, reverse=True)


def formats(lake: Lake, table: str) -> set[str]:
    return {task.file.file_path.rpartition(".")[2] for task in lake.tables.load(table).scan().plan_files()}


def test_a_table_in_orc_goes_through_every_job_and_every_reader(lake: Lake, namespace: str, runs: Runs) -> None:
    days, copy, sums = (f"{namespace}.{name}" for name in ("days", "copy", "sums"))
    orc = {"write.format.default": "orc"}
    lake.tables.create(days, {"day": "date", "n": "long"}, mode="mor", key=["n"], partition=["day"], properties=orc)
    noon = date(2026, 1, 2)
    query = "SELECT date(:day) AS day, id AS n FROM range(4)"
    runs(backfill, table=days, day_column="day", first=noon, last=noon, sql=query)
    assert runs(merge_changes, source=days, target=copy).report["result"]["how"] == "copied"
    lake.tables.delete(days, where="n == 1")
    assert runs(merge_changes, source=days, target=copy).report["result"] == {"how": "merged", "rows": 1}
    query = f"SELECT day, sum(n) AS n FROM {copy} GROUP BY day"
    runs(transform, table=sums, inputs=[copy], sql=query, file_format="orc")
    proven = digest_of(lake, copy)
    assert runs(compact, table=copy, rewrite_all=True).report["result"]["rows_digests"] == [proven.hex]
    runs(maintain, table=copy, do=["analyze"])
    head = lake.tables.history(copy)[0].snapshot_id
    assert runs(attest, table=copy, snapshot_id=head).report["result"]["staged"]
    assert runs(export, table=copy).report["result"]["rows"] == 3

    for table in (days, copy):
        assert sorted((row["day"], row["n"]) for row in rows(lake, table)) == [(noon, n) for n in (0, 2, 3)], table
        answer = lake.queries.run(f"SELECT n FROM {table} ORDER BY n", fresh=True)
        assert answer.table()["n"].to_pylist() == [0, 2, 3], table
    assert [(row["day"], row["n"]) for row in rows(lake, sums)] == [(noon, 5)]
    assert [formats(lake, table) for table in (days, copy, sums)] == [{"orc"}] * 3


def test_maintenance_tidies_manifests_statistics_and_orphans(lake: Lake, namespace: str, runs: Runs) -> None:
    table = f"{namespace}.tides"
    fill(lake, table)
    before, stray = rows(lake, table), lake.tables.load(table).location() + "/data/stray.parquet"
    lake.s3.put_object(Bucket=lake.settings.bucket, Key=stray.removeprefix(f"s3://{lake.settings.bucket}/"), Body=b"x")
    do = ["rewrite_manifests", "analyze", "remove_orphans"]
    result = runs(maintain, table=table, do=do, dry_run=True).report["result"]
    assert result["rewrite_manifests"]["added"] < result["rewrite_manifests"]["rewritten"]
    assert result["analyze"].endswith(".stats")
    assert result["remove_orphans"] == []  # a minute old: it may be somebody's work
    assert rows(lake, table) == before


def test_an_attestation_by_spark_is_the_one_the_sequencer_would_compute(
    spark: SparkSession, lake: Lake, namespace: str, runs: Runs
) -> None:
    table = f"{namespace}.foreign"
    spark.sql(f"CREATE TABLE {table} USING iceberg AS SELECT id, string(id) AS name FROM range(100)")
    loaded = lake.tables.load(table)
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    runs(attest, table=table)
    uuid = str(loaded.metadata.table_uuid)
    assert lake.attestations.staged(uuid, snapshot.snapshot_id) == compute(uuid, snapshot, loaded.io)
    assert runs(attest, table=table).report["result"] == {"staged": {}}


def test_a_transform_runs_once_for_its_inputs_and_says_where_its_rows_came_from(
    lake: Lake, namespace: str, runs: Runs
) -> None:
    source, target = f"{namespace}.tides", f"{namespace}.by_region"
    fill(lake, source)
    given = {
        "table": target,
        "inputs": [source],
        "sql": f"SELECT region, count(*) AS n FROM {source} GROUP BY region",
        "mode": "merge",
        "key": ["region"],
    }
    first = runs(transform, **given).report
    assert rows(lake, target) == [{"region": "a", "n": 20}, {"region": "b", "n": 19}]
    assert runs(transform, **given).report["result"] == {"how": "nothing new"}
    lake.tables.delete(source, where="id == 1")
    runs(transform, **given)
    assert rows(lake, target) == [{"region": "a", "n": 20}, {"region": "b", "n": 18}]
    complete = first["lineage"][-1]
    assert complete["eventType"] == "COMPLETE"
    assert [one["name"] for one in complete["inputs"]] == [source]
    assert complete["outputs"][0]["facets"]["version"]["datasetVersion"] == first["commits"][-1]["snapshot_id"]


def test_a_table_follows_another_by_its_changes(lake: Lake, namespace: str, runs: Runs) -> None:
    source, target = f"{namespace}.tides", f"{namespace}.copy"
    fill(lake, source)
    assert runs(merge_changes, source=source, target=target).report["result"]["how"] == "copied"
    lake.tables.upsert(source, [{**row(5), "metres": 5.5}, row(99)])
    lake.tables.delete(source, where="id == 20")
    lake.tables.alter(source, add={"note": "string"})
    lake.tables.upsert(source, [{**row(6), "note": "six"}])
    assert runs(merge_changes, source=source, target=target).report["result"] == {"how": "merged", "rows": 4}
    assert rows(lake, target) == rows(lake, source)
    assert runs(merge_changes, source=source, target=target).report["result"]["how"] == "nothing new"


def test_a_transform_whose_result_was_replaced_since_is_computed_again(lake: Lake, namespace: str, runs: Runs) -> None:
    source, target = f"{namespace}.tides", f"{namespace}.result"
    fill(lake, source)
    ones, twos = ({"table": target, "inputs": [source], "sql": f"SELECT {n} AS n"} for n in (1, 2))
    for given, expected in ((ones, 1), (twos, 2), (ones, 1)):
        assert runs(transform, **given).report["result"]["how"] == "overwrite"
        assert rows(lake, target) == [{"n": expected}]
    runs(compact, table=target, rewrite_all=True)
    assert runs(transform, **ones).report["result"] == {"how": "nothing new"}
    lake.tables.insert(target, [{"n": 3}])
    assert runs(transform, **ones).report["result"]["how"] == "overwrite" and rows(lake, target) == [{"n": 1}]


def test_an_appending_transform_appends_once_whatever_came_after_it(lake: Lake, namespace: str, runs: Runs) -> None:
    source, target = f"{namespace}.tides", f"{namespace}.result"
    fill(lake, source)
    ones, twos = ({"table": target, "inputs": [source], "sql": f"SELECT {n} AS n", "mode": "append"} for n in (1, 2))
    for given in (ones, twos):
        runs(transform, **given)
    assert runs(transform, **ones).report["result"] == {"how": "nothing new"}
    assert rows(lake, target) == [{"n": 1}, {"n": 2}]


def test_a_following_table_follows_renamed_dropped_promoted_and_new_columns(
    lake: Lake, namespace: str, runs: Runs
) -> None:
    source, target = f"{namespace}.tides", f"{namespace}.copy"
    lake.tables.create(source, {"id": "long", "height": "float", "note": "string", "old": "int"}, key=["id"])
    lake.tables.insert(source, [{"id": n, "height": n / 2, "note": f"n{n}", "old": n} for n in range(5)])
    runs(merge_changes, source=source, target=target)
    lake.tables.alter(source, rename={"height": "metres", "id": "number"}, drop=["note"], promote={"old": "long"})
    lake.tables.alter(source, add={"note": "long"})  # another column with the name of the dropped one
    lake.tables.upsert(source, [{"number": 1, "metres": 9.5, "note": 7, "old": 2**40}])
    assert runs(merge_changes, source=source, target=target).report["result"]["how"] == "merged"
    assert rows(lake, target) == rows(lake, source)
    assert {row["metres"] for row in rows(lake, target)} == {0.0, 9.5, 1.0, 1.5, 2.0}
    lake.tables.alter(source, rename={"metres": "m"})  # without a row: the next run has nothing to merge
    assert runs(merge_changes, source=source, target=target).report["result"]["how"] == "nothing new"
    assert rows(lake, target) == rows(lake, source)


def test_a_table_that_may_have_an_old_name_of_a_column_is_not_followed_into(
    spark: SparkSession, lake: Lake, namespace: str
) -> None:
    source, target = f"{namespace}.tides", f"{namespace}.copy"
    lake.tables.create(source, {"id": "long", "metres": "double"}, key=["id"])
    lake.tables.insert(source, [{"id": 1, "metres": 2.5}])
    lake.tables.create(target, {"id": "long", "height": "double"}, key=["id"])
    lake.tables.insert(target, [{"id": 1, "height": 1.5}])
    given = merge_changes.MergeArguments(source=source, target=target)
    error = execute(merge_changes.JOB, given, spark, lake).error
    assert isinstance(error, Invalid) and "--rename" in error.message
    assert rows(lake, target) == [{"id": 1, "height": 1.5}]


def test_a_backfill_fills_each_day_once(lake: Lake, namespace: str, runs: Runs) -> None:
    table = f"{namespace}.days"
    lake.tables.create(table, {"day": "date", "n": "long"}, partition=["day"])
    lake.tables.insert(table, [{"day": date(2026, 1, 2), "n": -1}, {"day": date(2026, 1, 9), "n": 9}])
    given = {"table": table, "sql": "SELECT date(:day) AS day, id AS n FROM range(2)", "day_column": "day"}
    first = runs(backfill, **given, first=date(2026, 1, 1), last=date(2026, 1, 2)).report["result"]
    assert first == {"filled": ["2026-01-01", "2026-01-02"], "skipped": 0}
    second = runs(backfill, **given, first=date(2026, 1, 2), last=date(2026, 1, 3)).report["result"]
    assert second == {"filled": ["2026-01-03"], "skipped": 1}
    days = sorted((row["day"].day, row["n"]) for row in rows(lake, table))
    assert days == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1), (9, 9)]


def test_an_export_lists_files_that_hold_the_rows(lake: Lake, namespace: str, runs: Runs) -> None:
    table = f"{namespace}.tides"
    fill(lake, table)
    result = runs(export, table=table, columns=["id", "metres"], where="region = 'a'", files=2).report["result"]
    listed = json.loads(_get(lake, result["place"] + "files.json"))
    exported = [row for file in listed["files"] for row in pq.read_table(_stream(_get(lake, file["key"]))).to_pylist()]
    expected = [{"id": r["id"], "metres": r["metres"]} for r in rows(lake, table) if r["region"] == "a"]
    assert sorted(exported, key=repr) == sorted(expected, key=repr) and listed["rows"] == len(expected)


def test_exported_lines_are_json_and_their_values_those_of_the_table(
    spark: SparkSession, lake: Lake, namespace: str, runs: Runs
) -> None:
    table = f"{namespace}.odd"
    columns = {"id": "long", "x": "double", "raw": "binary", "d": "decimal(9, 2)", "tags": pa.list_(pa.string())}
    lake.tables.create(table, columns)
    odd = {"id": 1, "x": float("nan"), "raw": b"\n\x00", "d": Decimal("1.10"), "tags": ["a", None]}
    lake.tables.insert(table, [odd, {"id": 2**53 + 1, "x": -0.0, "raw": None, "d": None, "tags": None}])
    place = runs(export, table=table, file_format="jsonl", files=1).report["result"]["place"]
    (part,) = json.loads(_get(lake, f"{place}files.json"))["files"]

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    lines = [json.loads(line, parse_constant=refuse) for line in _get(lake, part["key"]).splitlines()]
    assert sorted(lines, key=lambda line: line["id"]) == [
        {"id": 1, "x": "nan", "raw": "CgA=", "d": "1.10", "tags": ["a", None]},
        {"id": 2**53 + 1, "x": -0.0, "raw": None, "d": None, "tags": None},
    ]
    given = export.ExportArguments(table=table, file_format=ExportFormat.CSV, columns=["id", "tags"])
    error = execute(export.JOB, given, spark, lake).error
    assert isinstance(error, Invalid) and "'tags' is a list" in error.message


def _get(lake: Lake, key: str) -> bytes:
    body: bytes = lake.s3.get_object(Bucket=lake.settings.bucket, Key=key)["Body"].read()
    return body


def _stream(data: bytes) -> Any:
    import io

    return io.BytesIO(data)


def test_a_session_is_started_only_for_work_that_needs_one(spark: SparkSession, lake: Lake, namespace: str) -> None:
    started = list[SparkSession]()

    def start() -> SparkSession:
        started.append(spark)
        return spark

    source, target = f"{namespace}.tides", f"{namespace}.copy"
    fill(lake, source)
    missing = compact.CompactArguments(table=f"{namespace}.nowhere")
    assert execute(compact.JOB, missing, start, lake).error is not None and not started
    given = merge_changes.MergeArguments(source=source, target=target)
    assert execute(merge_changes.JOB, given, start, lake).error is None and len(started) == 1
    lake.tables.upsert(source, [row(99)])
    given = merge_changes.MergeArguments(source=source, target=target)
    outcome = execute(merge_changes.JOB, given, start, lake)
    assert outcome.report["result"]["how"] == "merged" and len(started) == 1


def test_a_job_that_fails_leaves_its_report_with_the_reason(spark: SparkSession, lake: Lake) -> None:
    def fail(context: Context, arguments: Arguments) -> dict[str, Any]:
        with context.stage("read") as stage:
            stage.rows = 3
        raise Invalid("note 17 has no title")

    outcome = execute(Job("failing", Arguments, fail), Arguments(run_id="f1"), spark, lake)
    assert outcome.error is not None and outcome.error.kind.exit_code == 2
    kept = json.loads(lake.s3.get_object(Bucket=lake.settings.bucket, Key="jobs/failing/f1.json")["Body"].read())
    assert (kept["status"], kept["error"]["message"]) == ("failed", "note 17 has no title")
    assert [stage["rows"] for stage in kept["stages"]] == [3] and kept["lineage"][-1]["eventType"] == "FAIL"


def test_vector_tables_follow_and_one_that_cannot_does_not_keep_the_others(
    lake: Lake, runs: Runs, spark: SparkSession, namespace: str
) -> None:
    good, gone = f"{namespace}_v.good", f"{namespace}_v.gone"
    for table in (good, gone):
        lake.tables.create(table, {"id": "long", "text": "string"}, mode="mor", key=["id"])
        lake.tables.insert(table, [{"id": 1, "text": "high tide"}])
        lake.vectors.create(table, "text")
    lake.tables.insert(good, [{"id": 2, "text": "low tide"}])
    ids = [f"{gone}.text", f"{good}.text"]
    report = runs(vectors, vectors=ids).report
    assert [report["result"][id_]["rows"] for id_ in ids] == [1, 2]
    assert [report["result"][id_]["moved"] for id_ in ids][1]
    assert report["lineage"][-1]["inputs"] and report["stages"][-1]["rows"] == 2
    lake.tables.drop(gone)
    lake.tables.insert(good, [{"id": 3, "text": "neap tide"}])
    outcome = execute(vectors.JOB, vectors.JOB.arguments(vectors=ids), spark, lake)
    assert outcome.error is not None and gone in outcome.error.message
    assert len(lake.vectors.search(f"{good}.text", "tide", k=9)) == 3
