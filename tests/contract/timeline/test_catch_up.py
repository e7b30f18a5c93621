"""What happens to a table becomes leaves: each thing once, oldest first, whoever did it."""

from __future__ import annotations

from hashlib import sha256

import pytest
from pyiceberg.types import StringType

from catalog.core.errors import CONFLICT, NotFound
from catalog.core.events import AdvanceWatermark, NameIndex, PutMeta, TableMoved
from catalog.timeline.log.watermarks import Watermark
from catalog.timeline.reader.sources import StoredSource
from tests.worlds.timeline import ROWS, World


def told(world: World, table: str = "t") -> list[tuple[str, str | None, int | None]]:
    commits = world.published().commits_since(world.name(table))
    return [(leaf.operation, leaf.ref, leaf.snapshot_id) for _, leaf in commits]


def test_commits_become_leaves_oldest_first_and_only_once(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    table.append(ROWS)
    ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    sequencer = world.sequencer()
    first = sequencer.catch_up([world.name("t")])
    assert [leaf.snapshot_id for _, leaf in first.leaves] == [None, *ids]
    assert sequencer.catch_up([world.name("t")]).leaves == []
    table.append(ROWS)
    again = sequencer.catch_up([world.name("t"), world.name("t")])
    assert [(index, leaf.snapshot_id) for index, leaf in again.leaves] == [(3, table.current_snapshot().snapshot_id)]
    assert told(world) == [
        ("create", "main", None),
        *[("append", "main", snapshot.snapshot_id) for snapshot in table.metadata.snapshots],
    ]
    assert list(world.published().commits_since(world.name("t"))) == list(world.stored().commits_since(world.name("t")))


def test_moves_of_references_are_leaves(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    first = table.current_snapshot().snapshot_id
    table.append(ROWS)
    second = table.current_snapshot().snapshot_id
    sequencer = world.sequencer()
    sequencer.catch_up([world.name("t")])

    table.manage_snapshots().create_tag(first, "v1").commit()
    table.manage_snapshots().create_branch(second, "try").commit()
    table.append(ROWS, branch="try")
    tried = table.metadata.refs["try"].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    with table.update_schema() as update:
        update.add_column("note", StringType())
    sequencer.catch_up([world.name("t")])
    assert told(world)[3:] == [
        ("rollback", "main", first),
        ("append", "try", tried),
        ("tag", "v1", first),
        ("schema", "main", first),
    ]

    table.manage_snapshots().remove_tag("v1").commit()
    sequencer.catch_up([world.name("t")])
    table.transaction().set_properties(note="x").commit_transaction()
    sequencer.catch_up([world.name("t")])
    assert told(world)[7:] == [("unref", "v1", None), ("metadata", "main", first)]
    assert sequencer.catch_up([world.name("t")]).leaves == []


def test_every_move_of_main_between_two_looks_is_seen(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    first = table.current_snapshot().snapshot_id
    table.append(ROWS)
    second = table.current_snapshot().snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table.append(ROWS)
    third = table.current_snapshot().snapshot_id
    world.sequencer().catch_up([world.name("t")])
    assert told(world) == [
        ("create", "main", None),
        ("append", "main", first),
        ("append", "main", second),
        ("rollback", "main", first),
        ("append", "main", third),
    ]


def test_the_last_leaf_covers_the_metadata_file_byte_for_byte(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    world.sequencer().catch_up([world.name("t")])
    *_, (_, leaf) = world.published().commits_since(world.name("t"))
    key = table.metadata_location.removeprefix(f"s3://{world.bucket}/")
    assert leaf.metadata_sha256 == sha256(world.objects(key)[key]).hexdigest()


def test_a_dropped_table_gets_a_leaf_and_its_name_may_be_borne_again(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    old = str(table.metadata.table_uuid)
    sequencer = world.sequencer()
    sequencer.catch_up([world.name("t")])
    world.catalog().drop_table(world.name("t"))
    assert [leaf.operation for _, leaf in sequencer.catch_up([world.name("t")]).leaves] == ["drop"]
    assert sequencer.catch_up([world.name("t")]).leaves == []
    new = str(world.table().metadata.table_uuid)
    made = sequencer.catch_up([world.name("t")]).leaves
    assert [(leaf.operation, leaf.table_uuid, leaf.sequence) for _, leaf in made] == [("create", new, 0)]
    world.catalog().drop_table(world.name("t"))
    newest = str(world.table().metadata.table_uuid)
    both = sequencer.catch_up([world.name("t")]).leaves
    assert [(leaf.operation, leaf.table_uuid) for _, leaf in both] == [("drop", new), ("create", newest)]
    reader = world.stored()
    assert reader.as_of(world.name("t"), index=1).table_uuid == old
    with pytest.raises(NotFound, match="no table"):
        reader.as_of(world.name("t"), index=2)
    assert reader.as_of(world.name("t"), index=5).table_uuid == newest


def test_a_renamed_table_goes_on_under_its_new_name(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    sequencer = world.sequencer()
    sequencer.catch_up([world.name("t")])
    world.catalog().rename_table(world.name("t"), world.name("u"))
    made = sequencer.catch_up([world.name("t"), world.name("u")]).leaves
    assert [(leaf.operation, leaf.table, leaf.sequence) for _, leaf in made] == [("rename", world.name("u"), 2)]
    assert sequencer.catch_up([world.name("t"), world.name("u")]).leaves == []


def test_a_table_that_never_was_is_nothing_to_sequence(world: World) -> None:
    outcome = world.sequencer().catch_up([world.name("nowhere")])
    assert (outcome.leaves, outcome.size, outcome.failed) == ([], 0, {})


def test_one_table_that_cannot_be_sequenced_does_not_stop_the_others(world: World) -> None:
    good, bad = world.table("good"), world.table("bad")
    good.append(ROWS)
    bad.append(ROWS)
    lost = next(iter(bad.inspect.files()["file_path"].to_pylist()))
    key = lost.removeprefix(f"s3://{world.bucket}/")
    world.client("s3", "person").delete_object(Bucket=world.bucket, Key=key)
    outcome = world.sequencer().catch_up([world.name("bad"), world.name("good")])
    assert [leaf.table for _, leaf in outcome.leaves] == [world.name("good")] * 2
    assert list(outcome.failed) == [0]
    assert key in str(outcome.failed[0])


def test_a_sweep_finds_every_table_and_every_loss(world: World) -> None:
    for name in ("a", "b"):
        world.table(name).append(ROWS)
    sequencer = world.sequencer()
    mine = [leaf.table for _, leaf in sequencer.sweep().leaves if leaf.table.startswith(world.namespace)]
    assert sorted(mine) == [world.name("a")] * 2 + [world.name("b")] * 2
    world.catalog().drop_table(world.name("a"))
    swept = [(leaf.operation, leaf.table) for _, leaf in sequencer.sweep().leaves]
    assert [move for move in swept if move[1].startswith(world.namespace)] == [("drop", world.name("a"))]


def test_time_in_the_timeline_never_goes_back(world: World) -> None:
    table = world.table()
    sequencer = world.sequencer()
    sequencer.catch_up([world.name("t")])
    world.clock[0] -= 1_000_000
    table.append(ROWS)
    sequencer.catch_up([world.name("t")])
    times = [leaf.sequenced_ms for _, leaf in world.published().commits_since(world.name("t"))]
    assert times == [times[0], times[0] + 1]


@pytest.mark.parametrize("together", [True, False])
def test_a_mark_of_another_owner_is_not_moved_even_by_one_who_knows_where_it_is(world: World, together: bool) -> None:
    """The API does not see a move that waits in the queue: its own check is passed by two requests at once."""
    world.table().append(ROWS)
    sequencer, table = world.sequencer(), world.name("t")
    uuid = world.catalog().load_table(table).metadata.table_uuid
    ada, eve = "a" * 20 + "-run", "e" * 20 + "-run"

    def mark(sequence: int, expected: int | None, holder: str) -> AdvanceWatermark:
        return AdvanceWatermark(
            consumer="c", table=table, table_uuid=uuid, sequence=sequence, expected=expected, holder=holder
        )

    requests = [TableMoved(table=table), mark(0, None, ada), mark(1, 0, eve)]
    for batch in [requests] if together else [[request] for request in requests]:
        assert not sequencer.handle(batch).failed
    assert world.stored().watermark("c", table) == Watermark("c", table, str(uuid), 0, 1, ada)
    assert not sequencer.handle([mark(1, 0, "a" * 20 + "-later")]).failed
    assert world.stored().watermark("c", table) == Watermark("c", table, str(uuid), 1, 2, "a" * 20 + "-later")


def test_names_marks_and_metadata_ride_in_the_batch(world: World) -> None:
    world.table().append(ROWS)
    sequencer = world.sequencer()
    table = world.name("t")
    uuid = world.catalog().load_table(table).metadata.table_uuid

    def mark(sequence: int, expected: int | None) -> AdvanceWatermark:
        return AdvanceWatermark(
            consumer="c", table=table, table_uuid=uuid, sequence=sequence, expected=expected, holder="h"
        )

    outcome = sequencer.handle(
        [
            TableMoved(table=table),
            NameIndex(name="first", index=1),
            NameIndex(name="made", index=0),
            mark(1, None),
            mark(1, None),
            PutMeta(space="note", id="a/b", value={"x": 1}),
            NameIndex(name="future", index=99),
        ]
    )
    assert list(outcome.failed) == [6]
    again = sequencer.handle(
        [
            NameIndex(name="first", index=1),
            NameIndex(name="first", index=0),
            mark(0, None),
        ]
    )
    assert {position: error.kind for position, error in again.failed.items()} == {1: CONFLICT}
    source = world.stored().source
    assert isinstance(source, StoredSource)
    assert (source.named("first"), source.named("made")) == (1, 0)
    assert world.stored().watermark("c", table) == Watermark("c", table, str(uuid), 1, 1, "h")
    assert source.meta("note", "a/b") == b'{"x":1}'
    since = world.server.log.mark()
    sequencer.handle([PutMeta(space="note", id="a/b", value=None)])
    assert world.server.log.counts(since)["s3 PUT"] == 1
    fresh = world.stored().source
    assert isinstance(fresh, StoredSource)
    assert fresh.meta("note", "a/b") is None
    with pytest.raises(NotFound):
        fresh.named("future")
