"""Writers against each other, and against a cloud that refuses, loses answers and answers late."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config

from catalog.core.errors import Conflict, LakeError, Unavailable
from catalog.core.retries import Retry
from catalog.tables.manager import Tables
from infra.local.faults import disconnect, refuse
from infra.local.requests import Request
from tests.waiting import wait_until
from tests.worlds import tables_race

SCHEMA = {"id": "long", "who": "string"}


def held(tables: Tables, name: str) -> dict[int, str]:
    rows = tables.scan(name).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "a key stands twice"
    return {row["id"]: row["who"] for row in rows}


def update_by(principal: str) -> Callable[[Request], bool]:
    return lambda request: request.principal == principal and request.action == "UpdateTable"


@pytest.mark.parametrize("mode", ["cow", "mor", "hybrid"])
def test_a_new_key_upserted_by_two_writers_leaves_one_row(world: Any, mode: str) -> None:
    name = world.name()
    slow, quick = world.tables("slow"), world.tables("quick")
    slow.create(name, SCHEMA, mode=mode, key=["id"])
    slow.insert(name, [{"id": 1, "who": "first"}])

    def overtake(request: Request) -> None:
        quick.upsert(name, [{"id": 7, "who": "quick"}, {"id": 1, "who": "quick"}])

    with world.server.faults.fault(update_by("slow"), overtake, times=1):
        receipt = slow.upsert(name, [{"id": 7, "who": "slow"}])
    assert held(quick, name) == {1: "quick", 7: "slow"}
    assert receipt.matched == 1, "the second plan found the other's row"
    assert len(slow.history(name)) == 3


def test_threads_and_processes_end_with_exactly_the_rows_of_the_models_order(world: Any) -> None:
    name, processes, turns = world.name(), 8, 2
    world.tables().create(name, SCHEMA, mode="hybrid", key=["id"])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["catalog.tables.manager"])
    running = [
        context.Process(target=_race, args=(world.server.endpoint.url, world.bucket, name, n, turns))
        for n in range(processes)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join(120)
        assert process.exitcode == 0
    tables = world.tables("judge")
    assert len(tables.history(name)) == processes * turns, "every upsert is in the history, once"
    assert held(tables, name) == tables_race.replayed(tables, name)


def _race(url: str, bucket: str, name: str, writer: int, turns: int) -> None:
    keys = {"aws_access_key_id": f"p{writer}", "aws_secret_access_key": "embedded"}
    from pyiceberg.catalog.glue import GlueCatalog

    glue = boto3.client("glue", endpoint_url=url, region_name="us-east-1", **keys)
    properties = {"s3.endpoint": url, "s3.region": "us-east-1", "s3.access-key-id": f"p{writer}",
                  "s3.secret-access-key": "embedded", "warehouse": f"s3://{bucket}/tables"}  # fmt: skip
    tables = Tables(GlueCatalog("lake", client=glue, **properties), retry=Retry(attempts=60))
    tables_race.write(tables, name, writer, turns)


def test_inserts_from_many_threads_ride_together_and_none_is_lost(world: Any) -> None:
    name, callers = world.name(), 40
    tables = world.tables()
    tables.create(name, SCHEMA)
    gate, receipts = threading.Barrier(callers), []

    def insert(number: int) -> None:
        gate.wait()
        receipts.append(tables.insert(name, [{"id": number, "who": "x"}], token=f"t{number}"))

    threads = [threading.Thread(target=insert, args=(n,)) for n in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(held(tables, name)) == list(range(callers))
    assert {r.token for r in receipts} == {f"t{n}" for n in range(callers)}
    assert all(r.rows == 1 for r in receipts)
    assert len(tables.history(name)) < callers / 2, "most shared a commit"
    assert tables.insert(name, [{"id": 3, "who": "x"}], token="t3").replayed


def test_one_bad_caller_does_not_spoil_the_group(world: Any) -> None:
    name = world.name()
    tables, other = world.tables(), world.tables("other")
    tables.create(name, SCHEMA)
    tables.insert(name, [{"id": 0, "who": "x"}])
    other.alter(name, rename={"who": "whom"})
    with pytest.raises(LakeError, match="who"):
        tables.insert(name, [{"id": 1, "who": "x"}])
    tables.insert(name, [{"id": 2, "whom": "y"}])
    assert sorted(tables.scan(name)["id"].to_pylist()) == [0, 2]


@pytest.mark.parametrize("attempts", [1, 3], ids=["no-sdk-retries", "sdk-retries"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_to_the_commit_is_resolved_by_looking(world: Any, when: Any, attempts: int) -> None:
    name = world.name()
    tables = world.tables(attempts=attempts)
    tables.create(name, SCHEMA, key=["id"])
    for number, write in enumerate([tables.insert, tables.upsert]):
        with world.server.faults.fault(update_by("writer"), disconnect, when=when, times=1) as fault:
            write(name, [{"id": number, "who": "x"}])
        assert fault.hits == 1
    assert held(tables, name) == {0: "x", 1: "x"}
    assert len(tables.history(name)) == 2


def test_a_commit_that_lands_after_we_looked_is_not_made_twice(world: Any) -> None:
    """The request is under way when its connection breaks: it is not to be seen, and lands a moment later."""
    name = world.name()
    patient = world.tables()
    patient.create(name, SCHEMA)
    keys = {"aws_access_key_id": "hasty", "aws_secret_access_key": "embedded"}
    config = Config(read_timeout=0.5, retries={"mode": "standard", "total_max_attempts": 1})
    tables = world.tables("hasty")
    tables.table_store.catalog.glue = boto3.client(
        "glue", endpoint_url=world.server.endpoint.url, region_name="us-east-1", config=config, **keys
    )
    tables.insert(name, [{"id": 0, "who": "x"}])
    late, before = threading.Event(), patient.load(name).metadata_location

    def let_the_first_land(request: Request) -> None:
        late.set()
        wait_until(lambda: patient.load(name).metadata_location != before, "the first commit to land")

    with (
        world.server.faults.fault(update_by("hasty"), lambda request: late.wait(20), times=1),
        world.server.faults.fault(update_by("hasty"), let_the_first_land, times=1),
    ):
        tables.insert(name, [{"id": 1, "who": "x"}])
    assert held(patient, name) == {0: "x", 1: "x"}
    assert len(patient.history(name)) == 2


@pytest.mark.parametrize(("action", "when"), [(refuse, "before"), (disconnect, "before"), (disconnect, "after")])
@pytest.mark.parametrize("mode", ["cow", "mor"])
def test_an_upsert_stopped_at_any_step_is_whole_after_a_retry(world: Any, mode: str, action: Any, when: Any) -> None:
    name = world.name()
    helper = world.tables("helper")
    helper.create(name, SCHEMA, mode=mode, key=["id"])
    helper.insert(name, [{"id": n, "who": "first"} for n in range(6)])
    model, step, writes = dict.fromkeys(range(6), "first"), 0, 1
    while True:
        tables = world.tables("writer")  # a fresh process each time: nothing cached
        rows = [{"id": step % 6, "who": f"s{step}"}, {"id": 100 + step, "who": f"s{step}"}]
        with world.server.faults.fault(
            lambda r: r.principal == "writer", action, when=when, skip=step, times=1
        ) as fault:
            try:
                tables.upsert(name, rows, token=f"s{step}")
            except Unavailable:
                # Whatever was left half done is not to be seen.
                assert held(helper, name) in (model, model | {row["id"]: row["who"] for row in rows})
        tables.upsert(name, rows, token=f"s{step}")
        model |= {row["id"]: row["who"] for row in rows}
        writes += 1
        assert held(helper, name) == model
        assert len(helper.history(name)) == writes, "never twice"
        if not fault.hits:
            break
        step += 1
    assert step > 8, "each request of an upsert was stopped once"


def test_a_writer_that_always_loses_says_conflict_and_leaves_no_files(world: Any) -> None:
    name = world.name()
    loser, winner = world.tables("loser", retry=Retry(attempts=3, base_s=0.001)), world.tables("winner")
    winner.create(name, SCHEMA, key=["id"])
    loser.insert(name, [{"id": 0, "who": "x"}])
    count = iter(range(1, 100))

    def overtake(request: Request) -> None:
        winner.insert(name, [{"id": next(count), "who": "w"}])

    with world.server.faults.fault(update_by("loser"), overtake), pytest.raises(Conflict):
        loser.upsert(name, [{"id": 50, "who": "l"}])
    assert sorted(held(winner, name)) == [0, 1, 2, 3]
    plain = world.plain(name)
    referred = {task.file.file_path for task in plain.scan().plan_files()}
    stored = {f"s3://{world.bucket}/{key}" for key in world.object_keys() if key.endswith(".parquet")}
    assert stored == referred


def test_a_snapshots_name_has_no_write_that_was_made_after_it_was_asked_for(world: Any) -> None:
    """Without a snapshot's id it is for the table's newest one: as it was when asked, not after a lost race."""
    name = world.name()
    namer, winner = world.tables("namer", retry=Retry(attempts=3, base_s=0.001)), world.tables("winner")
    winner.create(name, SCHEMA, key=["id"])
    winner.insert(name, [{"id": 0, "who": "x"}])
    before = winner.history(name)[0].snapshot_id
    with world.server.faults.fault(update_by("namer"), lambda _: winner.insert(name, [{"id": 1, "who": "w"}]), times=1):
        assert namer.snapshot(name, "kept").snapshot_id == before
    assert winner.load(name).metadata.refs["kept"].snapshot_id == before


def test_a_large_insert_that_loses_its_race_keeps_its_data_files(world: Any) -> None:
    name = world.name()
    slow, quick = world.tables("slow"), world.tables("quick")
    slow.create(name, SCHEMA)
    slow.insert(name, [{"id": 0, "who": "x"}])
    mark = world.server.log.mark()
    with world.server.faults.fault(
        update_by("slow"), lambda r: quick.insert(name, [{"id": 1, "who": "q"}]) and None, times=1
    ):
        slow.insert(name, [{"id": 2, "who": "s"}])
    puts = [r for r in world.server.log.since(mark) if r.principal == "slow" and r.method == "PUT"]
    assert len([r for r in puts if r.path.endswith(".parquet")]) == 1
    assert sorted(held(slow, name)) == [0, 1, 2]
