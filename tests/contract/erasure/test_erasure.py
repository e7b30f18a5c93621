"""Rows leave every file of every kept snapshot, nothing else does, and the history still verifies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from catalog.core.errors import Conflict, Denied, Invalid
from infra.local.server import ApiServer
from tests.worlds.changes import World
from tests.worlds.erasure import SECRET, erase, holders, make_erasure_world

SCHEMA = {"id": "long", "name": "string", "strandline_salt": "fixed[16]"}


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_erasure_world(server, monkeypatch)
    yield made
    made.close()


def people(*ids: int, name: str | None = None) -> list[dict[str, Any]]:
    return [{"id": id_, "name": name or f"person {id_}"} for id_ in ids]


def busy_table(world: World, mode: Any = "cow", **options: Any) -> str:
    """A table with a history: inserts, an upsert, deletes, a compaction, a tag, a schema change."""
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"], mode=mode, **options)
    tables.insert(name, people(1, 2, 3))
    world.caught_up()
    tables.insert(name, [*people(4, 5), {"id": 7, "name": SECRET}])
    world.caught_up()
    tables.snapshot(name, "then")
    tables.delete(name, "id = 2")
    tables.upsert(name, [{"id": 7, "name": SECRET + " II"}, *people(1, name="one")])
    world.caught_up()
    tables.compact(name)
    tables.alter(name, add={"note": "string"})
    tables.insert(name, people(8, 9))
    world.caught_up()
    return name


def small_table(world: World, table: str = "t") -> str:
    tables, name = world.lake.tables, world.name(table)
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, [*people(1, 5), {"id": 7, "name": SECRET}])
    tables.upsert(name, people(1, name="one"))
    world.caught_up()
    return name


def names_as_of(world: World, name: str) -> list[dict[int, str]]:
    table = world.plain(name)
    scans = [table.scan(snapshot_id=snapshot.snapshot_id) for snapshot in table.metadata.snapshots]
    return [{row["id"]: row["name"] for row in scan.to_arrow().to_pylist()} for scan in scans]


@pytest.mark.parametrize("mode", ["cow", "mor"])
def test_an_erased_row_is_in_no_version_of_any_object_and_everything_else_is_as_before(world: World, mode: Any) -> None:
    name = busy_table(world, mode)
    before, ids = names_as_of(world, name), [s.snapshot_id for s in world.plain(name).metadata.snapshots]
    assert holders(world, SECRET.encode())
    assert not world.verify().faults
    result = erase(world, name, keys=[{"id": 7}])
    assert result.unsalted == 0 and result.rows >= 2 and result.index is not None
    assert holders(world, SECRET.encode(), SECRET[:16].encode()) == []
    after = names_as_of(world, name)
    expected = [{id_: value for id_, value in rows.items() if id_ != 7} for rows in before]
    assert after[: len(expected)] == expected and after[-1] == expected[-1]
    assert [s.snapshot_id for s in world.plain(name).metadata.snapshots][: len(ids)] == ids
    report = world.verify()
    assert report.faults == ()
    assert [each.index for each in report.erased] == [result.index]
    assert "erased by leaf" in str(report.erased[0]) and report.uncounted == 0


def test_a_second_erasure_builds_on_the_first(world: World) -> None:
    name = busy_table(world)
    erase(world, name, keys=[{"id": 7}])
    result = erase(world, name, where="name = 'person 4'", reason="again")
    assert result.rows
    assert holders(world, b"person 4") == []
    report = world.verify()
    assert report.faults == () and len(report.erased) == 2
    again = erase(world, name, keys=[{"id": 7}])
    assert (again.rows, again.index) == (0, None)
    world.lake.tables.insert(name, people(10))
    world.caught_up()
    assert world.verify().faults == ()


def test_by_a_filter_every_version_of_the_matching_keys_goes(world: World) -> None:
    name = busy_table(world)
    erase(world, name, where=f"name = '{SECRET}'")
    assert holders(world, SECRET.encode()) == []
    assert world.verify().faults == ()


def test_rows_of_a_table_without_a_key_are_erased_by_a_filter(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA)
    tables.insert(name, [*people(1, 2), {"id": 7, "name": SECRET}, {"id": 7, "name": SECRET}])
    world.caught_up()
    tables.insert(name, people(3))
    erase(world, name, where="id = 7")
    assert holders(world, SECRET.encode()) == []
    assert world.verify().faults == ()


def test_an_erasure_is_refused_under_a_hold_without_a_reason_without_salts_or_with_a_clone(world: World) -> None:
    tables, name = world.lake.tables, busy_table(world)
    with pytest.raises(Invalid, match="reason"):
        erase(world, name, keys=[{"id": 7}], reason=" ")
    tables.alter(name, properties={"strandline.legal-hold": "case 12"})
    with pytest.raises(Denied, match=r"legal hold.*case 12"):
        erase(world, name, keys=[{"id": 7}])
    tables.alter(name, properties={"strandline.legal-hold": None})
    tables.clone(name, world.name("copy"))
    with pytest.raises(Conflict, match="clone"):
        erase(world, name, keys=[{"id": 7}])
    plain = world.name("plain")
    tables.create(plain, {"id": "long", "name": "string"}, key=["id"])
    tables.insert(plain, [{"id": 7, "name": SECRET}])
    with pytest.raises(Invalid, match="salt"):
        erase(world, plain, keys=[{"id": 7}])
    assert erase(world, plain, keys=[{"id": 7}], accept_guessable=True).unsalted == 1


def test_salts_are_random_kept_by_rewrites_and_never_guessed(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, people(1, 2))
    first = tables.scan(name)["strandline_salt"].to_pylist()
    assert len(set(first)) == 2 and all(len(salt) == 16 for salt in first)
    tables.delete(name, "id = 2")
    assert tables.scan(name)["strandline_salt"].to_pylist() == [first[0]]
    tables.insert(
        name, pa.table({"id": pa.array([3], pa.int64()), "strandline_salt": pa.array([b"x" * 16], pa.binary(16))})
    )
    assert b"x" * 16 in tables.scan(name)["strandline_salt"].to_pylist()
