"""A table as of a point in time, proven: no evidence shows it other than it was, or hides a later commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import pytest

from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.merkle.note import Ed25519Signer
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.table_map import table_key
from catalog.timeline.reader import evidence as evidence_module
from catalog.timeline.reader.evidence import AsOf, Evidence, MapEvidence
from catalog.timeline.reader.timeline import Timeline
from tests.contract.timeline.test_publish import leaves
from tests.worlds.lake import ORIGIN
from tests.worlds.timeline import ROWS, World


def shown(as_of: AsOf) -> set[int]:
    return {index for index, _ in as_of.evidence.leaves}


def test_the_evidence_is_checked_with_the_key_alone_and_a_lie_is_found(
    world: World, timeline: Timeline, told: dict[str, Any]
) -> None:
    keys, a, at0 = [world.signer.verifier_key], told["a"], told["at0"]
    claim = timeline.as_of(a, time_ms=at0)
    claim.verify(keys, ORIGIN, table=a, time_ms=at0)
    assert shown(claim) == {1, 2}, "the map and the table's leaf are one, and what came next"
    later = timeline.as_of(a, index=4)
    later.verify(keys, ORIGIN, table=a, index=4, table_uuid=later.table_uuid)
    assert shown(later) == {1, 4}, "where main is, and the map with the table's last leaf"
    uuid_of_b = timeline.as_of(told["b"], index=5).table_uuid
    lies = [
        (replace(claim, snapshot_id=told["a1"]), {"table": a, "time_ms": at0}),
        (replace(claim, time_ms=at0 + 10**9), {"table": a, "time_ms": at0 + 10**9}),  # there is something later
        (replace(claim, index=5), {"table": a, "time_ms": at0}),
        (replace(claim, table=told["b"]), {"table": told["b"], "time_ms": at0}),
        (replace(claim, table_uuid=uuid_of_b), {"table": a, "time_ms": at0}),
        (replace(claim, table_uuid=None, snapshot_id=None, stated_at=None), {"table": a, "time_ms": at0}),
        (replace(later, evidence=replace(later.evidence, leaves=later.evidence.leaves[:1])), {"table": a, "index": 4}),
        (replace(later, index=5), {"table": a, "index": 5}),
        (replace(later, map=replace(later.map, value=None)), {"table": a, "index": 4}),
        (replace(later, map=replace(later.map, index=1)), {"table": a, "index": 4}),
    ]
    for lie, asked in lies:
        with pytest.raises(Unverified):
            lie.verify(keys, ORIGIN, **asked)
    with pytest.raises(Unverified):
        claim.verify([Ed25519Signer.generate(ORIGIN).verifier_key], ORIGIN, table=a, time_ms=at0)


@pytest.mark.parametrize(
    "asked", [{"table": "b", "index": 4}, {"table": "a", "index": 5}, {"table": "a", "index": 3}, {"time_ms": 1}]
)
def test_the_caller_says_what_he_asked_for(world: World, told: dict[str, Any], asked: dict[str, Any]) -> None:
    """A server that answers another question, with a proof that is right, is refused."""
    keys = [world.signer.verifier_key]
    right = world.stored().as_of(told["a"], index=4)
    asked = asked | {"table": told[asked.get("table", "a")]}
    with pytest.raises(Unverified, match="the evidence is for"):
        right.verify(keys, ORIGIN, **asked)
    with pytest.raises(Unverified, match="dropped and made again"):
        right.verify(keys, ORIGIN, table=told["a"], index=4, table_uuid="6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d")
    with pytest.raises(Invalid, match="either a time or an index"):
        right.verify(keys, ORIGIN, table=told["a"])


def claims(timeline: Timeline, tables: list[str], cuts: range) -> Iterator[AsOf]:
    """Every claim, with every map that was ever signed, and every set of leaves."""
    head = timeline.head()
    size = head.checkpoint.size
    all_leaves = [timeline.commit(index) for index in range(size)]
    evidence = [
        timeline._evidence(chosen, head)
        for chosen in chain.from_iterable(combinations(range(size), count) for count in range(1, size + 1))
    ]
    said = {(leaf.table_uuid, leaf.snapshot_id, at) for at, leaf in enumerate(all_leaves)} | {(None, None, None)}
    for table in tables:
        empty = replace(timeline.prove_as_of(table, index=0).map, index=-1, value=None)
        maps = [empty] + [
            MapEvidence(at, *timeline.source.map_proof(leaf.map_root, table_key(table), at, size))
            for at, leaf in enumerate(all_leaves)
            if leaf.map_root is not None
        ]
        for cut in cuts:
            for uuid, snapshot, stated_at in said:
                for map_ in maps:
                    yield from (AsOf(table, uuid, snapshot, cut, stated_at, None, map_, some) for some in evidence)


def test_no_choice_of_leaves_and_maps_shows_a_table_other_than_it_was(
    world: World, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every set of the six leaves, with every map, as evidence for every claim: whatever passes is what was."""
    timeline, keys = world.stored(), [world.signer.verifier_key]
    checkpoint = timeline.head().checkpoint
    monkeypatch.setattr(Evidence, "open", lambda *_: checkpoint)  # one signature for all: it takes most of the time
    decoded = {entry: Leaf.decode(entry) for entry in (timeline.source.entry(index, 6) for index in range(6))}
    monkeypatch.setattr(Leaf, "decode", decoded.__getitem__)
    tables = [told["a"], told["b"], world.name("never")]
    right = {(table, cut): timeline.prove_as_of(table, index=cut) for table in tables for cut in range(6)}
    passed = set[tuple[str, int]]()
    for claim in claims(timeline, tables, range(6)):
        with suppress(Unverified):
            claim.verify(keys, ORIGIN, table=claim.table, index=claim.index)
            true = right[claim.table, claim.index]
            facts = (claim.table_uuid, claim.snapshot_id, claim.stated_at)
            assert facts == (true.table_uuid, true.snapshot_id, true.stated_at), (claim.index, shown(claim))
            passed.add((claim.table, claim.index))
    assert passed == right.keys()


def test_a_table_that_was_quiet_for_a_long_time_is_proven_as_of_now(world: World, told: dict[str, Any]) -> None:
    """Whatever number of leaves came since: today's map has the table's last leaf."""
    world.sequencers[0].append(leaves(0, 400))
    for timeline in (world.stored(), world.published()):
        newest = timeline.head().checkpoint
        as_of = timeline.as_of(told["b"], index=405)
        as_of.verify([world.signer.verifier_key], ORIGIN, table=told["b"], index=405, checkpoint=newest)
        assert shown(as_of) == {3, 405}


def test_that_there_is_no_such_table_is_proven(world: World, timeline: Timeline, told: dict[str, Any]) -> None:
    keys, never = [world.signer.verifier_key], world.name("never")
    newest = timeline.head().checkpoint
    for index in range(6):
        absent = timeline.prove_as_of(never, index=index)
        absent.verify(keys, ORIGIN, table=never, index=index)
        assert (absent.table_uuid, absent.snapshot_id) == (None, None)
    timeline.prove_as_of(told["b"], index=1).verify(keys, ORIGIN, table=told["b"], index=1)
    before = timeline.prove_as_of(told["a"], time_ms=told["at0"] - 1)
    before.verify(keys, ORIGIN, table=told["a"], time_ms=told["at0"] - 1)
    assert (before.index, before.table_uuid) == (-1, None)
    now = world.clock[0] + 10**6
    absent = timeline.prove_as_of(never, time_ms=now)
    absent.verify(keys, ORIGIN, table=never, time_ms=now, checkpoint=newest)
    with pytest.raises(NotFound):
        timeline.as_of(never, index=3)
    there = timeline.as_of(told["b"], index=5)
    for lie in (
        replace(there, table_uuid=None, snapshot_id=None, stated_at=None),
        replace(absent, table=told["b"]),
        replace(absent, table=told["b"], time_ms=None, index=5),
    ):
        asked: dict[str, Any] = {"index": lie.index} if lie.time_ms is None else {"time_ms": lie.time_ms}
        with pytest.raises(Unverified):
            lie.verify(keys, ORIGIN, table=told["b"], checkpoint=newest, **asked)


def test_an_old_checkpoint_does_not_pass_for_the_newest(world: World, told: dict[str, Any]) -> None:
    """As of a time that is behind its last leaf, a checkpoint says nothing of the leaves that came after it."""
    keys, a, now = [world.signer.verifier_key], told["a"], world.clock[0] + 10**6
    old = world.published()
    before = old.as_of(a, time_ms=now)
    known = old.head().checkpoint
    before.verify(keys, ORIGIN, table=a, time_ms=now, checkpoint=known)
    with pytest.raises(Unverified, match="checkpoint"):
        before.verify(keys, ORIGIN, table=a, time_ms=now)
    world.catalog().load_table(a).append(ROWS)
    world.sequencers[0].catch_up([a])
    newer = world.published()
    with pytest.raises(Unverified, match="checkpoint"):
        before.verify(keys, ORIGIN, table=a, time_ms=now, checkpoint=newer.head().checkpoint)
    newer.as_of(a, time_ms=now).verify(keys, ORIGIN, table=a, time_ms=now, checkpoint=newer.head().checkpoint)


def test_a_table_that_was_dropped_and_made_again_is_told_from_the_first(world: World, told: dict[str, Any]) -> None:
    keys, b = [world.signer.verifier_key], told["b"]
    first = world.stored().as_of(b, index=5)
    world.catalog().drop_table(b)
    world.sequencers[0].catch_up([b])  # 6 drop
    world.table("b").append(ROWS)
    world.sequencers[0].catch_up([b])  # 7 create, 8 append
    timeline = world.stored()
    gone, again = timeline.prove_as_of(b, index=6), timeline.as_of(b, index=8)
    gone.verify(keys, ORIGIN, table=b, index=6)
    assert gone.table_uuid is None
    again.verify(keys, ORIGIN, table=b, index=8, table_uuid=again.table_uuid)
    assert again.table_uuid != first.table_uuid
    with pytest.raises(Unverified, match="dropped and made again"):
        again.verify(keys, ORIGIN, table=b, index=8, table_uuid=first.table_uuid)
    # The first table's last leaves, against today's checkpoint.
    leaf = timeline.commit(3)
    for stated, index in ((3, 8), (3, 6), (6, 6)):
        evidence = timeline._evidence(sorted({stated, 6, 8}), timeline.head())
        for map_ in (first.map, gone.map, again.map):
            lie = AsOf(b, leaf.table_uuid, leaf.snapshot_id, index, stated, None, map_, evidence)
            with pytest.raises(Unverified):
                lie.verify(keys, ORIGIN, table=b, index=index)


def test_a_renamed_table_is_under_its_new_name_only(world: World, told: dict[str, Any]) -> None:
    keys, c = [world.signer.verifier_key], world.name("c")
    world.catalog().rename_table(told["b"], c)
    world.sequencers[0].catch_up([told["b"], c])  # 6 rename
    for timeline in (world.stored(), world.published()):
        old, new = timeline.prove_as_of(told["b"], index=6), timeline.as_of(c, index=6)
        old.verify(keys, ORIGIN, table=told["b"], index=6)
        new.verify(keys, ORIGIN, table=c, index=6)
        assert old.table_uuid is None
        assert (new.table_uuid, new.stated_at) == (timeline.as_of(told["b"], index=5).table_uuid, 6)


def test_an_index_deep_in_a_large_batch_is_refused_with_the_one_to_use(
    world: World, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.sequencers[0].append(leaves(0, 300))  # 6 to 305
    timeline, keys = world.stored(), [world.signer.verifier_key]
    inside = timeline.as_of("made.up", index=100)
    inside.verify(keys, ORIGIN, table="made.up", index=100)
    assert shown(inside) == {*range(5, 101)}
    with pytest.raises(Invalid, match="ask for index 5, or that time"):
        timeline.as_of("made.up", index=280)
    assert timeline.as_of("made.up", index=305).snapshot_id == 300
    monkeypatch.setattr(evidence_module, "MAX_LEAVES_IN_BATCH", 10)
    with pytest.raises(Unverified, match="too far"):
        inside.verify(keys, ORIGIN, table="made.up", index=100)


def test_a_map_that_was_changed_in_the_database_is_unverified_not_an_answer(
    world: World, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = world.stored()
    monkeypatch.setattr(timeline.source, "map_nodes", lambda hashes: [b"\x02" + bytes(40)] * len(hashes))
    with pytest.raises(Unverified, match="map of tables"):
        timeline.as_of(told["a"], index=5)
