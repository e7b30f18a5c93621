"""No forged proof about the timeline is believed, and a verifier with a defect is found out by the same forgeries.

A few thousand in every run; `make forge N=1000000` tries as many as that, together with those of
tests/property/changes/test_forgeries.py, and STRANDLINE_FORGERIES_SEED others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from catalog.merkle import map_verify, policy
from catalog.timeline.reader import evidence
from catalog.timeline.verify import objects, statistics
from tests.property.timeline import forged_proofs
from tests.property.timeline.forged_proofs import KINDS, Timeline

FORGERIES = int(os.environ.get("STRANDLINE_FORGERIES", "10000"))
SEED = int(os.environ.get("STRANDLINE_FORGERIES_SEED", "18"))


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return Timeline()


def believed(kind: str, timeline: Timeline, count: int) -> int | None:
    """The number of the first forgery that is believed; None if none is."""
    chance = random.Random(f"{SEED} {kind}")
    attempt = KINDS[kind][0]
    return next((number for number in range(count) if attempt(timeline, chance)), None)


@pytest.mark.parametrize("kind", KINDS)
def test_no_forgery_is_believed(kind: str, timeline: Timeline) -> None:
    assert believed(kind, timeline, int(FORGERIES * KINDS[kind][1])) is None


def ignore(*_: Any, **__: Any) -> None:
    """A check that was forgotten."""


DEFECTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "the map's path is not compared": ("maps", lambda patch: patch.setattr(map_verify, "_climb", ignore)),
    "an absence is not checked": ("maps", lambda patch: patch.setattr(evidence, "verify_absence", ignore)),
    "the cut is not checked": ("as-of parts", lambda patch: patch.setattr(evidence.AsOf, "_check_cut", ignore)),
    "the claim is not compared": ("as-of values", lambda patch: patch.setattr(evidence.AsOf, "_check_claims", ignore)),
    "leaves are not proven": ("as-of histories", lambda patch: patch.setattr(evidence, "verify_batch", ignore)),
    "inclusion is not proven": (
        "proof files",
        lambda patch: patch.setattr(forged_proofs.proof_file, "verify_inclusion", ignore),
    ),
    "one witness is enough": (
        "cosignatures",
        lambda patch: patch.setattr(policy.Policy, "_is_witnessed", lambda self, name, cosigned: bool(cosigned)),
    ),
    "objects are not compared": (
        "attestations",
        lambda patch: patch.setattr(objects.Attestation, "content_root", forged_proofs.ATTESTED.content_root),
    ),
    "bounds are not compared": ("statistics", lambda patch: patch.setattr(statistics, "_is_bound", lambda *_: True)),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_verifier_with_a_defect_believes_one(
    defect: str, timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, seed_defect = DEFECTS[defect]
    seed_defect(monkeypatch)
    assert believed(kind, timeline, 3000) is not None
