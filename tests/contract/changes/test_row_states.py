"""Each leaf states the digest of all of main's rows after it; what a writer says has no part in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from catalog.changes import (
    RowsDigest,
    StateComputer,
    changes_of,
    collapse,
    conform,
    key_digests,
    row_digests,
    verify_feed,
)
from catalog.changes.limits import Limit
from catalog.changes.row_state import StoredState
from catalog.core.errors import Unverified
from catalog.core.events import TableMoved
from catalog.core.point_in_time import SnapshotId
from catalog.merkle.prefix_map import PrefixMap
from catalog.timeline import Leaf, RowState
from catalog.timeline.log import store_keys
from infra.local.server import ApiServer
from tests.contract.changes.test_expected_table import SCHEMA, feed_of, rows
from tests.worlds.changes import World, make_world


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def digest_of(world: World, name: str) -> str:
    """The digest of the rows that a reader gets now."""
    tables = world.lake.tables
    schema = schema_to_pyarrow(tables.load(name).schema(), include_field_ids=True)
    return RowsDigest.of(conform(tables.scan(name), schema)).hex


def leaves_of(world: World, name: str) -> list[Leaf]:
    return [leaf for _, leaf in world.caught_up().commits_since(name)]


def last(world: World, name: str) -> Leaf:
    return leaves_of(world, name)[-1]


def unreadable(*_: Any, **__: Any) -> None:
    return None


@pytest.mark.parametrize("mode", ["cow", "mor"])
def test_each_leaf_has_the_digest_of_the_rows_after_it(world: World, mode: str) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, mode=mode, key=["id"])
    assert last(world, name).state_digest == RowsDigest().hex == digest_of(world, name)
    stated = list[str | None]()
    for write in (
        lambda: tables.insert(name, rows(*range(20))),
        lambda: tables.upsert(name, rows(3, 21, v="new")),
        lambda: tables.delete(name, "id < 2"),
        lambda: tables.insert(name, rows(50)),
        lambda: tables.compact(name),
    ):
        write()
        leaf = last(world, name)
        assert (leaf.state_digest, leaf.state_missing) == (digest_of(world, name), None)
        stated.append(leaf.state_digest)
    assert last(world, name).operation == "replace"
    assert stated[-1] == stated[-2], "a compaction changes no row"
    tables.rollback(name, SnapshotId(tables.history(name)[-1].snapshot_id))
    assert last(world, name).state_digest == stated[0]
    tables.clone(name, copy := world.name("copy"))
    assert last(world, copy).state_digest == stated[0]
    tables.delete(name, "true")
    assert last(world, name).state_digest == RowsDigest().hex
    report = world.verify().check()
    leaves = [leaf for each in (name, copy) for leaf in leaves_of(world, each)]
    assert report.states == sum(leaf.states_rows for leaf in leaves)
    assert {leaf.state_digest for leaf in leaves if not leaf.states_rows} == {None}, "the tag of the clone"
    assert verify_feed(feed_of(world, name), world.signer.verifier_key, table=name) is not None


def test_many_commits_that_are_sequenced_at_once_have_the_states_of_one_by_one(world: World) -> None:
    tables, name, copy = world.lake.tables, world.name(), world.name("copy")
    for table in (name, copy):
        tables.create(table, SCHEMA, key=["id"])
    for number in range(11):
        tables.insert(name, rows(number))
        tables.insert(copy, rows(number))
        last(world, copy)
    one_by_one = [leaf.state_digest for leaf in leaves_of(world, copy)]
    tables.insert(name, rows(11))
    at_once = [leaf.state_digest for leaf in leaves_of(world, name)]
    assert at_once[: len(one_by_one)] == one_by_one and len(set(at_once)) == 13
    assert at_once[-1] == digest_of(world, name)


def test_a_table_without_a_key_may_have_equal_rows(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA)
    tables.insert(name, rows(1, 1, 1))
    tables.insert(name, rows(1, 2))
    leaf = last(world, name)
    assert leaf.state_digest == digest_of(world, name)
    assert leaf.state_root is None


def test_a_new_column_keeps_the_digest_and_a_dropped_one_is_counted_anew(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, rows(1, 2, 3))
    before = last(world, name)
    with tables.load(name).update_schema() as update:
        update.rename_column("v", "text")
    world.lake.request(TableMoved(table=name))
    renamed = last(world, name)
    assert renamed.operation == "schema" and renamed.state_digest == before.state_digest
    with tables.load(name).update_schema() as update:
        update.delete_column("text")
    world.lake.request(TableMoved(table=name))
    dropped = last(world, name)
    assert dropped.operation == "schema"
    assert dropped.state_digest == digest_of(world, name) != before.state_digest
    tables.insert(name, [{"id": 4}])
    assert last(world, name).state_digest == digest_of(world, name)
    assert verify_feed(feed_of(world, name), world.signer.verifier_key, table=name) is not None
    assert world.verify().faults == ()


def test_commits_over_the_limit_of_changes_are_counted_from_all_rows(world: World) -> None:
    world.lake.sequencer._compute_changes = partial(changes_of, limit=Limit(2, 1 << 20), with_records=True)
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, rows(*range(5)))
    leaf = last(world, name)
    assert (leaf.attested, leaf.state_digest) == ("writer", digest_of(world, name))


def test_a_table_over_the_limit_has_no_digest_and_its_leaf_says_why(world: World) -> None:
    world.lake.sequencer._compute_changes = partial(changes_of, limit=Limit(2, 1 << 20), with_records=True)
    world.lake.sequencer._compute_state = StateComputer(Limit(3, 1 << 20))
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, rows(*range(5)))
    tables.insert(name, rows(5))
    stated = [(leaf.state_digest, leaf.state_missing) for leaf in leaves_of(world, name)]
    assert stated == [(RowsDigest().hex, None), (None, "size"), (None, "size")]
    tables.delete(name, "id > 1")
    assert last(world, name).state_digest == digest_of(world, name), "it is small enough again"
    assert world.verify().faults == (), "a state that is not there is no fault"


def test_rows_that_cannot_be_read_have_no_digest(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, rows(1))
    world.caught_up()
    world.lake.sequencer._compute_changes = unreadable  # type: ignore[assignment]
    file = next(iter(tables.load(name).inspect.files().column("file_path").to_pylist()))
    tables.insert(name, rows(2))
    world.lake.s3.delete_object(Bucket=world.settings.bucket, Key=file.partition(f"{world.settings.bucket}/")[2])
    leaf = last(world, name)
    assert (leaf.state_digest, leaf.state_missing) == (None, "unreadable")


class LyingRoot(StateComputer):
    """A sequencer whose operator states another map of the rows."""

    def __call__(self, table: Table, *arguments: Any) -> RowState:
        return replace(super().__call__(table, *arguments), root="ab" * 32)


def test_a_signed_map_that_the_rows_do_not_give_is_found(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    world.caught_up()
    world.lake.sequencer._compute_state = LyingRoot()
    tables.insert(name, rows(3))
    world.caught_up()
    faults = [(fault.index, fault.what) for fault in world.verify().faults]
    assert faults == [(1, "its state_root is not that of the table's rows")]


class Lying(StateComputer):
    """A sequencer whose operator states other rows than the table has."""

    def __call__(self, table: Table, *arguments: Any) -> RowState:
        right = super().__call__(table, *arguments)
        return replace(right, digest=RowsDigest.of_digests(_NOTHING).hex)


_NOTHING: Any = __import__("numpy").zeros((7, 32), "u1")


def test_the_state_root_is_that_of_the_map_of_the_rows_and_follows_the_key(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    for write in (
        lambda: tables.insert(name, rows(*range(300))),
        lambda: tables.upsert(name, rows(3, 400, v="new")),
        lambda: tables.delete(name, "id < 2"),
    ):
        write()
        last(world, name)
    tables.insert(name, rows(500))
    tables.compact(name)
    leaves = leaves_of(world, name)
    assert leaves[-1].operation == "replace"
    roots = [leaf.state_root for leaf in leaves]
    assert None not in roots and len(set(roots)) == len(roots) - 1 and roots[-1] == roots[-2]
    state = StoredState.decode(world.lake._reader.get(store_keys.rows(leaves[0].table_uuid)) or b"")
    schema = schema_to_pyarrow(tables.load(name).schema(), include_field_ids=True)
    found = conform(tables.scan(name), schema)
    values = {
        key.tobytes(): sha256(state.secret + key.tobytes() + row.tobytes()).digest() + row.tobytes()
        for key, row in zip(key_digests(found, ["id"]), row_digests(found), strict=True)
    }
    description = b'{"columns":[[1,"id"],[2,"v"]],"format":"strandline/state@v1","key":[[1,"long"]]}'
    expected = sha256(b"\x04" + sha256(description).digest() + PrefixMap(values).root).hexdigest()
    assert roots[-1] == expected
    assert world.verify().faults == ()


def test_a_key_that_two_rows_have_is_said_so_until_one_of_them_is_gone(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, rows(1, 2))
    tables.insert(name, rows(1, v="again"))
    tables.insert(name, rows(3))
    *_, twice, still = leaves_of(world, name)
    assert {(leaf.state_root, leaf.state_missing) for leaf in (twice, still)} == {(None, "duplicate-key")}
    assert still.state_digest == digest_of(world, name)
    tables.delete(name, "v = 'again'")
    leaf = last(world, name)
    assert (leaf.state_root is None, leaf.state_missing) == (False, None)
    assert world.verify().faults == ()


def test_a_table_over_the_size_of_maps_has_none_and_a_property_decides(world: World) -> None:
    world.lake.sequencer._compute_state = StateComputer(map_rows=2)
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, rows(1, 2, 3))
    leaf = last(world, name)
    assert (leaf.state_root, leaf.state_missing) == (None, "size") and leaf.state_digest == digest_of(world, name)
    for value, missing in (("10", None), ("off", "off"), ("3", None)):
        with tables.load(name).transaction() as change:
            change.set_properties({"strandline.state-map": value})
        world.lake.request(TableMoved(table=name))
        leaf = last(world, name)
        assert (leaf.operation, leaf.state_missing, leaf.state_root is None) == ("metadata", missing, bool(missing))


def test_another_key_is_another_map(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, rows(1, 2))
    before = last(world, name)
    with tables.load(name).update_schema(allow_incompatible_changes=True) as update:
        update.update_column("v", required=True)
    with tables.load(name).update_schema() as update:
        update.set_identifier_fields("v", "id")
    world.lake.request(TableMoved(table=name))
    after = last(world, name)
    assert after.operation == "schema" and after.state_digest == before.state_digest
    assert None not in (before.state_root, after.state_root) and before.state_root != after.state_root
    tables.insert(name, rows(1, v="y"))
    assert last(world, name).state_missing is None, "(id, v) is unique"
    assert world.verify().faults == ()


def test_a_signed_state_that_the_rows_do_not_have_is_found(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, rows(1, 2))
    world.caught_up()
    world.lake.sequencer._compute_state = Lying()
    tables.insert(name, rows(3))
    leaf = last(world, name)
    feed = feed_of(world, name)
    assert len(collapse(feed)) == 3
    with pytest.raises(Unverified, match="state_digest is not that of the rows before it and its changes"):
        verify_feed(feed, world.signer.verifier_key, table=name)
    assert verify_feed(feed[1:], world.signer.verifier_key, table=name, since=leaf.sequence - 1) == leaf.sequence
    faults = [(fault.index, fault.what) for fault in world.verify().faults]
    assert faults == [(2, "its state_digest is not that of the table's rows")]
