"""No forgery of a feed is believed that says anything else than the honest one.

A few thousand in every run; `make forge N=1000000` tries as many as that, together with those of
tests/property/timeline/test_forged_proofs.py, and STRANDLINE_FORGERIES_SEED others. A verifier with a defect is found
out by the same forgeries.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest

from catalog.changes import ChangeSet, FeedVerifier, from_ipc, from_json_lines, to_json_lines, verifier
from catalog.core.errors import Unverified
from catalog.merkle import Checkpoint
from tests.property.changes.forged_bytes import keys_of, mutate_bytes, mutate_lines
from tests.property.changes.forgeries import MUTATIONS, Material, differs, forge_changes, forge_leaf, learned
from tests.worlds.forged_log import NAME, SIGNER, UUID

FORGERIES = int(os.environ.get("STRANDLINE_FORGERIES", "10000"))
SEED = int(os.environ.get("STRANDLINE_FORGERIES_SEED", "18"))
LAST = 7


class FeedConsumer:
    """Expects the table and its last commit. Has verified the honest feed; goes on from where a forged one differs."""

    def __init__(self, material: Material, kept: Checkpoint | None) -> None:
        self._honest = material.feed
        checking = FeedVerifier([SIGNER.verifier_key], NAME, UUID, kept=kept)
        self._after = [copy(checking)]
        for one in material.feed:
            checking.add(one)
            self._after.append(copy(checking))
        assert checking.finish(LAST) == LAST

    def believes(self, feed: list[ChangeSet]) -> bool:
        """Whether it verifies; the only exception that says no is Unverified."""
        pairs = enumerate(zip(feed, self._honest, strict=False))
        same = next((at for at, (one, honest) in pairs if one is not honest), min(len(feed), len(self._honest)))
        checking = copy(self._after[same])
        try:
            for one in feed[same:]:
                checking.add(one)
            checking.finish(LAST)
        except Unverified:
            return False
        return True


Attempt = tuple[str, list[ChangeSet] | None]


def from_meaning(material: Material, readers: list[FeedConsumer], chance: random.Random) -> Attempt:
    kind, forged = chance.choice(MUTATIONS), list(material.feed)
    kind(material, forged, chance)
    return kind.__name__, forged if chance.choice(readers).believes(forged) else None


def from_leaves(material: Material, readers: list[FeedConsumer], chance: random.Random) -> Attempt:
    """The forged log is the only one that this reader has seen."""
    forged = list(material.feed)
    chance.choice([forge_leaf, forge_leaf, forge_changes])(material, forged, chance)
    return "leaves", forged if readers[0].believes(forged) else None


def from_bytes(material: Material, readers: list[FeedConsumer], chance: random.Random) -> Attempt:
    at, data = mutate_bytes(material.feed, chance)
    try:
        forged = [*material.feed[:at], from_ipc(data), *material.feed[at + 1 :]]
    except Unverified:
        return "bytes", None
    return "bytes", forged if readers[0].believes(forged) else None


def from_lines(material: Material, readers: list[FeedConsumer], chance: random.Random) -> Attempt:
    at, lines = mutate_lines(material.feed, chance)
    try:
        forged = [*material.feed[:at], from_json_lines(lines), *material.feed[at + 1 :]]
    except Unverified:
        return "lines", None
    if not readers[0].believes(forged):
        return "lines", None
    # Who reads the lines with another program sees every key, also one that is there twice.
    assert [keys_of(line) for line in lines] == [keys_of(line) for line in to_json_lines(material.feed[at])]
    return "lines", forged


KINDS: dict[str, Callable[[Material, list[FeedConsumer], random.Random], Attempt]] = {
    "meaning": from_meaning,
    "leaves": from_leaves,
    "bytes": from_bytes,
    "lines": from_lines,
}


def first_believed(kind: str, count: int, tried: Counter[str]) -> Any:
    """The first forgery that is believed and says something else; None if there is none. Counts what was tried."""
    chance = random.Random(f"{SEED} {kind}")
    material = Material(chance)
    readers = [FeedConsumer(material, None), FeedConsumer(material, material.log.checkpoint())]
    for number in range(count):
        name, believed = KINDS[kind](material, readers, chance)
        tried[name] += 1
        if believed is not None:
            same = learned(believed) == material.lessons if kind == "leaves" else not differs(believed, material)
            if not same:
                return SEED, kind, number, name
    return None


@pytest.mark.parametrize(("kind", "share"), [("meaning", 0.1), ("leaves", 0.02), ("bytes", 0.04), ("lines", 0.04)])
def test_no_forgery_is_believed(kind: str, share: float) -> None:
    tried = Counter[str]()
    assert first_believed(kind, int(FORGERIES * share), tried) is None
    assert tried.total() == int(FORGERIES * share)
    if kind == "meaning":
        assert set(tried) == {mutation.__name__ for mutation in MUTATIONS}


def follow_anything(self: FeedVerifier, _: Any, leaf: Any, index: int, **__: Any) -> None:
    self.reached, self._index, self.name, self.table_uuid = leaf.sequence, index, leaf.table, leaf.table_uuid


DEFECTS: dict[str, tuple[str, Any, str, Any]] = {
    "a leaf need not follow the one before": ("meaning", FeedVerifier, "_add_leaf", follow_anything),
    "where main was is not compared": ("leaves", FeedVerifier, "_check_main", lambda *_: None),
    "trees need not extend each other": ("meaning", FeedVerifier, "_check_checkpoint", lambda *_: None),
    "headers are not compared with leaves": ("meaning", verifier, "_verify_claims", lambda *_: None),
    "a part passes for the whole": ("meaning", FeedVerifier, "_check_expected_part", lambda *_: None),
    "the order is not checked": ("leaves", verifier, "_verify_order", lambda *_: None),
    "updates are not checked": ("leaves", verifier, "_verify_updates", lambda *_: None),
    "roots are not computed": ("lines", verifier, "verify_root", lambda *_: None),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_verifier_with_a_defect_believes_one(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, owner, name, without = DEFECTS[defect]
    monkeypatch.setattr(owner, name, without)
    assert first_believed(kind, 600, Counter()) is not None


def test_what_the_generator_calls_different_is() -> None:
    """Most mutations change what a reader learns, so that believing one would be noticed."""
    chance = random.Random(5)
    material = Material(chance)
    unchanged = Counter[str]()
    for _ in range(600):
        forged: list[Any] = list(material.feed)
        kind = chance.choice(MUTATIONS)
        kind(material, forged, chance)
        unchanged[kind.__name__] += not differs(forged, material)
    assert sum(unchanged.values()) < 60, unchanged
