"""What readers are told, they can check: over the database and over the published tiles alike."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.merkle import proof
from catalog.timeline.reader.timeline import Timeline
from tests.waiting import wait_until
from tests.worlds.timeline import World


def test_as_of_an_index_is_a_cut_through_all_tables(timeline: Timeline, told: dict[str, Any]) -> None:
    assert [timeline.as_of(told["a"], index=n).snapshot_id for n in range(6)] == [
        None,
        *[told["a0"]] * 4,
        told["a1"],
    ]
    with pytest.raises(NotFound):
        timeline.as_of(told["b"], index=1)
    assert timeline.as_of(told["b"], index=5).snapshot_id is not None
    with pytest.raises(NotFound, match="no index 6"):
        timeline.as_of(told["a"], index=6)


def test_as_of_a_time_is_the_last_index_sequenced_by_then(timeline: Timeline, told: dict[str, Any]) -> None:
    claim = timeline.as_of(told["a"], time_ms=told["at0"])
    assert (claim.snapshot_id, claim.index) == (told["a0"], 1)
    assert timeline.as_of(told["a"], time_ms=told["at0"] + 10**9).snapshot_id == told["a1"]
    with pytest.raises(NotFound):
        timeline.as_of(told["a"], time_ms=told["at0"] - 1)
    with pytest.raises(Invalid):
        timeline.as_of(told["a"])


def test_commits_since_is_everything_after_a_sequence(timeline: Timeline, told: dict[str, Any]) -> None:
    assert [leaf.operation for _, leaf in timeline.commits_since(told["a"])] == [
        "create",
        "append",
        "tag",
        "append",
    ]
    assert [leaf.snapshot_id for _, leaf in timeline.commits_since(told["a"], 2)] == [told["a1"]]
    assert list(timeline.commits_since(told["a"], 3)) == []
    with pytest.raises(NotFound):
        list(timeline.commits_since("no.table"))


def test_a_snapshot_is_found_by_its_id_and_proven(world: World, timeline: Timeline, told: dict[str, Any]) -> None:
    index, leaf = timeline.find(told["a1"])
    assert (index, leaf.table) == (5, told["a"])
    assert timeline.commit(index) == leaf
    shown = proof.verify(timeline.proof(index), leaf.encode(), [world.signer.verifier_key])
    assert (shown.index, shown.checkpoint.size) == (5, 6)
    assert len(timeline.proof(index)) < 2048
    with pytest.raises(NotFound):
        timeline.find(1)
    with pytest.raises(NotFound):
        timeline.proof(6)


def test_readers_write_nothing(world: World, timeline: Timeline, told: dict[str, Any]) -> None:
    mark = world.server.log.mark()
    list(timeline.commits_since(told["a"]))
    timeline.as_of(told["a"], index=3)
    world.stored().head()
    assert {request.method for request in world.server.log.since(mark)} <= {"GET", "HEAD"}


def test_a_wrong_byte_in_a_published_leaf_is_unverified_not_an_answer(world: World, told: dict[str, Any]) -> None:
    key = "timeline/tile/entries/000.p/6"
    data = bytearray(world.objects(key)[key])
    data[data.rindex(b"append") + 1] ^= 1
    world.client("s3", "person").put_object(Bucket=world.bucket, Key=key, Body=bytes(data))
    public = world.published()
    with pytest.raises(Unverified):
        public.as_of(told["a"], index=5)
    with pytest.raises(Unverified):
        public.proof(5)


def test_a_reader_follows_what_is_sequenced_later(world: World, told: dict[str, Any]) -> None:
    reader = world.stored()
    assert reader.head().checkpoint.size == 6
    world.table("c")
    world.sequencer().catch_up([world.name("c")])
    wait_until(lambda: reader.head().checkpoint.size == 7, "the seventh leaf")
