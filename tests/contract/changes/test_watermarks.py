"""Processing with the timeline's watermarks: at least once per change set, exactly once per move, whoever crashes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.changes import ChangeSet
from catalog.changes.processing import Processing
from catalog.core.errors import Conflict, Invalid, LakeError, Unavailable, Unverified
from catalog.core.events import AdvanceWatermark
from catalog.merkle.note import Ed25519Signer
from catalog.timeline.log import store_keys
from catalog.timeline.log.store import StoreLocation, StoreWriter
from catalog.timeline.log.watermarks import Watermark
from infra.local.server import ApiServer
from tests.worlds.changes import World, make_world
from tests.worlds.lake import ORIGIN

CONSUMER = "gold"


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    made.lake.tables.create(made.name(), {"id": "long"}, key=["id"])
    for number in range(3):
        made.lake.tables.insert(made.name(), [{"id": number}])
    made.caught_up()
    yield made
    made.close()


def mark_of(world: World) -> Watermark | None:
    return world.another().timeline.watermark(CONSUMER, world.name())


def ids(changes: ChangeSet) -> list[int]:
    return [row["after"]["id"] for row in changes.changes.to_pylist()]


def test_each_change_set_is_processed_once_and_the_signed_mark_follows(world: World) -> None:
    seen: list[int] = []
    with world.serving():
        assert world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes))) == 3
        assert world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes))) == 0
    assert seen == [0, 1, 2]
    watermark = mark_of(world)
    assert watermark is not None and (watermark.sequence, watermark.moves, watermark.table) == (3, 3, world.name())
    world.lake.tables.insert(world.name(), [{"id": 9}])
    world.lake.tables.compact(world.name())
    world.caught_up()
    with world.serving():
        world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes)))
    assert seen == [0, 1, 2, 9]


def test_a_crash_between_the_function_and_the_move_runs_it_again_and_moves_once(world: World) -> None:
    seen: list[int] = []

    def crash(message: AdvanceWatermark) -> None:
        raise KeyboardInterrupt

    table = world.lake.tables.load(world.name())
    with pytest.raises(KeyboardInterrupt):
        Processing(world.another().timeline, crash).run(table, CONSUMER, lambda changes: seen.extend(ids(changes)))
    assert mark_of(world) is None

    def fail(changes: ChangeSet) -> None:
        seen.extend(ids(changes))
        if 1 in ids(changes):
            raise ZeroDivisionError

    with world.serving():
        with pytest.raises(ZeroDivisionError):
            world.lake.process(world.name(), CONSUMER, fail)
        assert world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes))) == 2
    assert seen == [0, 0, 1, 1, 2]
    watermark = mark_of(world)
    assert watermark is not None and watermark.moves == 3


def test_a_move_whose_answer_is_late_is_reported_and_not_made_twice(world: World) -> None:
    seen: list[int] = []
    with pytest.raises(Unavailable, match="run again"):
        world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes)), patience_s=0.1)
    world.caught_up()
    watermark = mark_of(world)
    assert watermark is not None and (watermark.sequence, watermark.moves) == (1, 1)
    with world.serving():
        world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes)))
    assert seen == [0, 1, 2]


def test_of_two_runs_of_one_consumer_each_move_is_made_by_one(world: World) -> None:
    both, outcomes = threading.Barrier(2), list[Any]()

    def run() -> None:
        met = False

        def fn(changes: ChangeSet) -> None:
            nonlocal met
            if not met:  # both have read the same mark, and have their change set before them
                met = True
                both.wait(60)

        try:
            outcomes.append(world.another().process(world.name(), CONSUMER, fn))
        except LakeError as error:
            outcomes.append(error)

    with world.serving():
        runs = [threading.Thread(target=run) for _ in range(2)]
        for one in runs:
            one.start()
        for one in runs:
            one.join()
    lost = [outcome for outcome in outcomes if isinstance(outcome, LakeError)]
    assert [type(error) for error in lost] == [Conflict] and 3 in outcomes
    watermark = mark_of(world)
    assert watermark is not None and (watermark.sequence, watermark.moves) == (3, 3)


def test_a_stale_move_changes_nothing_and_one_that_cannot_be_is_refused(world: World) -> None:
    uuid = world.lake.tables.load(world.name()).metadata.table_uuid

    def move(sequence: int, expected: int | None, **changed: Any) -> AdvanceWatermark:
        asked = {"consumer": CONSUMER, "table": world.name(), "table_uuid": uuid, "holder": "h"} | changed
        return AdvanceWatermark(**asked, sequence=sequence, expected=expected)

    sequencer = world.lake.sequencer
    sequencer.handle([move(1, None), move(1, None), move(2, None), move(3, 2)])
    watermark = mark_of(world)
    assert watermark is not None and (watermark.sequence, watermark.moves) == (1, 1)
    # All in one batch, each on what the one before it left.
    assert sequencer.handle([move(2, 1), move(3, 2), move(2, 1, holder="late")]).failed == {}
    watermark = mark_of(world)
    assert watermark is not None and (watermark.sequence, watermark.moves, watermark.holder) == (3, 3, "h")
    impossible = [move(2, 3), move(99, 3), move(3, None, table_uuid="00000000-0000-0000-0000-000000000001")]
    failed = sequencer.handle(impossible).failed
    assert {type(error) for error in failed.values()} == {Invalid} and len(failed) == 3
    assert mark_of(world) == watermark


def test_a_mark_that_the_timeline_did_not_sign_is_not_believed(world: World) -> None:
    world.lake.sequencer.close()
    uuid = str(world.lake.tables.load(world.name()).metadata.table_uuid)
    forger = Ed25519Signer.generate(ORIGIN)
    location = StoreLocation.from_settings(world.settings)
    for mark, signer in (
        (Watermark(CONSUMER, world.name(), uuid, 3, 3, "h"), forger),
        (Watermark("other", world.name(), uuid, 3, 3, "h"), world.signer),
    ):
        writer = StoreWriter.open(location)
        writer.write([(store_keys.watermark(CONSUMER, world.name()), mark.sign(signer))])
        writer.close()
        with pytest.raises(Unverified):
            mark_of(world)
        with pytest.raises(Unverified):
            world.another().process(world.name(), CONSUMER, lambda changes: None)


def test_a_table_made_anew_under_the_name_is_processed_from_its_beginning_by_who_asks_for_it(world: World) -> None:
    seen: list[int] = []
    held: list[Watermark] = []
    with world.serving():
        assert world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes))) == 3
    world.lake.tables.drop(world.name())
    world.lake.tables.create(world.name(), {"id": "long"})
    world.lake.tables.insert(world.name(), [{"id": 5}])
    world.caught_up()
    with world.serving():
        with pytest.raises(Conflict, match="made anew"):
            world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes)))
        assert seen == [0, 1, 2]
        lake = world.lake
        assert lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes)), reset=held.append) == 1
    assert seen == [0, 1, 2, 5] and [watermark.sequence for watermark in held] == [3]
    watermark = mark_of(world)
    assert watermark is not None and (watermark.sequence, watermark.moves) == (1, 1)
    assert watermark.table_uuid != held[0].table_uuid


def test_the_function_sees_only_what_verifies(world: World) -> None:
    """The operator's key is not the one that the consumer pinned."""
    stranger = Ed25519Signer.generate(ORIGIN).verifier_key
    with world.serving():
        with pytest.raises(Unverified, match="not signed by a known key"):
            world.lake.process(world.name(), CONSUMER, lambda changes: pytest.fail("it ran"), keys=[stranger])
        assert world.lake.process(world.name(), CONSUMER, lambda _: None, keys=[world.signer.verifier_key]) == 3


def test_a_watermark_that_goes_back_is_not_believed(world: World) -> None:
    with world.serving():
        assert world.lake.process(world.name(), CONSUMER, lambda changes: None) == 3
    seen = mark_of(world)
    assert seen is not None
    timeline = world.another().timeline
    assert timeline.watermark(CONSUMER, world.name(), seen) == seen
    world.lake.sequencer.close()
    writer = StoreWriter.open(StoreLocation.from_settings(world.settings))
    old = Watermark(CONSUMER, world.name(), seen.table_uuid, 1, 1, "h").sign(world.signer)
    writer.write([(store_keys.watermark(CONSUMER, world.name()), old)])
    writer.close()
    lake = world.another()
    assert lake.timeline.watermark(CONSUMER, world.name()) is not None
    with pytest.raises(Unverified, match="shown again"):
        lake.timeline.watermark(CONSUMER, world.name(), seen)
    table = lake.tables.load(world.name())
    with pytest.raises(Unverified, match="shown again"):
        Processing(lake.timeline, lambda _: None).run(table, CONSUMER, lambda _: pytest.fail("it ran"), seen=seen)
