"""As-of proofs by an operator who signs whatever helps: maps of the future, second maps, leaves with two readings."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from catalog.core.errors import Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.prefix_map import PrefixMap
from catalog.merkle.tree import leaf_hash, root
from catalog.timeline import parse_shown_leaf
from catalog.timeline.log.leaf import MAX_BYTES, Leaf
from catalog.timeline.reader.evidence import AsOf, Evidence, MapEvidence
from tests.unit.timeline.test_replay import A, B, complete, history, leaf
from tests.worlds.table_map import key_of, value_of

SIGNER = Ed25519Signer.generate("strandline.test/forged")
TABLE = "sales.a"


def shown(leaves: Sequence[Leaf], tables: PrefixMap, cut: int, map_index: int, **claim: Any) -> AsOf:
    """Evidence with every leaf, and the claim that follows from the map."""
    entries = [one.encode() for one in leaves]
    note = Checkpoint(SIGNER.name, len(entries), root(map(leaf_hash, entries))).sign([SIGNER])
    value = tables.get(key_of(TABLE))
    entry = {} if value is None else json.loads(value)
    snapshot = claim.get("snapshot_id", entry.get("snapshot_id"))
    return AsOf(
        TABLE,
        claim.get("table_uuid", entry.get("table_uuid")),
        None if snapshot is None else int(snapshot),
        cut,
        claim.get("stated_at", entry.get("main_index")),
        None,
        MapEvidence(map_index, value, tables.prove(key_of(TABLE))),
        Evidence(tuple(enumerate(entries)), (), note),
    )


def verify(claim: AsOf) -> None:
    claim.verify([SIGNER.verifier_key], table=TABLE, index=claim.index)


def one_table(**entry: Any) -> PrefixMap:
    facts = {"table_uuid": A, "sequence": 1, "index": 1, "main_index": 1, "snapshot_id": 5} | entry
    return PrefixMap({key_of(TABLE): value_of(**facts)})


def with_maps(leaves: Sequence[Leaf], maps: dict[int, PrefixMap]) -> list[Leaf]:
    return [
        replace(one, sequenced_ms=index, map_root=maps[index].root.hex() if index in maps else None)
        for index, one in enumerate(leaves)
    ]


LEAVES = [
    leaf(A, 0, "create", None, None),
    leaf(A, 1, "append", 5, None),
    leaf(A, 2, "append", 6, 5),
    leaf(A, 3, "tag", 6, None, ref="v1"),
]


def test_the_honest_claim_verifies() -> None:
    leaves = with_maps(LEAVES, {1: one_table()})
    verify(shown(leaves, one_table(), 1, 1))


def test_a_map_does_not_state_leaves_of_the_future() -> None:
    """Its values name leaves by index: with a plan for what comes, one can be signed before the leaf is there."""
    future = one_table(sequence=2, index=2, main_index=2, snapshot_id=6)
    with pytest.raises(Unverified, match="comes after it"):
        verify(shown(with_maps(LEAVES, {1: future}), future, 1, 1))
    later_main = one_table(sequence=1, index=1, main_index=2, snapshot_id=6)
    with pytest.raises(Unverified, match="comes after it"):
        verify(shown(with_maps(LEAVES, {1: later_main}), later_main, 1, 1))
    before_main = one_table(sequence=3, index=3, main_index=2, snapshot_id=6)
    verify(shown(with_maps(LEAVES, {3: before_main}), before_main, 3, 3))


def test_of_two_maps_at_a_cut_only_the_last_one_counts() -> None:
    """The older map and the leaves since give one answer, the newer map another: each could be shown to somebody."""
    old, new = one_table(), PrefixMap({key_of("sales.b"): b"another"})
    leaves = with_maps(LEAVES, {1: old, 2: new})
    verify(shown(leaves, new, 2, 2))
    claim = shown(leaves, old, 2, 1, snapshot_id=6, stated_at=2)
    with pytest.raises(Unverified, match="later map"):
        verify(claim)
    verify(shown(with_maps(LEAVES, {1: old}), old, 2, 1, snapshot_id=6, stated_at=2))


def test_a_table_that_was_dropped_is_not_in_the_map() -> None:
    leaves = [*LEAVES[:2], leaf(A, 2, "drop", None, 5)]
    kept = one_table(sequence=2, index=2, main_index=1)
    with pytest.raises(Unverified, match="dropped"):
        verify(shown(with_maps(leaves, {2: kept}), kept, 2, 2))
    restated = one_table(sequence=2, index=2, main_index=2, snapshot_id=None)
    with pytest.raises(Unverified, match="dropped"):
        verify(shown(with_maps(leaves, {2: restated}), restated, 2, 2))


def test_a_map_does_not_count_a_transaction_before_its_last_leaf() -> None:
    first = leaf(A, 2, "transaction", 6, 5, content_count=1)
    leaves = [*LEAVES[:2], first, leaf(B, 0, "transaction", 7, None)]
    torn = one_table(sequence=2, index=2, main_index=2, snapshot_id=6)
    with pytest.raises(Unverified, match="comes after"):
        verify(shown(with_maps(leaves, {2: torn}), torn, 2, 2))
    verify(shown(with_maps(leaves, {3: torn}), torn, 3, 3))


@pytest.mark.parametrize(
    "lie",
    [
        {"map_root": "AB" * 32},
        {"map_root": "ab " * 32},
        {"schema_sha256": "x"},
        {"content_root": "0x" + "0" * 62},
        {"rows_digest": ""},
        {"attested": "lake"},
        {"attested": "nobody", "changes_root": "00" * 32, "changes_count": 1},
        {"changes_root": "00" * 32},
        {"changes_count": 0},
        {"changes_root": "00" * 32, "changes_count": 0},
        {"sequence": -1},
        {"sequenced_ms": -1},
        {"content_count": -7},
        {"operation": "insert"},
        {"operation": "Append"},
        {"operation": ""},
        {"operation": "metadata"},
        {"operation": "drop"},
        {"operation": "tag"},
        {"operation": "vectors", "ref": "dev"},
        {"operation": "reset", "ref": "dev"},
        {"operation": "branch", "ref": None},
        {"operation": "tag", "ref": None},
        {"operation": "create", "ref": None, "snapshot_id": None},
        {"snapshot_id": None},
        {"snapshot_id": None, "ref": "dev"},
        {"snapshot_id": 2**63},
        {"parent_id": -(2**63) - 1},
        {"ref": ""},
        {"ref": "MAIN"},
        {"ref": "ma\u00adin"},
        {"ref": "main\u200b"},
        {"ref": "\u2060main"},
        {"ref": "main\ufe0f"},
        {"ref": "ⓜａⅰⁿ"},
        {"ref": "main\u3000"},
        {"ref": "main\u1160"},
        {"ref": "\u3383in"},
        {"table": ""},
        {"table_uuid": ""},
    ],
)
def test_a_leaf_that_says_what_no_leaf_says_is_refused_in_every_proof(lie: dict[str, Any]) -> None:
    honest = leaf(A, 1, "append", 5, None)
    assert parse_shown_leaf(honest.encode()) == honest
    forged = replace(honest, **lie)
    with pytest.raises(Unverified):
        parse_shown_leaf(forged.encode())
    tables = one_table()
    leaves = [LEAVES[0], forged, replace(LEAVES[2], map_root=tables.root.hex())]
    with pytest.raises(Unverified):
        verify(shown(leaves, tables, 2, 2))


def test_every_leaf_of_an_honest_history_is_within_the_rules() -> None:
    for one in complete(history()):
        assert parse_shown_leaf(one.encode()) == one
    early = leaf(A, 1, "append", 5, None, committed_ms=-5)  # a writer's clock may be anywhere
    assert parse_shown_leaf(early.encode()).committed_ms == -5


def test_a_leaf_over_the_limit_is_refused() -> None:
    text = leaf(A, 1, "append", 5, None).encode().replace(b"sales.a", b"s" * MAX_BYTES)
    with pytest.raises(Unverified, match="over the limit"):
        parse_shown_leaf(text)


@pytest.mark.parametrize("name", ["sales.A", "SALES.a", "sales.a ", "sales.a\u200b", "ｓales.a", "sales.а"])
def test_a_name_is_its_bytes(name: str) -> None:
    """A table whose name looks the same proves nothing about this one, neither that it is there nor that it is not."""
    tables = PrefixMap({key_of(name): value_of(A, 1, 1, 1, 5)})
    leaves = with_maps([replace(one, table=name) for one in LEAVES[:2]], {1: tables})
    absent = shown(leaves, tables, 1, 1)
    assert absent.table_uuid is None
    verify(absent)
    claim = replace(absent, table=name, table_uuid=A, snapshot_id=5, stated_at=1)
    with pytest.raises(Unverified):
        verify(claim)  # of another name than was asked for
    with pytest.raises(Unverified):
        verify(replace(claim, table=TABLE))


def test_normalisation_forms_are_two_names() -> None:
    composed, decomposed = (unicodedata.normalize(form, "sales.é") for form in ("NFC", "NFD"))
    tables = PrefixMap({key_of(composed): value_of(A, 1, 1, 1, 5)})
    leaves = with_maps([replace(one, table=composed) for one in LEAVES[:2]], {1: tables})
    base = shown(leaves, tables, 1, 1)
    map_ = replace(base.map, value=tables.get(key_of(composed)), proof=tables.prove(key_of(composed)))
    claim = replace(base, table=composed, table_uuid=A, snapshot_id=5, stated_at=1, map=map_)
    claim.verify([SIGNER.verifier_key], table=composed, index=1)
    with pytest.raises(Unverified):
        replace(claim, table=decomposed).verify([SIGNER.verifier_key], table=decomposed, index=1)
