"""Two lakes that witness each other: real sequencers, each with a witness that keeps its records in its own bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from catalog.merkle.cosignature import WitnessSigner
from catalog.merkle.note import Ed25519Signer, NoteError
from catalog.merkle.policy import Policy
from catalog.timeline.log import feeder as feeder_module
from catalog.timeline.log.feeder import Feeder
from catalog.timeline.log.publisher import Publisher
from catalog.timeline.sequencer.attestation import Attestations
from catalog.timeline.sequencer.sequencer import Sequencer
from tests.worlds.timeline import ROWS, SEQUENCER, World
from tests.worlds.witness import PATIENCE_S, policy_of, witness


@dataclass
class WitnessedLake:
    """A lake, the policy by which others verify it, and a witness for its neighbour."""

    world: World
    signer: WitnessSigner
    policy_text: str = ""

    def sequencer(self) -> Sequencer:
        s3 = self.world.client("s3")
        made = Sequencer(
            self.world.place(),
            self.world.catalog(SEQUENCER),
            Publisher(s3, self.world.bucket, Feeder.parse(self.policy_text)),
            Attestations(s3, self.world.bucket),
            self.world.signer,
            self.world.ear,
            clock_ms=self.world.tick,
        )
        self.world.sequencers.append(made)
        return made

    def append(self, sequencer: Sequencer) -> int:
        """Commits to the lake's table; the size of the witnessed checkpoint that a verifier with the policy accepts."""
        self.world.table().append(ROWS)
        outcome = sequencer.catch_up([self.world.name("t")])
        assert outcome.failed == {}
        return Policy.parse(self.policy_text.encode()).check(self.note()).size

    def note(self) -> bytes:
        return Publisher(self.world.client("s3", "stranger"), self.world.bucket).published().note


Pair = tuple[WitnessedLake, WitnessedLake]


@pytest.fixture
def lakes(new_world: Callable[[], World], monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(feeder_module, "LIMIT_S", PATIENCE_S)
    made = []
    for name in ("north", "south"):
        world = new_world()
        world.signer = Ed25519Signer.generate(f"{name}.example/lake")
        made.append(WitnessedLake(world, WitnessSigner.generate(f"{name}.example/witness")))
    north, south = made
    with ExitStack() as stack:
        for lake, neighbour in ((north, south), (south, north)):
            key = lake.world.signer.verifier_key
            s3: Any = neighbour.world.client("s3", "witness")
            url = stack.enter_context(witness(neighbour.signer, [key], s3, neighbour.world.bucket))
            lake.policy_text = policy_of(key, ("neighbour", neighbour.signer.witness_key, url))
        yield north, south


def test_two_lakes_witness_each_other(lakes: Pair) -> None:
    sequencers = [lake.sequencer() for lake in lakes]
    for _ in range(3):
        before = [Publisher(lake.world.client("s3"), lake.world.bucket).published().size for lake in lakes]
        after = [lake.append(sequencer) for lake, sequencer in zip(lakes, sequencers, strict=True)]
        assert all(new > old for new, old in zip(after, before, strict=True))
    for lake, sequencer in zip(lakes, sequencers, strict=True):  # and after a cold start
        sequencer.close()
        size = lake.append(lake.sequencer())
        assert lake.world.stored().source.checkpoint(size) == lake.note()[: -len(lake.note().split(b"\n")[-2]) - 1]


def test_a_second_history_gets_no_cosignature(lakes: Pair, new_world: Callable[[], World]) -> None:
    """The operator starts over with the same key: its neighbour has seen the first history."""
    north, _ = lakes
    sequencer = north.sequencer()
    north.append(sequencer)
    north.append(sequencer)
    forked = new_world()
    forked.signer = north.world.signer
    second = WitnessedLake(forked, north.signer, north.policy_text)
    with pytest.raises(NoteError, match="missing: neighbour"):
        second.append(second.sequencer())
    assert north.append(sequencer) == Policy.parse(north.policy_text.encode()).check(north.note()).size


def test_an_idle_run_adds_the_cosignature_of_a_witness_that_was_down(
    lakes: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    north, _ = lakes
    monkeypatch.setattr(feeder_module, "RETRY_S", 0.0)
    reachable, north.policy_text = north.policy_text, north.policy_text.replace("http://127.0.0.1", "http://127.0.0.2")
    sequencer = north.sequencer()
    with pytest.raises(NoteError, match="missing: neighbour"):
        north.append(sequencer)
    sequencer.close()
    north.policy_text = reachable
    without = north.note()
    assert north.sequencer().catch_up([north.world.name("t")]).leaves == []
    assert north.note().startswith(without)
    assert Policy.parse(reachable.encode()).check(north.note()).size > 0
