"""The timeline's database stays small and quick to open at any age, and those who read it meanwhile notice nothing."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.credentials import ReadOnlyCredentials

from catalog.core.errors import Unverified
from catalog.timeline.log import store
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.store import COMPACT_AT, FLUSH_AFTER, StoreLocation, StoreReader, StoreWriter
from infra.local.faults import refuse
from tests.waiting import wait_until
from tests.worlds.timeline import SEQUENCER, World

UUID = "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d"
WAL, SSTS = "timeline.slatedb/wal/", "timeline.slatedb/compacted/"
OPENING = 60
"""Requests of an opening without anything to replay, with room."""


def leaf(number: int) -> Leaf:
    return Leaf(
        table="sales.orders",
        table_uuid=UUID,
        snapshot_id=number + 1,
        parent_id=number or None,
        sequence=number,
        committed_ms=1_800_000_000_000 + number,
        sequenced_ms=1_800_000_000_000,
        operation="append",
        ref="main",
        schema_sha256="a1" * 32,
        metadata_sha256="b2" * 32,
        manifest_list_sha256="c3" * 32,
        content_root="d4" * 32,
        content_count=2,
    )


def requests_of_opening(world: World) -> int:
    mark = world.server.log.mark()
    world.sequencer().append([])
    return len(world.server.log.since(mark, lambda request: request.principal == SEQUENCER))


@pytest.mark.parametrize("commits", [FLUSH_AFTER + 1, 3 * FLUSH_AFTER])
def test_an_opening_replays_few_files_however_many_commits_there_were(world: World, commits: int) -> None:
    sequencer = world.sequencer()
    for number in range(commits):
        sequencer.append([leaf(number)])
        sequencer.maintain()
    sequencer.close()
    assert requests_of_opening(world) <= OPENING + 2 * FLUSH_AFTER
    assert world.stored().head().checkpoint.size == commits


def test_a_sequencer_that_always_dies_early_leaves_no_pile_of_files_either(world: World) -> None:
    for number in range(FLUSH_AFTER + 8):
        sequencer = world.sequencer()
        sequencer.append([leaf(number)])
        sequencer.maintain(lambda: False)
        sequencer.close()
    assert requests_of_opening(world) <= OPENING + 2 * FLUSH_AFTER


def test_files_are_merged_and_garbage_is_collected_without_anybody_asking(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "GARBAGE_AGE_MS", 0)
    monkeypatch.setattr(store, "FLUSH_AFTER", 2)
    sequencer, counted = world.sequencer(), list[int]()
    for number in range(6 * COMPACT_AT):
        sequencer.append([leaf(number)])
        files = sequencer.maintain()
        counted += [] if files is None else [files]
    assert counted and max(counted) < 4 * COMPACT_AT and len(world.object_keys(WAL)) < 4 * COMPACT_AT
    mark = world.server.log.mark()
    sequencer.append([leaf(6 * COMPACT_AT)])
    sequencer.maintain(lambda: False)
    assert not [r for r in world.server.log.since(mark) if r.action == "POST?delete"], "it may not compact now"
    assert world.stored().head().checkpoint.size == 6 * COMPACT_AT + 1


def rows(number: int) -> dict[bytes, bytes]:
    return {b"k/%03d" % row: b"%d of %d " % (row, number) * 100 for row in range(100)}


def rewrite(writer: StoreWriter, number: int) -> StoreWriter:
    """Writes the same rows as several SSTs, then merges them with all that were there."""
    everything = list(rows(number).items())
    for start in range(0, 100, 20):
        writer.write(everything[start : start + 20])
        writer.flush()
    return writer.compact()


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
def test_a_reader_that_was_frozen_while_its_files_were_deleted_reads_on(
    world: World, monkeypatch: pytest.MonkeyPatch, descending: bool
) -> None:
    """Lambda freezes a process for hours. It then looks for files that are gone, which is no damage."""
    frozen, newest = _frozen_reader(world, monkeypatch)
    wanted = sorted(rows(newest).items(), reverse=descending)
    assert list(frozen.scan(b"k/", b"k0", descending=descending)) == wanted
    frozen.close()


def test_a_frozen_reader_gets_single_values_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen, newest = _frozen_reader(world, monkeypatch)
    assert frozen.get_many([b"k/007", b"k/093"]) == [rows(newest)[b"k/007"], rows(newest)[b"k/093"]]
    assert frozen.get(b"k/050") == rows(newest)[b"k/050"]
    frozen.close()


def _frozen_reader(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[StoreReader, int]:
    """A reader that has not looked for news since all of its files were replaced and deleted; the newest version."""
    monkeypatch.setattr(store, "GARBAGE_AGE_MS", 0)
    monkeypatch.setitem(store._COMPACTING, "compactor_options.checkpoint_lifetime", "1s")
    place, newest = world.place(), 0
    writer = rewrite(StoreWriter.open(place), 0)
    frozen = StoreReader.open(place, poll_ms=3_600_000)
    before = world.object_keys(SSTS)

    def replaced() -> bool:
        nonlocal writer, newest
        newest += 1
        writer = rewrite(writer, newest)
        return not before & world.object_keys(SSTS)

    wait_until(replaced, "every file of the reader to be deleted")
    writer.close()
    return frozen, newest


def test_a_file_that_is_missing_in_truth_is_still_damage(world: World) -> None:
    place = world.place()
    rewrite(StoreWriter.open(place), 0).close()
    reader = StoreReader.open(place)
    for key in world.object_keys(SSTS):
        world.client("s3").delete_object(Bucket=world.bucket, Key=key)
    with pytest.raises(Unverified):
        reader.get(b"k/050")
    with pytest.raises(Unverified):
        list(reader.scan(b"k/", b"k0"))
    reader.close()


class Refreshing:
    """Credentials as botocore refreshes them: the next ones are there before these expire."""

    def __init__(self) -> None:
        self.key = "first.keys"

    def get_frozen_credentials(self) -> Any:
        return ReadOnlyCredentials(self.key, "secret", None)


def test_a_process_outlives_its_credentials(world: World) -> None:
    """SlateDB keeps the keys that it was given: both kinds of handles are opened again with the next ones."""
    credentials = Refreshing()
    place = StoreLocation.from_settings(world.settings, credentials)
    sequencer = world.sequencer(place)
    sequencer.append([leaf(0)])
    reader = StoreReader.open(place)
    assert reader.get(b"head") is not None

    credentials.key = "next.keys"
    with world.server.faults.fault(lambda request: request.principal == "first.keys", refuse):
        sequencer.append([leaf(1)])
        assert len(list(reader.scan(b"leaf/", b"leaf0"))) == 2
    assert not place.renewed().is_outdated
    reader.close()
