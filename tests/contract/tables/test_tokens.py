"""Tokens outlive their snapshots: what expiry takes from the metadata is kept for as long as a key is promised."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from catalog.core.errors import LakeError
from catalog.tables import commit_tokens as remembered
from catalog.tables.committer import Receipt
from catalog.tables.manager import Tables
from infra.local.faults import refuse
from infra.local.server import ApiServer

SCHEMA = {"id": "long", "value": "string"}
FOREVER = 10**14
_DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def server() -> Any:
    server = ApiServer()
    server.start()
    yield server
    server.stop()


def rows(*ids: int, value: str = "a") -> list[dict[str, Any]]:
    return [{"id": one, "value": value} for one in ids]


WRITES: dict[str, Callable[[Tables, str], Receipt]] = {
    "insert": lambda tables, name: tables.insert(name, rows(1, 2), token="t-insert"),
    "upsert": lambda tables, name: tables.upsert(name, rows(2, 3, value="b"), token="t-upsert"),
    "delete": lambda tables, name: tables.delete(name, "id = 1", token="t-delete"),
    "nothing": lambda tables, name: tables.delete(name, "id = 99", token="t-nothing"),
}


def written(tables: Tables, name: str) -> dict[str, Receipt]:
    tables.create(name, SCHEMA, key=["id"])
    receipts = {kind: write(tables, name) for kind, write in WRITES.items()}
    tables.insert(name, rows(7))  # the newest one always stays
    return receipts


def ids(tables: Tables, name: str) -> list[int]:
    return sorted(tables.scan(name)["id"].to_pylist())


def assert_remembered(tables: Tables, name: str, first: dict[str, Receipt]) -> None:
    before = ids(tables, name)
    for kind, write in WRITES.items():
        again = write(tables, name)
        # How many rows were there before is not written down anywhere, also while the snapshot is there.
        assert again == replace(first[kind], replayed=True, matched=0), kind
    assert ids(tables, name) == before


def test_a_token_is_known_after_its_snapshot_expired_and_after_the_next_expiry(world: Any) -> None:
    tables, name = world.tables(), world.name()
    first = written(tables, name)
    assert len(tables.expire(name, older_than=FOREVER).snapshots) == 4
    assert_remembered(world.tables("another"), name, first)
    tables.insert(name, rows(8), token="later")
    tables.expire(name, older_than=FOREVER)
    assert_remembered(world.tables("third"), name, first)
    assert tables.insert(name, rows(8), token="later").replayed
    tables.insert(name, rows(9))
    tables.expire(name, older_than=FOREVER)
    assert_remembered(world.tables("fourth"), name, first)
    kept = {key for key in world.object_keys("tables/") if "expired-tokens" in key}
    assert len(kept) <= 2, "records do not pile up"


def test_a_token_is_forgotten_when_its_promise_is_over(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, name = world.tables(), world.name()
    written(tables, name)
    tables.expire(name, older_than=FOREVER)
    now = remembered.now_ms()
    monkeypatch.setattr(remembered, "now_ms", lambda: now + 9 * _DAY_MS)
    tables.insert(name, rows(10))
    tables.expire(name, older_than=FOREVER)
    assert not any("expired-tokens" in name for name in tables.load(name).properties)
    assert not tables.insert(name, rows(1, 2), token="t-insert").replayed


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_expiry_that_dies_at_any_step_forgets_no_token(world: Any, when: Any) -> None:
    for step in range(40):
        tables, name = world.tables(), world.name(f"t{step}")
        first = written(tables, name)
        with (
            world.server.faults.fault(lambda r: r.principal == "crashing", refuse, when=when, skip=step) as fault,
            suppress(LakeError),
        ):
            world.tables("crashing").expire(name, older_than=FOREVER)
        assert_remembered(world.tables("after"), name, first)
        tables.expire(name, older_than=FOREVER)
        assert_remembered(world.tables("after"), name, first)
        if not fault.hits:
            return
    raise AssertionError("it never got to its end")


def test_a_writer_pays_nothing_for_a_table_that_never_expired_and_one_request_after_that(world: Any) -> None:
    tables, name = world.tables(), world.name()
    written(tables, name)

    def asked(work: Callable[[], object]) -> list[str]:
        mark = world.server.log.mark()
        work()
        return [r.path for r in world.server.log.since(mark) if "expired-tokens" in r.path]

    assert asked(lambda: tables.insert(name, rows(20), token="x")) == []
    world.tables("janitor").expire(name, older_than=FOREVER)
    assert len(asked(lambda: tables.insert(name, rows(21), token="y"))) == 1
    assert asked(lambda: tables.insert(name, rows(22), token="z")) == []
    assert asked(lambda: tables.insert(name, rows(23))) == []


def test_a_clone_has_a_memory_of_its_own_and_a_purge_leaves_none(world: Any) -> None:
    tables, name, copy = world.tables(), world.name(), world.name("copy")
    written(tables, name)
    tables.expire(name, older_than=FOREVER)
    tables.clone(name, copy)
    assert not tables.insert(copy, rows(1), token="t-insert").replayed
    tables.drop(copy, purge=True)
    tables.drop(name, purge=True)
    assert not [key for key in world.object_keys("tables/") if "expired-tokens" in key]
