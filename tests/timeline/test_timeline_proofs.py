"""What readers are told, they can check: over the database and over the published tiles alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errors import Invalid, NotFound, Unverified
from catalog.merkle import proof
from catalog.merkle.note import Ed25519Signer
from catalog.timeline.proofs import Timeline
from tests.timeline.conftest import ORIGIN, ROWS, World


@pytest.fixture
def told(world: World) -> dict[str, Any]:
    """Two tables; snapshots a0 and a1 of `a`, with `b` and a tag between: six leaves in four batches."""
    a, b, sequencer = world.table("a"), world.table("b"), world.sequencer()
    a.append(ROWS)
    a0 = a.current_snapshot().snapshot_id
    sequencer.catch_up([world.name("a")])  # 0 create, 1 append
    at0 = world.clock[0]
    b.append(ROWS)
    sequencer.catch_up([world.name("b")])  # 2 create, 3 append
    a.manage_snapshots().create_tag(a0, "v0").commit()
    sequencer.catch_up([world.name("a")])  # 4 tag
    a.append(ROWS)
    sequencer.catch_up([world.name("a")])  # 5 append
    return {
        "a": world.name("a"),
        "b": world.name("b"),
        "a0": a0,
        "a1": a.current_snapshot().snapshot_id,
        "at0": at0,
    }


@pytest.fixture(params=["stored", "published"])
def timeline(request: pytest.FixtureRequest, world: World, told: dict[str, Any]) -> Timeline:
    made: Timeline = getattr(world, request.param)()
    return made


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
    found = timeline.as_of(told["a"], time_ms=told["at0"])
    assert (found.snapshot_id, found.index) == (told["a0"], 1)
    assert timeline.as_of(told["a"], time_ms=told["at0"] + 10**9).snapshot_id == told["a1"]
    with pytest.raises(NotFound):
        timeline.as_of(told["a"], time_ms=told["at0"] - 1)
    with pytest.raises(Invalid):
        timeline.as_of(told["a"])


def test_the_evidence_is_checked_with_the_key_alone_and_a_lie_is_found(
    world: World, timeline: Timeline, told: dict[str, Any]
) -> None:
    keys = [world.signer.verifier_key]
    found = timeline.as_of(told["a"], time_ms=told["at0"])
    found.verify(keys, ORIGIN)
    later = timeline.as_of(told["a"], index=4)
    later.verify(keys, ORIGIN)
    assert {index for index, _ in later.evidence.leaves} == {1, 4, 5}, "the tag leaf and the next are shown"
    lies = [
        replace(found, snapshot_id=told["a1"]),
        replace(found, time_ms=told["at0"] + 10**9),  # there is something later
        replace(found, index=5),
        replace(found, table=told["b"]),
        replace(later, evidence=replace(later.evidence, leaves=later.evidence.leaves[:1])),
        replace(later, index=5),  # a leaf of main lies before that cut
    ]
    for lie in lies:
        with pytest.raises(Unverified):
            lie.verify(keys, ORIGIN)
    with pytest.raises(Unverified):
        found.verify([Ed25519Signer.generate(ORIGIN).verifier_key], ORIGIN)


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
    for _ in range(200):
        if reader.head().checkpoint.size == 7:
            break
        reader.source._db._wait(_pause())  # type: ignore[attr-defined]
    assert reader.head().checkpoint.size == 7


async def _pause() -> None:
    import asyncio

    await asyncio.sleep(0.05)
