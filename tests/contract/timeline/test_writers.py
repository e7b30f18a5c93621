"""One writer: who is fenced acknowledges nothing, and a store that is away is said to be away, soon."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import pytest

from catalog.core.errors import Conflict, Unavailable, Unverified
from catalog.core.events import NameIndex
from catalog.timeline.log.publisher import CHECKPOINT_PATH
from catalog.timeline.log.store import Fenced, StoreLocation, StoreReader, StoreWriter
from infra.local.faults import refuse
from infra.local.requests import Request
from tests.worlds.timeline import ROWS, SEQUENCER, World

S3_RETRIES = 10
"""Of SlateDB's S3 client. SlateDB's own retries would multiply them without a limit: they are off."""


def test_the_fenced_sequencer_acknowledges_nothing_and_publishes_nothing(world: World) -> None:
    table = world.table()
    older, newer = world.sequencer(), world.sequencer()
    older.catch_up([world.name("t")])
    newer.catch_up([])
    table.append(ROWS)
    before = world.objects("timeline/")
    heard = len(world.ear.heard)
    with pytest.raises(Fenced):
        older.catch_up([world.name("t")])
    assert world.objects("timeline/") == before
    assert len(world.ear.heard) == heard
    assert newer.catch_up([world.name("t")]).size == 2
    # The older one opens again at its next run and is then the newer: no damage, only wasted work.
    assert older.catch_up([world.name("t")]).size == 2
    table.append(ROWS)
    with pytest.raises(Fenced):
        newer.catch_up([world.name("t")])


def test_two_sequencers_at_once_make_one_history(world: World) -> None:
    """Neither waits for the other. Whatever each of them acknowledged is in the one tree, in one place."""
    table = world.table()
    acknowledged: dict[int, tuple[int, bytes]] = {}
    both_done = threading.Barrier(2)

    def work() -> None:
        sequencer = world.sequencer()
        for _ in range(6):
            try:
                for index, leaf in sequencer.catch_up([world.name("t")]).leaves:
                    assert acknowledged.setdefault(index, (index, leaf.encode())) == (index, leaf.encode())
            except (Conflict, Unavailable):
                continue
        both_done.wait(60)
        sequencer.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        table.append(ROWS)
    for thread in threads:
        thread.join()
    world.sequencer().catch_up([world.name("t")])
    public = world.published()
    size = public.head().checkpoint.size
    assert size == 5
    assert all(public.source.entry(index, size) == data for index, data in acknowledged.values())


def test_a_sequencer_that_compacts_learns_what_another_one_appended_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction closes the database and opens it again. To go on with the head of before would fork the tree."""
    table = world.table()
    table.append(ROWS)
    compacting, other = world.sequencer(), world.sequencer()
    compacting.catch_up([world.name("t")])
    compact = StoreWriter.compact

    def interrupted(self: StoreWriter) -> StoreWriter:
        self.close()
        table.append(ROWS)
        other.catch_up([world.name("t")])
        return compact(StoreWriter.open(world.place()))

    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, "compact", interrupted)
        compacting.compact()
    table.append(ROWS)
    compacting.catch_up([world.name("t")])
    assert world.published().head().checkpoint.size == 4
    assert world.stored().consistency(3).old.checkpoint.size == 3
    assert [leaf.sequence for _, leaf in world.published().commits_since(world.name("t"))] == [0, 1, 2, 3]


def test_a_fenced_sequencer_does_not_refuse_what_it_cannot_know(world: World) -> None:
    """Another sequencer appended the index that a request names: the fenced one must not call it invalid, which would
    make the message a dead letter."""
    table = world.table()
    fenced, newer = world.sequencer(), world.sequencer()
    fenced.catch_up([world.name("t")])
    table.append(ROWS)
    index = newer.catch_up([world.name("t")]).size - 1
    request = NameIndex(name="close of day", index=index)
    with pytest.raises(Fenced):
        fenced.handle([request])
    assert not fenced.handle([request]).failed
    assert world.stored().named("close of day") == index


def test_a_publisher_that_slept_through_a_change_of_writer_does_no_harm(world: World) -> None:
    """Frozen after its flush, for longer than any time-out; it wakes when others have gone on."""
    table = world.table()
    table.append(ROWS)
    sleeper, asleep, wake = world.sequencer(), threading.Event(), threading.Event()

    def freeze(request: object) -> None:
        asleep.set()
        assert wake.wait(60)

    failed: list[Exception] = []

    def work() -> None:
        try:
            sleeper.catch_up([world.name("t")])
        except Exception as error:
            failed.append(error)

    at_checkpoint = lambda r: r.principal == SEQUENCER and r.method == "PUT" and r.touches(CHECKPOINT_PATH)  # noqa: E731
    with world.server.faults.fault(at_checkpoint, freeze, times=1):
        thread = threading.Thread(target=work)
        thread.start()
        assert asleep.wait(60)
        successor = world.sequencer()
        assert successor.catch_up([world.name("t")]).size == 2
        table.append(ROWS)
        assert successor.catch_up([world.name("t")]).size == 3
        note = world.objects(CHECKPOINT_PATH)
        wake.set()
        thread.join()
    assert failed == []  # what it had made durable is public, though by somebody else
    assert world.objects(CHECKPOINT_PATH) == note
    table.append(ROWS)
    with pytest.raises(Fenced):
        sleeper.catch_up([world.name("t")])
    assert world.published().head().checkpoint.size == 3


def test_a_missing_bucket_is_unavailable_after_one_request(world: World) -> None:
    missing = replace(world, bucket="no-such-bucket-here")
    for kind in (StoreWriter, StoreReader):
        mark = world.server.log.mark()
        with pytest.raises(Unavailable):
            kind.open(missing.place(timeout_s=10))
        assert len(world.server.log.since(mark, lambda r: r.touches(missing.bucket))) == 1


def test_a_store_that_refuses_is_unavailable_and_the_next_run_works(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    sequencer = world.sequencer(timeout_s=5)
    sequencer.catch_up([])

    def asked_by_the_run(request: Request) -> bool:
        in_background = request.method == "PUT" and request.touches("slatedb/manifest")
        return request.touches("slatedb") and not in_background

    with world.server.faults.fault(lambda r: r.principal == SEQUENCER and r.touches("slatedb"), refuse):
        for _ in range(2):
            mark = world.server.log.mark()
            with pytest.raises(Unavailable):
                sequencer.catch_up([world.name("t")])
            tries = Counter((r.method, r.path) for r in world.server.log.since(mark, asked_by_the_run))
            assert max(tries.values()) <= 1 + S3_RETRIES
    assert sequencer.catch_up([world.name("t")]).size == 2


def test_a_store_that_never_answers_is_unavailable_when_the_time_is_up(world: World) -> None:
    answer = threading.Event()
    sequencer = world.sequencer(timeout_s=1)
    sequencer.catch_up([])
    with world.server.faults.fault(lambda r: r.touches("slatedb"), lambda r: answer.wait(120)):
        with pytest.raises(Unavailable, match="within 1 s"):
            StoreWriter.open(world.place(timeout_s=1))
        answer.set()  # only now may the store answer


def test_a_database_older_than_what_was_published_is_not_written_to(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    world.sequencer().catch_up([world.name("t")])
    lost = StoreLocation.in_memory()
    with pytest.raises(Unverified, match="replaced by an older one"):
        world.sequencer(place=lost).catch_up([world.name("t")])
    assert world.published().head().checkpoint.size == 2


def test_a_checkpoint_that_this_timeline_did_not_sign_stops_the_sequencer(world: World) -> None:
    world.table().append(ROWS)
    world.sequencer().catch_up([world.name("t")])
    note = world.objects(CHECKPOINT_PATH)[CHECKPOINT_PATH]
    forged = note.replace(b"strandline.test/lake\n", b"strandline.test/fake\n", 1)
    world.client("s3", "person").put_object(Bucket=world.bucket, Key=CHECKPOINT_PATH, Body=forged)
    with pytest.raises(Unverified, match="not the one this timeline signed"):
        world.sequencer().catch_up([world.name("t")])


def test_bytes_cross_into_the_store_and_back_unchanged() -> None:
    writer = StoreWriter.open(StoreLocation.in_memory())
    values = [b"", b"\x00", bytes(range(256)) * 5000]
    writer.write([(b"k%d" % number, value) for number, value in enumerate(values)])
    assert writer.get_many([b"k0", b"k1", b"k2", b"k3"]) == [*values, None]
    assert [key for key, _ in writer.scan(b"k", b"l", descending=True, limit=2)] == [b"k2", b"k1"]
    writer.close()
