"""What an operation costs, counted at the server: budgets per write, and that they do not grow with history."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from catalog.tables.manager import Tables
from tests.waiting import wait_until

SCHEMA = {"id": "long", "x": "string"}


@pytest.fixture
def tables(world: Any) -> Tables:
    return world.tables()


def cost(world: Any, call: Any) -> Counter[str]:
    mark = world.server.log.mark()
    call()
    return world.server.log.counts(mark)


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "x": "x"} for number in ids]


INSERT = Counter({"glue GetTable": 1, "s3 PUT": 4, "glue UpdateTable": 1})


def test_an_insert_is_six_requests_and_stays_so_over_fifty_commits(world: Any, tables: Tables) -> None:
    name = world.name()
    tables.create(name, SCHEMA)
    costs = [cost(world, lambda n=n: tables.insert(name, rows(n))) for n in range(50)]
    deletions = sum(counts["s3 POST?delete"] for counts in costs)
    assert all(counts - Counter({"s3 POST?delete": 1}) == INSERT for counts in costs)
    assert deletions <= 3, "old metadata goes many files to the request"
    assert tables.describe(name).manifests <= 18
    # Planning a scan from nothing: the table, its metadata, the manifest list, and the few manifests.
    fresh = world.tables("fresh")
    planned = cost(world, lambda: list(fresh.plan_scan(name).plan_files()))
    assert planned.total() <= 3 + 18


def test_old_metadata_files_are_deleted(world: Any, tables: Tables) -> None:
    name = world.name()
    tables.create(name, SCHEMA)
    for number in range(60):
        tables.insert(name, rows(number))
    assert len([key for key in world.object_keys() if key.endswith(".metadata.json")]) <= 41
    assert world.plain(name).scan().to_arrow().num_rows == 60


@pytest.mark.parametrize(
    ("mode", "budget"),
    [
        # The key column of the touched file; new rows and deletes; two manifests, their list, the metadata.
        ("mor", Counter({"glue GetTable": 1, "s3 GET": 1, "s3 PUT": 6, "glue UpdateTable": 1})),
        # The touched file once for its keys and once whole; its remains with the new rows; as above.
        ("cow", Counter({"glue GetTable": 1, "s3 GET": 2, "s3 PUT": 5, "glue UpdateTable": 1})),
    ],
)
def test_an_upsert_opens_no_file_that_statistics_rule_out(
    world: Any, tables: Tables, mode: Any, budget: Counter[str]
) -> None:
    name = world.name()
    tables.create(name, SCHEMA, mode=mode, key=["id"])
    for start in range(0, 50, 10):
        tables.insert(name, rows(*range(start, start + 10)))
    assert cost(world, lambda: tables.upsert(name, rows(23, 1000))) == budget


def test_an_upsert_of_new_keys_beyond_all_bounds_is_an_insert(world: Any, tables: Tables) -> None:
    name = world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, rows(*range(10)))
    assert cost(world, lambda: tables.upsert(name, rows(100, 101))) == INSERT


def test_bucket_partitions_rule_files_out_where_bounds_cannot(world: Any, tables: Tables) -> None:
    name = world.name()
    tables.create(name, SCHEMA, mode="mor", key=["id"], partition=["bucket(8, id)"])
    tables.insert(name, rows(*range(200)))
    assert cost(world, lambda: tables.upsert(name, rows(77)))["s3 GET"] == 1


def test_a_delete_of_whole_files_reads_and_writes_no_data(world: Any, tables: Tables) -> None:
    name = world.name()
    tables.create(name, SCHEMA, key=["id"], partition=["truncate(10, id)"])
    tables.insert(name, rows(*range(30)))
    mark = world.server.log.mark()
    assert tables.delete(name, "id >= 10 and id < 20").rows == 10
    assert not [r for r in world.server.log.since(mark) if r.path.endswith(".parquet")]


def test_rows_are_checked_without_a_request(world: Any, tables: Tables) -> None:
    name = world.name()
    tables.create(name, SCHEMA, key=["id"])
    assert cost(world, lambda: tables.describe(name))["glue GetTable"] == 1
    counts = cost(world, lambda: tables.insert(name, []))
    assert counts == Counter({"glue GetTable": 1}), "nothing to insert, nothing sent"


def test_one_commit_serves_many_waiting_callers(world: Any, tables: Tables) -> None:
    name = world.name()
    tables.create(name, SCHEMA)
    tables.insert(name, rows(0))
    entered, go = threading.Event(), threading.Event()

    def hold(request: Any) -> None:
        entered.set()
        go.wait(20)

    with world.server.faults.fault(lambda r: r.action == "UpdateTable", hold, times=1):
        first = threading.Thread(target=lambda: tables.insert(name, rows(1)))
        first.start()
        entered.wait(20)
        others = [threading.Thread(target=lambda n=n: tables.insert(name, rows(n))) for n in range(2, 32)]
        for thread in others:
            thread.start()
        queue = tables._inserts._queues[name]  # who waits for a shared commit makes no request that could be counted
        wait_until(lambda: len(queue.waiting) == 30, "all callers to wait for the next commit")
        mark = world.server.log.mark()
        go.set()
        for thread in [first, *others]:
            thread.join()
    assert world.server.log.counts(mark)["glue UpdateTable"] <= 2
    assert len(tables.history(name)) == 3
    assert sorted(tables.scan(name)["id"].to_pylist()) == list(range(32))
