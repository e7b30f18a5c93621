"""Reads in a transaction: what they saw is still so when it commits, or it does not commit. With a token, once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from catalog.core.errors import Conflict, Invalid, LakeError
from catalog.tables.manager import Tables
from infra.local.faults import refuse
from infra.local.requests import Request


@pytest.fixture
def pair(world: Any) -> tuple[str, str]:
    tables = world.tables("maker")
    names = world.name("a"), world.name("b")
    for name, mode in zip(names, ("cow", "mor"), strict=True):
        tables.create(name, {"id": "long", "n": "long"}, mode=mode, key=["id"])
        tables.insert(name, [{"id": 1, "n": 0}])
    return names


def value(rows: Any) -> int:
    (row,) = rows.to_pylist()
    return int(row["n"])


def increment(tables: Tables, name: str, between: Callable[[], object] = lambda: None) -> None:
    with tables.transaction() as tx:
        before = value(tx.read(name))
        between()
        tx.upsert(name, [{"id": 1, "n": before + 1}])


def test_a_value_that_another_writer_changed_after_it_was_read_is_not_overwritten(
    world: Any, pair: tuple[str, str]
) -> None:
    tables, other = world.tables("reader"), world.tables("other")
    with pytest.raises(Conflict, match="after the transaction had read it"):
        increment(tables, pair[0], lambda: other.upsert(pair[0], [{"id": 1, "n": 10}]))
    assert value(tables.scan(pair[0])) == 10
    increment(tables, pair[0])
    assert value(tables.scan(pair[0])) == 11


def test_every_read_of_a_transaction_is_of_one_snapshot(world: Any, pair: tuple[str, str]) -> None:
    tables, other = world.tables("reader"), world.tables("other")
    tx = tables.transaction()
    assert value(tx.read(pair[0])) == 0
    other.upsert(pair[0], [{"id": 1, "n": 10}])
    assert value(tx.read(pair[0], where="id = 1", columns=["n"])) == 0
    with pytest.raises(Conflict):
        tx.commit()


def test_two_transactions_that_read_what_the_other_writes_do_not_both_commit(world: Any, pair: tuple[str, str]) -> None:
    """Write skew: each reads both tables and writes to one. Under snapshot isolation both would commit."""
    a, b = pair
    first, second = world.tables("first").transaction(), world.tables("second").transaction()
    for tx in (first, second):
        assert value(tx.read(a)) + value(tx.read(b)) == 0
    first.upsert(a, [{"id": 1, "n": 1}])
    second.upsert(b, [{"id": 1, "n": 1}])
    first.commit()
    with pytest.raises(Conflict):
        second.commit()
    tables = world.tables("reader")
    assert (value(tables.scan(a)), value(tables.scan(b))) == (1, 0)


def test_a_table_that_was_only_read_cannot_change_while_the_transaction_commits(
    world: Any, pair: tuple[str, str]
) -> None:
    """Another writer comes when everything is staged, and before the record decides. It does not wait: it aborts the
    transaction, whose next attempt finds that the table has changed."""
    a, b = pair
    tables, rude = world.tables("reader"), world.tables("rude", patience_s=0)

    def decides(request: Request) -> bool:
        return request.principal == "reader" and request.method == "PUT" and "/transactions/" in request.path

    def push_in(request: Request) -> None:
        rude.upsert(a, [{"id": 1, "n": 3}])

    with world.server.faults.fault(decides, push_in, times=1) as fault, pytest.raises(Conflict):
        with tables.transaction() as tx:
            tx.upsert(b, [{"id": 1, "n": value(tx.read(a)) + 5}])
    assert fault.hits == 1
    assert (value(tables.scan(a)), value(tables.scan(b))) == (3, 0)
    with tables.transaction() as tx:
        tx.upsert(b, [{"id": 1, "n": value(tx.read(a)) + 5}])
    assert value(tables.scan(b)) == 8
    assert [receipt.table for receipt in tx.receipts] == [b]


def test_a_transaction_that_only_reads_says_whether_its_reads_are_of_one_moment(
    world: Any, pair: tuple[str, str]
) -> None:
    tables, other = world.tables("reader"), world.tables("other")
    with tables.transaction() as tx:
        assert [value(tx.read(name)) for name in pair] == [0, 0]
    with pytest.raises(Conflict), tables.transaction() as tx:
        tx.read(pair[0])
        with other.transaction() as both:
            for name in pair:
                both.upsert(name, [{"id": 1, "n": 7}])
        tx.read(pair[1])


def test_a_read_after_a_write_to_the_table_is_refused(world: Any, pair: tuple[str, str]) -> None:
    tx = world.tables("reader").transaction()
    tx.delete(pair[0], "id = 1")
    with pytest.raises(Invalid, match="read first"):
        tx.read(pair[0])


def test_a_table_made_anew_is_not_the_one_that_was_read(world: Any, pair: tuple[str, str]) -> None:
    tables = world.tables("reader")
    with pytest.raises(Conflict), tables.transaction() as tx:
        tx.read(pair[0])
        tables.drop(pair[0])
        tables.create(pair[0], {"id": "long", "n": "long"}, key=["id"])
        tx.upsert(pair[0], [{"id": 1, "n": 1}])


def _add(tables: Tables, pair: tuple[str, str], token: str) -> Any:
    a, b = pair
    with tables.transaction(token) as tx:
        tx.insert(a, [{"id": 2, "n": 2}])
        tx.insert(b, [{"id": 2, "n": 2}, {"id": 3, "n": 3}])
        tx.delete(b, "id = 1")
    return tx


def _answer(tx: Any) -> list[tuple[Any, ...]]:
    return [(r.table, r.snapshot_id, r.sequence, r.rows, r.token) for r in tx.receipts]


def test_a_token_makes_a_transaction_once_and_the_repeat_has_its_receipts(world: Any, pair: tuple[str, str]) -> None:
    first = _add(world.tables("first"), pair, "t-1")
    again = _add(world.tables("second"), pair, "t-1")
    assert _answer(again) == _answer(first)
    assert all(receipt.replayed for receipt in again.receipts)
    for name in pair:
        world.tables("first").upsert(name, [{"id": 9, "n": 9}])
        world.tables("first").expire(name, older_than=2**53)
    assert _answer(_add(world.tables("third"), pair, "t-1")) == _answer(first)
    rows = [sorted(row["id"] for row in world.tables("third").scan(name).to_pylist()) for name in pair]
    assert rows == [[1, 2, 9], [2, 3, 9]]


def test_a_token_of_another_transaction_is_a_conflict(world: Any, pair: tuple[str, str]) -> None:
    tables = world.tables("first")
    _add(tables, pair, "t-2")
    with pytest.raises(Conflict, match="did not make"), tables.transaction("t-2") as tx:
        tx.insert(pair[0], [{"id": 5, "n": 5}])
        tx.insert(pair[0], [{"id": 6, "n": 6}])


def test_a_transaction_that_died_at_any_step_is_made_once_by_its_repeat(world: Any) -> None:
    """The writer is cut off from its n-th request on; then another process repeats the transaction."""
    repeats, step, done = world.tables("repeat", patience_s=0), 0, set()
    while True:
        names = world.name(f"a{step}"), world.name(f"b{step}")
        for name in names:
            repeats.create(name, {"id": "long", "n": "long"}, key=["id"])
            repeats.insert(name, [{"id": 1, "n": 0}])
        with world.server.faults.fault(lambda r: r.principal == "writer", refuse, skip=step) as fault:
            with suppress(LakeError):
                _add(world.tables("writer"), names, "t-3")
        tx = _add(repeats, names, "t-3")
        rows = [sorted(row["id"] for row in repeats.scan(name).to_pylist()) for name in names]
        assert rows == [[1, 2], [2, 3]], f"cut off at request {step}"
        assert [receipt.rows for receipt in tx.receipts] == [1, 2, 1]
        done.add(all(receipt.replayed for receipt in tx.receipts))
        if not fault.hits:
            break
        step += 3
    assert done == {True, False}
