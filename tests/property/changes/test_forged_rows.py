"""No forged row proof is believed that says anything else than the honest one; a verifier with a defect is found out.

Some hundred in every run; `make forge N=1000000` gives them a fifth of its forgeries.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from catalog.changes import row_proof, state_proof
from tests.property.changes.forged_rows import FORGERIES, Rows

COUNT = int(int(os.environ.get("STRANDLINE_FORGERIES", "10000")) * 0.2 / len(FORGERIES))
SEED = int(os.environ.get("STRANDLINE_FORGERIES_SEED", "18"))


@pytest.fixture(scope="module")
def rows() -> Rows:
    return Rows()


def believed(kind: str, rows: Rows, count: int) -> int | None:
    """The number of the first forgery that is believed; None if none is."""
    chance, questions = random.Random(f"{SEED} {kind}"), list(rows.proofs)
    for number in range(count):
        asked = chance.choice(questions)
        if rows.is_believed(FORGERIES[kind](rows, chance, asked), asked):
            return number
    return None


@pytest.mark.parametrize("kind", FORGERIES)
def test_no_forgery_is_believed(kind: str, rows: Rows) -> None:
    assert believed(kind, rows, COUNT) is None


def ignore(*_: Any, **__: Any) -> None:
    """A check that was forgotten."""


DEFECTS: dict[str, tuple[str, Any, str, Any]] = {
    "the path need not lead to the root": ("places", row_proof, "verify_inclusion", ignore),
    "any point will do": ("other questions", row_proof.RowProof, "_check_point", ignore),
    "bits of keys are not compared": ("places", state_proof, "_prefix", lambda key, bits: 0),
    "a leaf of the key itself shows its absence": ("places", state_proof.Place, "_end_hash", None),
}


def own_leaf_is_another(self: Any, keys: Any, depth: int, rows: Any) -> bytes:
    if isinstance(self.end, state_proof.OtherLeaf):
        rows.update(dict.fromkeys(keys))
        return state_proof._leaf(self.end.key, self.end.commitment)
    return ORIGINAL(self, keys, depth, rows)


ORIGINAL = state_proof.Place._end_hash


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_verifier_with_a_defect_believes_one(defect: str, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, owner, name, without = DEFECTS[defect]
    monkeypatch.setattr(owner, name, without or own_leaf_is_another)
    assert believed(kind, rows, 6000) is not None
