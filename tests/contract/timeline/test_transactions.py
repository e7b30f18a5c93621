"""Transactions over several tables are seen at one index: at every index all of their tables are, or none."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.changes import verify_feed
from catalog.core.errors import LakeError, Unverified
from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.sequencer.ordering import arrange
from catalog.timeline.sequencer.table_state import TableEvent, TransactionCommit
from infra.local.faults import refuse
from infra.local.server import ApiServer
from tests.worlds.changes import World, make_world

SCHEMA = {"id": "long", "x": "string"}


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def some(world: World, *names: str) -> list[str]:
    for name, mode in zip(names, ("cow", "mor", "hybrid"), strict=False):
        world.lake.tables.create(world.name(name), SCHEMA, mode=mode, key=["id"])  # type: ignore[arg-type]
        world.lake.tables.insert(world.name(name), [{"id": 1, "x": "old"}])
    return [world.name(name) for name in names]


def staged_snapshots(world: World, tables: list[str]) -> dict[str, dict[str, int]]:
    """Transaction -> table -> the snapshot that brought it there, as the tables themselves say."""
    snapshots = dict[str, dict[str, int]]()
    for name in tables:
        for snapshot in world.lake.tables.history(name):
            if identity := snapshot.summary and snapshot.summary["strandline.transaction"]:
                snapshots.setdefault(identity, {}).setdefault(name, snapshot.snapshot_id)
    return snapshots


def assert_all_or_none(world: World, tables: list[str]) -> set[str]:
    """At every index; gives the transactions that are seen at the last one."""
    timeline = world.public()
    ancestors = {
        name: {s.snapshot_id: s.parent_snapshot_id for s in world.lake.tables.load(name).metadata.snapshots}
        for name in tables
    }

    def includes(name: str, at: int | None, wanted: int) -> bool:
        while at is not None and at != wanted:
            at = ancestors[name].get(at)
        return at is not None

    seen = set[str]()
    transactions = staged_snapshots(world, tables)
    for index in range(timeline.head().checkpoint.size):
        cut = timeline.cut(tables, index=index)
        now = set[str]()
        for identity, ends in transactions.items():
            visible = {includes(name, cut.snapshots[name], end) for name, end in ends.items()}
            assert len(visible) == 1, f"transaction {identity} is torn at index {index}"
            now |= {identity} if visible == {True} else set()
        assert seen <= now, "what is seen once stays"
        seen = now
    return seen


def test_all_tables_of_a_transaction_are_seen_from_one_index_on(world: World) -> None:
    tables = some(world, "a", "b", "c")
    with world.lake.transaction() as tx:
        tx.upsert(tables[0], [{"id": 1, "x": "new"}, {"id": 3, "x": "new"}])
        tx.insert(tables[1], [{"id": 9, "x": "new"}])
        tx.delete(tables[1], "id = 1")
        tx.insert(tables[2], [{"id": 7, "x": "new"}])
    timeline = world.caught_up()
    assert assert_all_or_none(world, tables) == {tx.id}
    group = [
        (i, leaf) for name in tables for i, leaf in timeline.commits_since(name) if leaf.operation == "transaction"
    ]
    indices = sorted(i for i, _ in group)
    assert indices == list(range(indices[0], indices[0] + 3))
    by_index = dict(group)
    assert [by_index[i].content_count for i in indices] == [2, 1, 0]
    # What follows is what each said would follow.
    for at in indices:
        lines = [
            f'["{leaf.table}","{leaf.table_uuid}","{leaf.snapshot_id}"]'.encode()
            for leaf in (by_index[i] for i in indices if i > at)
        ]
        assert by_index[at].content_root == root(map(leaf_hash, lines)).hex()
    staged = [leaf for name in tables for _, leaf in timeline.commits_since(name) if leaf.ref == f"tx-{tx.id}"]
    assert len(staged) == 4 and all(leaf.is_snapshot for leaf in staged)
    # A feed has one change set for it, of all that its operations did to the table.
    feeds = {name: list(world.another().changes(name)) for name in tables}
    assert [len(feed) for feed in feeds.values()] == [2, 2, 2]
    assert [feed[-1].count for feed in feeds.values()] == [2, 2, 1]
    for name, feed in feeds.items():
        assert verify_feed(feed, world.signer.verifier_key, table=name) == feed[-1].commit.sequence
    assert world.verify().faults == ()


def test_evidence_that_shows_a_transaction_before_its_last_leaf_is_refused(world: World) -> None:
    tables = some(world, "a", "b")
    with world.lake.transaction() as tx:
        for name in tables:
            tx.insert(name, [{"id": 2, "x": "new"}])
    timeline, keys = world.caught_up(), [world.signer.verifier_key]
    index, other = (
        next(i for i, leaf in timeline.commits_since(name) if leaf.operation == "transaction") for name in tables
    )
    first, last = sorted((index, other))
    early = tables[0] if first == index else tables[1]
    right = timeline.as_of(early, index=last)
    before = timeline.as_of(early, index=first)
    assert right.snapshot_id != before.snapshot_id
    right.verify(keys, table=early, index=last)
    before.verify(keys, table=early, index=first)
    with pytest.raises(Unverified):
        replace(right, index=first).verify(keys, table=early, index=first)
    with pytest.raises(Unverified):
        replace(before, index=last).verify(keys, table=early, index=last)


def test_a_transaction_that_landed_on_one_table_waits_for_the_others(world: World) -> None:
    tables = some(world, "a", "b")
    sequencer = world.lake.sequencer
    sequencer.catch_up(tables)
    size = sequencer.catch_up([]).size
    writer, decided = world.tables("writer"), []

    def after_the_first_landing(request: Any) -> bool:
        if request.principal != "writer" or len(decided) == 2:
            return request.principal == "writer"
        if decided or ("/transactions/" in request.path and request.method == "PUT"):
            decided.append(1) if not decided or request.action == "UpdateTable" else None
        return False

    with world.server.faults.fault(after_the_first_landing, refuse), pytest.raises(LakeError):
        with writer.transaction() as tx:
            for name in tables:
                tx.insert(name, [{"id": 2, "x": "new"}])
    landed = [name for name in tables if len(world.lake.tables.load(name).metadata.refs) == 1]
    assert len(landed) == 1
    # Others go on writing to the table that has it; all that waits behind the transaction.
    world.lake.tables.insert(landed[0], [{"id": 3, "x": "later"}])
    outcome = sequencer.catch_up(tables)
    assert outcome.failed == {} and len(outcome.unfinished) == 1
    before = world.public().cut(tables, index=size - 1).snapshots
    assert world.public().cut(tables).snapshots == before
    assert sequencer.catch_up(tables).leaves == [], "waiting is done once"
    assert world.verify().faults == ()
    world.lake.tables.recover(outcome.unfinished)
    sequencer.catch_up(outcome.unfinished)  # the table that waited is looked at, too
    assert len(assert_all_or_none(world, tables)) == 1
    after = world.public().cut(tables).snapshots
    assert after == {name: world.lake.tables.history(name)[0].snapshot_id for name in tables}
    assert sequencer.catch_up(tables).leaves == []
    assert world.verify().faults == ()


def test_a_crash_before_the_decision_leaves_nothing_to_see(world: World) -> None:
    tables = some(world, "a", "b")
    world.caught_up()
    before = world.public().cut(tables).snapshots
    deaf = world.server.faults.fault(lambda r: r.principal == "writer" and "/transactions/" in r.path, refuse)
    gone = world.server.faults.fault(lambda r: r.principal == "writer" and r.action == "POST?delete", refuse)
    with deaf, gone, pytest.raises(LakeError), world.tables("writer").transaction() as tx:
        for name in tables:
            tx.insert(name, [{"id": 2, "x": "new"}])
    sequencer = world.lake.sequencer
    unfinished = sequencer.catch_up(tables).unfinished
    assert sorted(unfinished) == sorted(tables)
    assert world.public().cut(tables).snapshots == before
    world.tables("healer", patience_s=0).recover(unfinished)
    assert sequencer.catch_up(tables).unfinished == []
    assert world.public().cut(tables).snapshots == before
    assert world.verify().faults == ()


def test_what_a_gone_writer_left_is_ended_by_the_sweep_and_old_records_are_forgotten(world: World) -> None:
    tables = some(world, "a", "b")
    with world.lake.transaction() as tx:
        for name in tables:
            tx.insert(name, [{"id": 2, "x": "new"}])
    deaf = world.server.faults.fault(lambda r: r.principal == "writer" and "/transactions/" in r.path, refuse)
    with deaf, pytest.raises(LakeError), world.tables("writer").transaction() as lost:
        for name in tables:
            lost.insert(name, [{"id": 3, "x": "new"}])
    swept = world.lake.sequencer.sweep()
    now = int(time.time() * 1000)
    # No transaction is waited for any longer; nothing is a day old yet.
    for name in tables:
        assert len(world.lake.tables.load(name).metadata.refs) == 2
    impatient = world.another()
    impatient.tables = world.tables("person", patience_s=0)
    impatient.clean_up_transactions(swept, now)
    assert [list(world.lake.tables.load(name).metadata.refs) for name in tables] == [["main"]] * 2
    bucket = world.settings.bucket

    def records() -> list[str]:
        objects = world.lake.s3.list_objects_v2(Bucket=bucket, Prefix="transactions/").get("Contents", [])
        return [item["Key"] for item in objects]

    assert f"transactions/{tx.id}.json" in records()
    failed = replace(swept, unfinished=[], failed={0: LakeError("not looked at")})
    impatient.clean_up_transactions(failed, now + 2 * 24 * 3600 * 1000)
    assert f"transactions/{tx.id}.json" in records()
    impatient.clean_up_transactions(replace(swept, unfinished=[]), now + 2 * 24 * 3600 * 1000)
    assert records() == []
    world.caught_up()
    assert assert_all_or_none(world, tables) == {tx.id}


@pytest.mark.parametrize("seed", range(2))
def test_whatever_crashes_and_whenever_the_sequencer_looks_nothing_is_torn(world: World, seed: int) -> None:
    chance, tables = random.Random(seed), some(world, "a", "b", "c")
    healer = world.tables("healer", patience_s=0)
    sequencer = world.lake.sequencer
    for step in range(6):
        chosen = chance.sample(tables, chance.choice([2, 3]))
        writer = world.tables(f"writer{seed}{step}", patience_s=0.1)
        dies = world.server.faults.fault(
            lambda r, who=f"writer{seed}{step}": r.principal == who, refuse, skip=chance.choice([9, 14, 17, 20, 24, 99])
        )
        with dies:
            try:
                with writer.transaction() as tx:
                    for name in chosen:
                        tx.insert(name, [{"id": step + 10, "x": "new"}])
            except LakeError:
                pass
        if chance.random() < 0.5:
            sequencer.catch_up([chance.choice(tables)])
        if chance.random() < 0.5:
            healer.insert(chance.choice(tables), [{"id": step + 100, "x": "single"}])
        if chance.random() < 0.3:
            sequencer.catch_up(tables)
    healer.recover(tables)
    sequencer.catch_up(tables)
    assert sequencer.catch_up(tables).leaves == []
    assert assert_all_or_none(world, tables) == staged_snapshots(world, tables).keys()
    assert world.public().cut(tables).snapshots == {n: world.lake.tables.history(n)[0].snapshot_id for n in tables}
    assert world.verify().faults == ()


def line(*marks: str) -> list[TableEvent]:
    """Moves of a table: a capital letter is the landing of that transaction, anything else a plain commit."""
    return [
        TableEvent(
            "append", "main", 1, None, 0, None, transaction=TransactionCommit(mark, ()) if mark.isupper() else None
        )
        for mark in marks
    ]


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[str, list[TableEvent]], set[str]]:
    """Transactions in one order, each on some of the tables, with plain commits between; some are not complete."""
    tables = ["t1", "t2", "t3", "t4"]
    lines = {name: list[str]() for name in tables}
    for transaction in "ABCDE"[: draw(st.integers(0, 5))]:
        for name in draw(st.sets(st.sampled_from(tables), min_size=1)):
            lines[name] += ["x"] * draw(st.integers(0, 2)) + [transaction]
    for name in tables:
        lines[name] += ["x"] * draw(st.integers(0, 2))
    return {name: line(*marks) for name, marks in lines.items()}, draw(st.sets(st.sampled_from("ABCDE")))


@given(histories())
def test_the_order_keeps_each_tables_own_joins_transactions_and_holds_back_only_what_waits(given: Any) -> None:
    lines, waiting = given
    order, held = arrange(lines, waiting)
    emitted = dict.fromkeys(lines, 0)
    flat = list[tuple[str, str | None]]()
    for piece in order:
        assert piece.start == emitted[piece.table] and piece.end > piece.start
        emitted[piece.table] = piece.end
        flat += [(piece.table, m.transaction and m.transaction.id) for m in lines[piece.table][piece.start : piece.end]]
    members = {
        id_: {name for name, moves in lines.items() for m in moves if m.transaction and m.transaction.id == id_}
        for id_ in "ABCDE"
    }
    for id_, tables in members.items():
        places = [at for at, (_, transaction) in enumerate(flat) if transaction == id_]
        assert places == list(range(places[0], places[0] + len(tables))) if places else True
        assert len(places) in (0, len(tables)) and not (places and id_ in waiting)
    # What is held: transactions that wait, or that come behind one that is held in some table.
    blocked = set(waiting)
    while True:
        more = {
            m.transaction.id
            for moves in lines.values()
            for at, m in enumerate(moves)
            if m.transaction and any(b.transaction and b.transaction.id in blocked for b in moves[:at])
        }
        if more <= blocked:
            break
        blocked |= more
    for name, moves in lines.items():
        stops = [at for at, m in enumerate(moves) if m.transaction and m.transaction.id in blocked]
        assert emitted[name] == (stops[0] if stops else len(moves))
    assert held == {lines[n][emitted[n]].transaction.id for n in lines if emitted[n] < len(lines[n])}


def test_leaves_of_ordinary_commits_count_at_once() -> None:
    leaf = Leaf(
        table="t",
        table_uuid="u",
        snapshot_id=1,
        parent_id=None,
        sequence=0,
        committed_ms=0,
        sequenced_ms=0,
        operation="append",
        ref="main",
        schema_sha256=None,
        metadata_sha256=None,
        content_count=5,
    )
    assert (leaf.following, replace(leaf, operation="transaction").following) == (0, 5)


def test_leaves_of_a_transaction_that_are_not_all_there_are_a_fault(world: World) -> None:
    first = Leaf(
        table="n.t",
        table_uuid="6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d",
        snapshot_id=1,
        parent_id=None,
        sequence=0,
        committed_ms=0,
        sequenced_ms=0,
        operation="transaction",
        ref="main",
        schema_sha256=None,
        metadata_sha256=None,
        content_count=1,
    )
    other = replace(first, table="n.u", table_uuid="6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6e", content_count=0)
    world.lake.sequencer.append([first, other])
    assert world.another().verifier.verify().faults == ()
    alone = replace(first, sequence=1, snapshot_id=2, parent_id=1, content_count=3)
    world.lake.sequencer.append([alone, replace(other, sequence=1, snapshot_id=2, parent_id=1, operation="append")])
    (fault,) = world.another().verifier.verify().faults
    assert (fault.index, fault.table) == (3, "n.u")
