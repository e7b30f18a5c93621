"""Processing with the timeline's watermarks: at least once per change set, exactly once per move, whoever crashes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.changes import ChangeSet
from catalog.changes.processing import Processing
from catalog.errors import Conflict, Invalid, LakeError, Unavailable, Unverified
from catalog.events import MoveMark
from catalog.merkle.note import Ed25519Signer
from catalog.timeline import keys
from catalog.timeline.marks import Mark
from catalog.timeline.store import Writer
from infra.local.server import ApiServer
from tests.contract.changes_world import ORIGIN, World, make_world

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


def mark_of(world: World) -> Mark | None:
    return world.another().timeline.mark(CONSUMER, world.name())


def ids(changes: ChangeSet) -> list[int]:
    return [row["after"]["id"] for row in changes.changes.to_pylist()]


def test_each_change_set_is_processed_once_and_the_signed_mark_follows(world: World) -> None:
    seen: list[int] = []
    with world.serving():
        assert world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes))) == 3
        assert world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes))) == 0
    assert seen == [0, 1, 2]
    found = mark_of(world)
    assert found is not None and (found.sequence, found.moves, found.table) == (3, 3, world.name())
    world.lake.tables.insert(world.name(), [{"id": 9}])
    world.lake.tables.compact(world.name())
    with world.serving():
        world.caught_up()
        world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes)))
    assert seen == [0, 1, 2, 9]


def test_a_crash_between_the_function_and_the_move_runs_it_again_and_moves_once(world: World) -> None:
    seen: list[int] = []

    def crash(message: MoveMark) -> None:
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
    found = mark_of(world)
    assert found is not None and found.moves == 3


def test_a_move_whose_answer_is_late_is_reported_and_not_made_twice(world: World) -> None:
    seen: list[int] = []
    with pytest.raises(Unavailable, match="run again"):
        world.lake.process(world.name(), CONSUMER, lambda changes: seen.extend(ids(changes)), patience_s=0.1)
    world.caught_up()
    found = mark_of(world)
    assert found is not None and (found.sequence, found.moves) == (1, 1)
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
    found = mark_of(world)
    assert found is not None and (found.sequence, found.moves) == (3, 3)


def test_a_stale_move_changes_nothing_and_one_that_cannot_be_is_refused(world: World) -> None:
    uuid = world.lake.tables.load(world.name()).metadata.table_uuid

    def move(sequence: int, expected: int | None, **changed: Any) -> MoveMark:
        asked = {"consumer": CONSUMER, "table": world.name(), "table_uuid": uuid, "holder": "h"} | changed
        return MoveMark(**asked, sequence=sequence, expected=expected)

    sequencer = world.lake.sequencer
    sequencer.handle([move(1, None), move(1, None), move(2, None), move(3, 2)])
    found = mark_of(world)
    assert found is not None and (found.sequence, found.moves) == (1, 1)
    # All in one batch, each on what the one before it left.
    assert sequencer.handle([move(2, 1), move(3, 2), move(2, 1, holder="late")]).failed == {}
    found = mark_of(world)
    assert found is not None and (found.sequence, found.moves, found.holder) == (3, 3, "h")
    impossible = [move(2, 3), move(99, 3), move(3, None, table_uuid="00000000-0000-0000-0000-000000000001")]
    failed = sequencer.handle(impossible).failed
    assert {type(error) for error in failed.values()} == {Invalid} and len(failed) == 3
    assert mark_of(world) == found


def test_a_mark_that_the_timeline_did_not_sign_is_not_believed(world: World) -> None:
    world.lake.sequencer.close()
    uuid = str(world.lake.tables.load(world.name()).metadata.table_uuid)
    forger = Ed25519Signer.generate(ORIGIN)
    place = world.lake.sequencer._place
    for mark, signer in (
        (Mark(CONSUMER, world.name(), uuid, 3, 3, "h"), forger),
        (Mark("other", world.name(), uuid, 3, 3, "h"), world.signer),
    ):
        writer = Writer.open(place)
        writer.write([(keys.mark(CONSUMER, world.name()), mark.sign(signer))])
        writer.close()
        with pytest.raises(Unverified):
            mark_of(world)
        with pytest.raises(Unverified):
            world.another().process(world.name(), CONSUMER, lambda changes: None)


def test_a_table_made_anew_under_the_name_is_processed_from_its_beginning(world: World) -> None:
    with world.serving():
        assert world.lake.process(world.name(), CONSUMER, lambda changes: None) == 3
        world.lake.tables.drop(world.name())
        world.lake.tables.create(world.name(), {"id": "long"})
        world.lake.tables.insert(world.name(), [{"id": 5}])
        world.caught_up()
        assert world.lake.process(world.name(), CONSUMER, lambda changes: None) == 1
    found = mark_of(world)
    assert found is not None and (found.sequence, found.moves) == (1, 1)
