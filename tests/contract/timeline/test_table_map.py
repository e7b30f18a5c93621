"""The map of tables: kept by every sequencer, whatever happened to the one before, and refused when it was changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from catalog.core.errors import Invalid, Unverified
from catalog.timeline.log import store_keys
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.store import StoreWriter
from catalog.timeline.sequencer import table_leaves
from tests.contract.timeline.test_publish import UUID, leaves
from tests.contract.timeline.test_tampering import verify
from tests.worlds.table_map import key_of, map_of, root_of
from tests.worlds.timeline import ROWS, World


def map_roots(world: World) -> list[str | None]:
    public = world.published()
    return [public.commit(index).map_root for index in range(public.head().checkpoint.size)]


def expected_roots(world: World) -> list[str | None]:
    """By the definition, from the published entries: in the last leaf of each batch, and in no other."""
    public = world.published()
    size = public.head().checkpoint.size
    records = [(index, json.loads(public.source.entry(index, size))) for index in range(size)]
    times = [record["sequenced_ms"] for _, record in records] + [None]
    return [
        root_of(map_of(records[: index + 1])).hex() if times[index] != times[index + 1] else None
        for index in range(size)
    ]


def test_each_batch_ends_with_the_map_of_all_tables_through_drops_and_renames(world: World) -> None:
    a, b = world.table("a"), world.table("b")
    a.append(ROWS)
    sequencer = world.sequencer()
    sequencer.catch_up([world.name("a")])
    b.append(ROWS)
    a.append(ROWS)
    sequencer.catch_up([world.name("b"), world.name("a")])
    world.catalog().drop_table(world.name("b"))
    world.table("b")
    sequencer.close()  # the next run reads the map from the database
    sequencer.catch_up([world.name("b")])
    world.catalog().rename_table(world.name("a"), world.name("c"))
    world.table("a").append(ROWS)  # another table under the name that became free
    second = world.sequencer()
    second.catch_up([world.name("c"), world.name("a")])
    world.catalog().drop_table(world.name("c"))
    second.catch_up([world.name("c")])
    assert map_roots(world) == expected_roots(world)
    assert verify(world).faults == ()
    first = world.published().head().checkpoint
    world.catalog().drop_table(world.name("b"))
    second.catch_up([world.name("b")])
    assert verify(world, since=world.stored().head(first.size).note).faults == ()


def test_two_tables_that_swap_their_names_are_told_apart(world: World) -> None:
    for name in ("a", "b"):
        world.table(name).append(ROWS)
    sequencer = world.sequencer()
    sequencer.catch_up([world.name("a"), world.name("b")])
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        world.catalog().rename_table(world.name(old), world.name(new))
    outcome = sequencer.catch_up([world.name("a"), world.name("b")])
    assert not outcome.failed
    assert map_roots(world) == expected_roots(world)
    assert verify(world).faults == ()


def test_a_table_waits_while_the_one_that_had_its_name_cannot_be_sequenced(world: World) -> None:
    """The old table was renamed, but its rename has no leaf: two tables of one name would be two histories."""
    world.table("a").append(ROWS)
    sequencer = world.sequencer()
    sequencer.catch_up([world.name("a")])
    renamed = world.catalog().rename_table(world.name("a"), world.name("c"))
    before = world.objects("tables/")
    renamed.append(ROWS)
    lost = {key: data for key, data in world.objects("tables/").items() if key.endswith(".parquet")}
    lost = {key: data for key, data in lost.items() if key not in before}
    s3 = world.client("s3", "person")
    for key in lost:
        s3.delete_object(Bucket=world.bucket, Key=key)
    world.table("a").append(ROWS)
    outcome = sequencer.catch_up([world.name("c"), world.name("a")])
    assert (outcome.leaves, list(outcome.failed)) == ([], [0, 1])
    assert "correct that one first" in str(outcome.failed[1])
    for key, data in lost.items():
        s3.put_object(Bucket=world.bucket, Key=key, Body=data)
    outcome = sequencer.catch_up([world.name("c"), world.name("a")])
    assert not outcome.failed
    assert map_roots(world) == expected_roots(world)
    assert verify(world).faults == ()


def test_a_reference_that_looks_like_main_is_not_sequenced(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "MAIN").commit()
    outcome = world.sequencer().catch_up([world.name("t")])
    assert outcome.leaves == [] and "'MAIN', which looks like main" in str(outcome.failed[0])
    table.manage_snapshots().remove_branch("MAIN").commit()
    assert len(world.sequencers[0].catch_up([world.name("t")]).leaves) == 2


def test_a_table_whose_leaf_no_verifier_would_accept_stops_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer's metadata may say anything. The leaf is not signed, and the tables beside it are sequenced."""
    bad, good = world.table("bad"), world.table("good")
    for table in (bad, good):
        table.append(ROWS)
    for lie in ({"committed_ms": 2**60}, {"ref": ""}, {"snapshot_id": 2**64}):
        monkeypatch.setattr(table_leaves, "build_leaf", lying(BUILD_LEAF, world.name("bad"), lie))
        outcome = world.sequencer().catch_up([world.name("bad"), world.name("good")])
        assert len(outcome.failed) == 1 and "cannot be signed" in str(outcome.failed[0])
    assert {leaf.table for leaf in published_leaves(world)} == {world.name("good")}
    monkeypatch.setattr(table_leaves, "build_leaf", BUILD_LEAF)
    assert len(world.sequencer().catch_up([world.name("bad")]).leaves) == 2


BUILD_LEAF = table_leaves.build_leaf


def lying(build: Callable[..., Leaf], table: str, lie: dict[str, Any]) -> Callable[..., Leaf]:
    return lambda name, *rest: replace(build(name, *rest), **(lie if name == table else {}))


def published_leaves(world: World) -> list[Leaf]:
    public = world.published()
    return [public.commit(index) for index in range(public.head().checkpoint.size)]


@pytest.mark.parametrize("change", ["altered", "gone"])
def test_a_sequencer_does_not_continue_from_a_map_that_was_changed(world: World, change: str) -> None:
    world.sequencer().append(leaves(0, 2))
    writer = StoreWriter.open(world.place())
    key = store_keys.table_entry(key_of("made.up"))
    value = writer.get(key)
    assert value is not None
    if change == "gone":
        writer.write([], [key])
    else:
        writer.write([(key, value.replace(b'"sequence":1', b'"sequence":0'))])
    writer.close()
    with pytest.raises(Unverified, match="map of tables"):
        world.sequencer().append(leaves(2, 1))


def test_leaves_of_two_tables_of_one_name_are_not_appended(world: World) -> None:
    sequencer = world.sequencer()
    sequencer.append(leaves(0, 2))
    other = replace(leaves(0, 1)[0], table_uuid=UUID.replace("6f", "7f"))
    with pytest.raises(Invalid, match=r"another table made\.up"):
        sequencer.append([other])
    assert len(sequencer.append(leaves(2, 1)).leaves) == 1


def test_the_second_leaf_of_one_sequence_is_a_fault(world: World) -> None:
    """With the key, in one tree: an operator who answers with one history or the other."""
    sequencer = world.sequencer()
    sequencer.append(leaves(0, 2))
    sequencer.append([replace(leaf, snapshot_id=99) for leaf in leaves(1, 1)])
    report = verify(world)
    assert {fault.index for fault in report.faults} >= {2}
    assert any("sequence is 1" in fault.what for fault in report.faults)


def test_a_leaf_with_a_doubled_key_is_a_fault_of_the_audit(world: World) -> None:
    """Two readers of one JSON text may take two values from it."""
    entry = leaves(0, 1)[0].encode()
    with pytest.raises(Unverified):
        Leaf.decode(entry.replace(b'"ref":"main"', b'"ref":"try","ref":"main"'))
