"""No forgery of a feed is believed that says anything else than the honest one.

A few thousand in every run. STRANDLINE_FORGERIES=200000 tries as many as that, STRANDLINE_FORGERIES_SEED others.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest

from catalog.changes import ChangeSet, FeedVerifier, from_ipc, from_json_lines, to_json_lines
from catalog.core.errors import Unverified
from catalog.merkle import Checkpoint
from tests.property.changes.forged_bytes import keys_of, mutate_bytes, mutate_lines
from tests.property.changes.forgeries import MUTATIONS, Material, differs, forge_changes, forge_leaf, learned
from tests.worlds.forged_log import NAME, SIGNER, UUID

FORGERIES = int(os.environ.get("STRANDLINE_FORGERIES", "2000"))
SEED = int(os.environ.get("STRANDLINE_FORGERIES_SEED", "18"))
LAST = 7


class Reader:
    """Expects the table and its last commit. Has verified the honest feed; goes on from where a forged one differs."""

    def __init__(self, material: Material, kept: Checkpoint | None) -> None:
        self._honest = material.feed
        verifier = FeedVerifier([SIGNER.verifier_key], NAME, UUID, kept=kept)
        self._after = [copy(verifier)]
        for one in material.feed:
            verifier.add(one)
            self._after.append(copy(verifier))
        assert verifier.finish(LAST) == LAST

    def believes(self, feed: list[ChangeSet]) -> bool:
        """Whether it verifies; the only exception that says no is Unverified."""
        pairs = enumerate(zip(feed, self._honest, strict=False))
        same = next((at for at, (one, honest) in pairs if one is not honest), min(len(feed), len(self._honest)))
        verifier = copy(self._after[same])
        try:
            for one in feed[same:]:
                verifier.add(one)
            verifier.finish(LAST)
        except Unverified:
            return False
        return True


Attempt = tuple[str, list[ChangeSet] | None]


def from_meaning(material: Material, readers: list[Reader], chance: random.Random) -> Attempt:
    kind, forged = chance.choice(MUTATIONS), list(material.feed)
    kind(material, forged, chance)
    return kind.__name__, forged if chance.choice(readers).believes(forged) else None


def from_leaves(material: Material, readers: list[Reader], chance: random.Random) -> Attempt:
    """The forged log is the only one that this reader has seen."""
    forged = list(material.feed)
    chance.choice([forge_leaf, forge_leaf, forge_changes])(material, forged, chance)
    return "leaves", forged if readers[0].believes(forged) else None


def from_bytes(material: Material, readers: list[Reader], chance: random.Random) -> Attempt:
    at, data = mutate_bytes(material.feed, chance)
    try:
        forged = [*material.feed[:at], from_ipc(data), *material.feed[at + 1 :]]
    except Unverified:
        return "bytes", None
    return "bytes", forged if readers[0].believes(forged) else None


def from_lines(material: Material, readers: list[Reader], chance: random.Random) -> Attempt:
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


KINDS: dict[str, Callable[[Material, list[Reader], random.Random], Attempt]] = {
    "meaning": from_meaning,
    "leaves": from_leaves,
    "bytes": from_bytes,
    "lines": from_lines,
}


@pytest.mark.parametrize(("kind", "share"), [("meaning", 0.5), ("leaves", 0.1), ("bytes", 0.2), ("lines", 0.2)])
def test_no_forgery_is_believed(kind: str, share: float) -> None:
    chance = random.Random(f"{SEED} {kind}")
    material = Material(chance)
    readers = [Reader(material, None), Reader(material, material.log.checkpoint())]
    tried = Counter[str]()
    for number in range(int(FORGERIES * share)):
        name, believed = KINDS[kind](material, readers, chance)
        tried[name] += 1
        if believed is not None:
            same = learned(believed) == material.lessons if kind == "leaves" else not differs(believed, material)
            assert same, (SEED, kind, number, name)
    if kind == "meaning":
        assert set(tried) == {mutation.__name__ for mutation in MUTATIONS}


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
