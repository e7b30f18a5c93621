"""Transactions over several tables: all or none, whoever crashes, and whenever."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from catalog.core.errors import Invalid, LakeError
from catalog.core.point_in_time import SnapshotId
from catalog.tables.manager import Tables
from infra.local.faults import refuse
from infra.local.requests import Request

SCHEMA = {"id": "long", "x": "string"}


@pytest.fixture
def pair(world: Any) -> tuple[str, str]:
    tables = world.tables("maker")
    names = world.name("a"), world.name("b")
    for name, mode in zip(names, ("cow", "mor"), strict=True):
        tables.create(name, SCHEMA, mode=mode, key=["id"])
        tables.insert(name, [{"id": 1, "x": "old"}, {"id": 2, "x": "old"}])
    return names


def held(tables: Tables, name: str) -> dict[int, str]:
    return {row["id"]: row["x"] for row in tables.scan(name).to_pylist()}


OLD = {1: "old", 2: "old"}
NEW_A, NEW_B = {1: "new", 2: "old", 3: "new"}, {2: "old", 9: "new"}


def transfer(tables: Tables, pair: tuple[str, str]) -> Any:
    a, b = pair
    with tables.transaction() as tx:
        tx.upsert(a, [{"id": 1, "x": "new"}, {"id": 3, "x": "new"}])
        tx.insert(b, [{"id": 9, "x": "new"}])
        tx.delete(b, "id = 1")
    return tx


def test_a_transaction_that_stages_again_after_a_lost_race_refers_to_files_that_exist(
    world: Any, pair: tuple[str, str]
) -> None:
    """Both attempts have one snapshot id; the files of the first are deleted. Expiry keeps main, and so the parent."""
    tables, other = world.tables("stager"), world.tables("other")
    other.upsert(pair[0], [{"id": 1, "x": "newer"}])

    def stages(request: Request) -> bool:
        return request.principal == "stager" and request.action == "UpdateTable"

    def expire(request: Request) -> None:
        other.expire(pair[0], older_than=2**53)

    with world.server.faults.fault(stages, expire, times=1):
        transfer(tables, pair)
    fresh = world.tables("reader")
    assert held(fresh, pair[0]) == NEW_A
    assert fresh.insert(pair[0], [{"id": 7, "x": "x"}]).rows == 1


def test_a_write_that_is_planned_while_its_files_expire_is_planned_again(world: Any, pair: tuple[str, str]) -> None:
    tables, other = world.tables("planner"), world.tables("other")

    def expire(request: Request) -> None:
        other.upsert(pair[0], [{"id": 2, "x": "newer"}])
        other.expire(pair[0], older_than=2**53)

    def reads_manifest_list(request: Request) -> bool:
        return request.principal == "planner" and request.method == "GET" and "/snap-" in request.path

    with world.server.faults.fault(reads_manifest_list, expire, times=1) as fault:
        tables.upsert(pair[0], [{"id": 1, "x": "new"}])
    assert fault.hits == 1
    assert held(tables, pair[0]) == {1: "new", 2: "newer"}


def test_all_tables_move_together_and_say_so(world: Any, pair: tuple[str, str]) -> None:
    heard: list[Any] = []
    tables = world.tables(on_commit=lambda table, snapshot, written: heard.append((table.name(), snapshot, written)))
    tx = transfer(tables, pair)
    assert (held(tables, pair[0]), held(tables, pair[1])) == (NEW_A, NEW_B)
    assert [r.rows for r in tx.receipts] == [2, 1, 1]
    heads = {name: tables.load(name).current_snapshot() for name in pair}
    participants = sorted([name, str(head.snapshot_id)] for name, head in heads.items())
    for name, head in heads.items():
        assert head.summary["strandline.transaction"] == tx.id
        assert json.loads(head.summary["strandline.participants"]) == participants
        assert list(tables.load(name).metadata.refs) == ["main"]
    told = [snapshot.snapshot_id for _, snapshot, _ in heard if snapshot]
    assert {head.snapshot_id for head in heads.values()} <= set(told) and len(told) == 3
    assert all(written for _, snapshot, written in heard if snapshot)


def test_an_exception_in_the_block_writes_nothing(world: Any, pair: tuple[str, str]) -> None:
    tables = world.tables()
    mark = world.server.log.mark()
    with pytest.raises(ZeroDivisionError), tables.transaction() as tx:
        tx.insert(pair[0], [{"id": 9, "x": "new"}])
        raise ZeroDivisionError
    with pytest.raises(Invalid, match="row 0"), tables.transaction() as tx:
        tx.insert(pair[0], [{"id": 9, "x": "new"}])
        tx.insert(pair[1], [{"id": "nine"}])
    assert not [r for r in world.server.log.since(mark) if r.method in ("PUT", "DELETE") or r.action == "UpdateTable"]


def test_a_crash_at_any_step_leaves_all_or_nothing(world: Any, pair: tuple[str, str]) -> None:
    """The writer is cut off from its n-th request on, for every n; then somebody else cleans up."""
    seen, step = set(), 0
    healer = world.tables("healer", patience_s=0)
    while True:
        starts = {name: healer.history(name)[0].snapshot_id for name in pair}
        writer = world.tables("writer")
        with world.server.faults.fault(lambda r: r.principal == "writer", refuse, skip=step) as fault:
            try:
                transfer(writer, pair)
            except LakeError:
                pass
        for _ in range(2):  # recovery is the same the second time
            healer.recover(pair)
        state = held(healer, pair[0]), held(healer, pair[1])
        assert state in ((OLD, OLD), (NEW_A, NEW_B)), f"torn after {step} requests"
        seen.add(state == (NEW_A, NEW_B))
        for name in pair:
            assert list(healer.load(name).metadata.refs) == ["main"]
            healer.rollback(name, SnapshotId(starts[name]))
        if not fault.hits:
            break
        step += 2
    assert seen == {True, False} and step > 20


def test_a_waiting_writer_ends_a_transaction_whose_writer_is_gone(world: Any, pair: tuple[str, str]) -> None:
    # Cut off just before the record: staged on both tables, decided by nobody.
    with (
        world.server.faults.fault(lambda r: "/transactions/" in r.path and r.principal == "writer", refuse),
        pytest.raises(LakeError),
    ):
        with world.server.faults.fault(lambda r: r.principal == "writer" and r.action == "POST?delete", refuse):
            transfer(world.tables("writer"), pair)
    other = world.tables("other", patience_s=0)
    assert (held(other, pair[0]), held(other, pair[1])) == (OLD, OLD)
    other.insert(pair[1], [{"id": 5, "x": "other"}])
    other.upsert(pair[0], [{"id": 5, "x": "other"}])
    assert held(other, pair[0]) == OLD | {5: "other"}
    assert held(other, pair[1]) == OLD | {5: "other"}


def test_a_transaction_aborted_by_another_starts_again(world: Any, pair: tuple[str, str]) -> None:
    tables, rude = world.tables("writer"), world.tables("rude", patience_s=0)

    def push_in(request: Request) -> None:
        rude.insert(pair[0], [{"id": 5, "x": "rude"}])

    with world.server.faults.fault(lambda r: "/transactions/" in r.path and r.principal == "writer", push_in, times=1):
        tx = transfer(tables, pair)
    assert held(tables, pair[0]) == NEW_A | {5: "rude"}
    assert held(tables, pair[1]) == NEW_B
    assert tables.load(pair[0]).current_snapshot().summary["strandline.transaction"] == tx.id


def test_a_committed_transaction_is_finished_by_the_next_writer(world: Any, pair: tuple[str, str]) -> None:
    decided = iter([False])

    def after_the_record(request: Request) -> bool:
        nonlocal decided
        if request.principal == "writer" and "/transactions/" in request.path and request.method == "PUT":
            decided = iter(lambda: True, False)
            return False
        return request.principal == "writer" and next(decided, False)

    with world.server.faults.fault(after_the_record, refuse), pytest.raises(LakeError):
        transfer(world.tables("writer"), pair)
    other = world.tables("other")
    assert (held(other, pair[0]), held(other, pair[1])) == (OLD, OLD), "main has not moved yet"
    other.insert(pair[0], [{"id": 5, "x": "other"}])
    assert held(other, pair[0]) == NEW_A | {5: "other"}
    other.recover(pair)
    assert held(other, pair[1]) == NEW_B


def test_a_stranger_who_moves_main_meanwhile_loses_nothing(world: Any, pair: tuple[str, str]) -> None:
    def stranger(request: Request) -> None:
        rows = pa.table(
            {"id": pa.array([7], pa.int64()), "x": ["stranger"]}, schema=world.plain(pair[0]).schema().as_arrow()
        )
        world.plain(pair[0]).append(rows)

    with world.server.faults.fault(
        lambda r: "/transactions/" in r.path and r.method == "PUT", stranger, when="after", times=1
    ):
        transfer(world.tables(), pair)
    tables = world.tables("judge")
    assert held(tables, pair[0]) == NEW_A | {7: "stranger"}
    assert held(tables, pair[1]) == NEW_B


def test_two_transactions_over_the_same_tables_do_not_wait_for_each_other_for_ever(
    world: Any, pair: tuple[str, str]
) -> None:
    first, second = world.tables("first"), world.tables("second")

    def other(request: Request) -> None:
        with second.transaction() as tx:
            tx.insert(pair[1], [{"id": 6, "x": "second"}])
            tx.insert(pair[0], [{"id": 6, "x": "second"}])

    with world.server.faults.fault(lambda r: r.principal == "first" and r.action == "UpdateTable", other, times=1):
        transfer(first, pair)
    assert held(first, pair[0]) == NEW_A | {6: "second"}
    assert held(first, pair[1]) == NEW_B | {6: "second"}
