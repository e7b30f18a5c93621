"""A compaction and writers on one table: the compaction ends, no write is lost, and the proof holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from catalog.changes.changes_root import recount_rows
from catalog.core.errors import Conflict
from catalog.core.point_in_time import SnapshotId
from catalog.core.settings import Settings
from catalog.iceberg import LiveFiles
from catalog.lake import Lake
from catalog.tables import UNIT_PROPERTY, Delta, MatchedRows, WritePlanner
from infra.local.endpoint import Endpoint
from spark_jobs import compact
from spark_jobs.job import execute
from spark_jobs.rewriter import Rewriter
from tests.spark.lakes import open_with, rows

pytestmark = pytest.mark.xdist_group("spark")

COLUMNS = {"id": "long", "region": "string", "metres": "double"}


@pytest.fixture
def lake(endpoint: Endpoint, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return open_with(endpoint, settings, monkeypatch)


def row(number: int, metres: float = 0.5) -> dict[str, Any]:
    return {"id": number, "region": "ab"[number % 2], "metres": metres}


def fill(lake: Lake, table: str, mode: Any = "mor", **properties: str) -> None:
    lake.tables.create(table, COLUMNS, mode=mode, key=["id"], partition=["region"], properties=properties)
    for start in range(0, 40, 10):
        lake.tables.insert(table, [row(number) for number in range(start, start + 10)])
    lake.tables.delete(table, where="id == 12 or id == 13")


def compacted(spark: SparkSession, lake: Lake, table: str) -> Any:
    outcome = execute(compact.JOB, compact.CompactArguments(table=table), spark, lake)
    assert outcome.error is None, outcome.error
    return outcome.report


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], times: int = 1) -> None:
    """Acts after the new files are written and before they are committed, for the first rewrites."""
    digest_of, left = Rewriter._digest_of, [times]

    def interrupted(self: Rewriter, files: Any) -> Any:
        digest = digest_of(self, files)
        if left[0]:
            left[0] -= 1
            act()
        return digest

    monkeypatch.setattr(Rewriter, "_digest_of", interrupted)


def check_proof(lake: Lake, table: str) -> None:
    """Each rewrite has the digest that deep verification computes from the files before it and after it."""
    loaded, rewrites = lake.tables.load(table), 0
    for snapshot in loaded.metadata.snapshots:
        assert snapshot.summary is not None
        if snapshot.summary.operation.value == "replace":
            parent = loaded.snapshot_by_id(snapshot.parent_snapshot_id or 0)
            before, after = recount_rows(loaded, parent, snapshot, loaded.schema().schema_id)
            assert before == after == snapshot.summary["strandline.rows-digest"]
            rewrites += 1
    assert rewrites


WRITES: dict[str, Callable[[Lake, str], Any]] = {
    "deletes": lambda lake, table: lake.tables.delete(table, where="id in (3, 4, 25)"),
    "upserts": lambda lake, table: lake.tables.upsert(table, [row(3, 9.5), row(14, 9.5), row(99)]),
    "two commits": lambda lake, table: (
        lake.tables.upsert(table, [row(3, 9.5)]),
        lake.tables.upsert(table, [row(3, 10.5), row(5, 10.5)]),
    ),
    "a whole file deleted": lambda lake, table: lake.tables.delete(table, where="id < 10 and region = 'a'"),
    "every row deleted of a new file": lambda lake, table: lake.tables.delete(table, where="region = 'a'"),
    "rows added": lambda lake, table: lake.tables.insert(table, [row(100), row(101)]),
}


@pytest.mark.parametrize("mode", ["mor", "cow"])
@pytest.mark.parametrize("writes", WRITES)
def test_what_is_written_meanwhile_stays_and_the_files_are_merged(
    spark: SparkSession, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch, mode: str, writes: str
) -> None:
    table = f"{namespace}.tides"
    fill(lake, table, mode)
    expected = list[Any]()

    def write() -> None:
        WRITES[writes](lake, table)
        expected.extend(rows(lake, table))

    meanwhile(monkeypatch, write)
    report = compacted(spark, lake, table)
    assert expected and rows(lake, table) == expected and report["commits"]
    check_proof(lake, table)
    # By Spark's own reader too: it must find the carried deletes.
    assert spark.table(table).count() == len(expected)
    monkeypatch.undo()
    compacted(spark, lake, table)
    assert rows(lake, table) == expected


def test_of_equal_rows_as_many_stay_as_were_left(
    spark: SparkSession, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{namespace}.twins"
    lake.tables.create(table, COLUMNS, mode="mor")
    for _ in range(3):
        lake.tables.insert(table, [row(1), row(1), row(2)])

    def plan(planner: WritePlanner) -> Delta:
        live = LiveFiles.of(planner.io, planner.manifests, planner.version.head(), table).data[0]
        return planner.delete_rows([MatchedRows(live, np.array([0]), np.ones(3, dtype=bool))], "one of two equal rows")

    def delete() -> None:
        lake.tables.committer.write(table, plan)

    meanwhile(monkeypatch, delete)
    compacted(spark, lake, table)
    assert [r["id"] for r in rows(lake, table)] == [1] * 5 + [2] * 3
    check_proof(lake, table)


def test_compactions_beside_constant_upserts_all_end_and_no_upsert_is_lost(
    spark: SparkSession, lake: Lake, namespace: str
) -> None:
    table = f"{namespace}.tides"
    fill(lake, table)
    model = {r["id"]: r for r in rows(lake, table)}
    stop, failures = threading.Event(), list[BaseException]()

    def upsert() -> None:
        number = 0
        try:
            while not stop.wait(0.1):  # ten a second: a rate, not a wait for something to happen
                number += 1
                new = [row(number % 50, float(number)), row(1000 + number)]
                lake.tables.upsert(table, new)
                model.update({r["id"]: r for r in new})
        except BaseException as error:
            failures.append(error)

    # In a process of its own a writer would compete for the commit; in this one it competes for the table's lock.
    writer = threading.Thread(target=upsert)
    writer.start()
    try:
        for _ in range(5):
            compacted(spark, lake, table)
    finally:
        stop.set()
        writer.join()
    assert not failures
    assert rows(lake, table) == sorted(model.values(), key=repr)
    check_proof(lake, table)


@pytest.mark.parametrize("change", ["schema", "rollback", "gone"])
def test_what_cannot_be_carried_over_is_planned_again(
    spark: SparkSession, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    table = f"{namespace}.tides"
    fill(lake, table)
    first = lake.tables.history(table)[1].snapshot_id  # before the rows 12 and 13 were deleted
    expected = list[Any]()

    def act() -> None:
        if change == "schema":
            lake.tables.alter(table, add={"note": "string"})
            lake.tables.delete(table, where="id == 3")
        elif change == "rollback":
            lake.tables.rollback(table, SnapshotId(first))
        else:
            lake.tables.delete(table, where="id >= 0")
        expected.extend(rows(lake, table))

    meanwhile(monkeypatch, act)
    compacted(spark, lake, table)
    assert rows(lake, table) == expected


def test_rows_whose_order_is_in_their_files_are_not_renewed(
    spark: SparkSession, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewritten bronze row must not become newer than one that came meanwhile: deduplication would drop that one."""
    table = f"{namespace}.notes"
    fill(lake, table, **{UNIT_PROPERTY: "id"})
    meanwhile(monkeypatch, lambda: lake.tables.delete(table, where="id == 3"))
    rewriter = Rewriter(spark, lake, table)
    tasks = rewriter.tasks()
    with pytest.raises(Conflict, match="deleted while"):
        rewriter.rewrite(tasks, tasks, target_bytes=1 << 27)
