"""While a table is under a legal hold, nothing that it held can be lost; each hold is in the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from catalog.core.errors import Conflict, Denied, Invalid
from infra.local.server import ApiServer
from tests.contract.erasure.test_erasure import people, small_table
from tests.worlds.changes import World
from tests.worlds.erasure import SECRET, erase, eraser, holders, make_erasure_world


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_erasure_world(server, monkeypatch)
    yield made
    made.close()


def test_under_a_hold_nothing_is_erased_expired_or_dropped_and_writes_go_on(world: World) -> None:
    tables, name = world.lake.tables, small_table(world)
    tables.hold(name, "case 12")
    location = world.plain(name).metadata_location
    later = datetime.now(UTC) + timedelta(days=1)
    refused = [
        lambda: erase(world, name, keys=[{"id": 7}]),
        lambda: tables.expire(name, older_than=later),
        lambda: tables.drop(name),
        lambda: tables.drop(name, purge=True),
    ]
    for act in refused:
        with pytest.raises(Denied, match=r"legal hold \(case 12\)"):
            act()
    assert world.plain(name).metadata_location == location
    tables.delete(name, "id = 7")
    tables.insert(name, people(9))
    assert holders(world, SECRET.encode())
    assert tables.lift_hold(name) == "case 12"
    world.caught_up()
    erase(world, name, keys=[{"id": 7}])
    assert holders(world, SECRET.encode()) == []
    tables.expire(name, older_than=later)
    tables.drop(name, purge=True)


def test_a_hold_is_set_once_listed_and_lifted_and_each_is_a_leaf(world: World) -> None:
    tables, name = world.lake.tables, small_table(world)
    before = len(list(world.caught_up().commits_since(name)))
    assert tables.holds() == {} and tables.lift_hold(name) is None
    for reason in (" ", "x" * 1001):
        with pytest.raises(Invalid, match="reason"):
            tables.hold(name, reason)
    tables.hold(name, "case 12")
    tables.hold(name, "case 12")
    with pytest.raises(Conflict, match="case 12"):
        tables.hold(name, "case 13")
    assert world.another().tables.holds() == {name: "case 12"}
    world.caught_up()
    tables.lift_hold(name)
    leaves = [leaf for _, leaf in world.caught_up().commits_since(name)]
    assert [leaf.operation for leaf in leaves[before:]] == ["metadata", "metadata"] and tables.holds() == {}


def test_a_clone_is_not_under_the_hold_of_its_source(world: World) -> None:
    tables, name = world.lake.tables, small_table(world)
    tables.hold(name, "case 12")
    tables.clone(name, world.name("copy"))
    assert world.lake.tables.holds() == {name: "case 12"}


def test_a_hold_that_is_set_during_an_erasure_stops_it(world: World) -> None:
    name = small_table(world)

    def hold(at: str) -> None:
        if at == "deleted":
            world.lake.tables.hold(name, "case 12")
        world.caught_up()

    made = eraser(world)
    made.step = hold
    with pytest.raises(Denied, match="case 12"):
        made.erase(name, keys=[{"id": 7}], reason="asked to")
    assert holders(world, SECRET.encode())


def test_a_hold_that_is_set_before_the_old_objects_are_deleted_keeps_them(world: World) -> None:
    name = small_table(world)

    def hold(at: str) -> None:
        world.caught_up()
        if at == "sequenced":
            world.lake.tables.hold(name, "case 12")
            world.caught_up()

    made = eraser(world)
    made.step = hold
    with pytest.raises(Denied, match="case 12"):
        made.erase(name, keys=[{"id": 7}], reason="asked to")
    assert holders(world, SECRET.encode())
