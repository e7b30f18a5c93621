"""With the key, a map can be signed that its leaves do not give. The leaves, which are shown, contradict it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.errors import Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.prefix_map import PrefixMap
from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.reader.evidence import AsOf, Evidence, MapEvidence
from tests.unit.timeline.test_replay import A, leaf
from tests.worlds.table_map import key_of, value_of

SIGNER = Ed25519Signer.generate("strandline.test/lies")
TABLE = "sales.a"
OTHER = "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5cff"


def as_of(**lies: object) -> AsOf:
    """A table with two leaves as of the second, by a map that lies about it, and a claim that follows the map."""
    facts = {"table_uuid": A, "sequence": 1, "index": 1, "main_index": 1, "snapshot_id": 5} | lies
    value = value_of(**facts)  # type: ignore[arg-type]
    tables = PrefixMap({key_of(TABLE): value, key_of("sales.b"): b"another"})
    made = [leaf(A, 0, "create", None, None, sequenced_ms=1), leaf(A, 1, "append", 5, None, sequenced_ms=1)]
    made[1] = replace(made[1], map_root=tables.root.hex())
    entries = [one.encode() for one in made]
    note = Checkpoint(SIGNER.name, 2, root(map(leaf_hash, entries))).sign([SIGNER])
    claim = (facts["table_uuid"], facts["snapshot_id"], 1, facts["main_index"])
    map_ = MapEvidence(1, value, tables.prove(key_of(TABLE)))
    return AsOf(TABLE, *claim, None, map_, Evidence(tuple(enumerate(entries)), (), note))  # type: ignore[arg-type]


def verify(claim: AsOf) -> None:
    claim.verify([SIGNER.verifier_key], table=TABLE, index=1)


def test_a_map_that_its_leaves_give_verifies() -> None:
    verify(as_of())


@pytest.mark.parametrize(
    "lie",
    [
        {"table_uuid": OTHER},
        {"sequence": 0},
        {"sequence": 7},
        {"index": 0},
        {"index": 9},
        {"main_index": 0},
        {"main_index": None},
        {"main_index": 9},
        {"snapshot_id": 4},
        {"snapshot_id": None},
    ],
)
def test_a_map_that_its_leaves_do_not_give_is_refused(lie: dict[str, object]) -> None:
    with pytest.raises(Unverified):
        verify(as_of(**lie))
