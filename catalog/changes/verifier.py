"""Verifies a change set offline: with the timeline's public key, or against a commit's leaf that is already trusted.

Needs pyarrow, catalog.merkle and this package; makes no requests. Raises Unverified, which says what is wrong, and no
other exception, whatever the change set contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.changes import hashing
from catalog.changes.change_set import ChangeSet, KeyRange, Neighbour, PartialProof, key_values, rank
from catalog.changes.commit_leaf import CommitLeaf, Demand, parse_leaf
from catalog.changes.committed_schema import check_columns
from catalog.changes.digest import check_key, key_digests
from catalog.changes.records import (
    RECORD_SIZE,
    UPDATE,
    canonical_order,
    changes_schema,
    key_columns,
    leaf_hashes,
    records,
    side,
)
from catalog.core.errors import LakeError, Unverified
from catalog.merkle import proof as proof_file
from catalog.merkle.note import VerifierKey
from catalog.merkle.policy import Policy
from catalog.merkle.verify import ProofError, verify_batch


def verify(
    changes: ChangeSet,
    keys: VerifierKey | Iterable[VerifierKey],
    *,
    origin: str | None = None,
    policy: Policy | None = None,
    demand: Demand = "lake",
) -> None:
    """Verifies that the changes are exactly those of a commit in the signed timeline: none is missing, added, altered
    or moved.

    For a partial change set: each change is one of the commit's, at its index, and a key range has no others. The
    change set carries its evidence (leaf and proof file). Of which table it is, and which commits come before it, is
    for the caller to compare, or for FeedVerifier. `demand`: who must have computed the leaf's changes_root: the lake,
    from the objects; with "writer", whoever committed is believed, too. Costs the digests of its rows and a sort; no
    requests.
    """
    verifier_keys = [keys] if isinstance(keys, VerifierKey) else list(keys)
    with refusing(changes):
        if changes.evidence is None:
            raise Unverified(f"the changes of {describe(changes)} carry no evidence: request the feed with proofs")
        try:
            evidence = changes.evidence
            inclusion = proof_file.verify(evidence.proof, evidence.leaf, verifier_keys, origin=origin, policy=policy)
        except ProofError as error:
            raise Unverified(f"the leaf of {describe(changes)} is not in the signed timeline: {error}") from None
        verify_at(changes, inclusion.index, demand)


def verify_at(changes: ChangeSet, index: int, demand: Demand = "lake") -> None:
    """Verifies the changes against the leaf in their evidence, which the caller has proven to have this index."""
    if changes.evidence is None:
        raise Unverified(f"the changes of {describe(changes)} carry no evidence: request the feed with proofs")
    if changes.commit.index != index:
        raise Unverified(f"{describe(changes)} is leaf {index} of the timeline, not {changes.commit.index}")
    leaf = parse_leaf(changes.evidence.leaf)
    if changes.commit.sequence not in (None, leaf.sequence):
        raise Unverified(f"{describe(changes)} is leaf {leaf.sequence} of its table, not {changes.commit.sequence}")
    verify_leaf(changes, leaf, demand)


def verify_leaf(changes: ChangeSet, leaf: CommitLeaf, demand: Demand = "lake") -> None:
    """Verifies the changes against the leaf of their commit, which the caller trusts."""
    with refusing(changes):
        _verify_attestor(changes, leaf, demand)
        _verify_claims(changes, leaf)
        _verify_schema(changes, leaf.schema_sha256)
    verify_root(changes)


def _verify_attestor(changes: ChangeSet, leaf: CommitLeaf, demand: Demand) -> None:
    """Verifies that the leaf's root was computed by whom the caller believes."""
    subject = describe(changes)
    if demand not in ("lake", "writer"):
        raise ValueError(f"a root is demanded of the lake or of the writer, not of {demand!r}")
    if leaf.changes_root is None or leaf.attested is None:
        raise Unverified(
            f"the leaf of {subject} is unattested: its changes were never computed, so no feed of them verifies"
        )
    if leaf.attested != "lake" and demand == "lake":
        raise Unverified(
            f"the changes_root of {subject} is the writer's own: the commit was too large for the lake to compute it. "
            "To believe its writer, demand 'writer' (--demand writer)"
        )


def _verify_claims(changes: ChangeSet, leaf: CommitLeaf) -> None:
    """Verifies that what the change set says of its commit is what the leaf says."""
    commit, subject = changes.commit, describe(changes)
    claims: list[tuple[str, Any, Any]] = [
        ("table name", commit.table, leaf.table),
        ("table uuid", commit.table_uuid, leaf.table_uuid),
        ("snapshot", commit.snapshot_id, leaf.snapshot_id),
        ("parent", commit.parent_id, leaf.parent_id),
        ("time", commit.committed_ms, leaf.committed_ms),
        ("changes_root", changes.root.hex(), leaf.changes_root),
        ("changes_count", changes.count, leaf.changes_count),
    ]
    for field, claimed, committed in claims:
        if claimed != committed:
            raise Unverified(f"{subject}: its {field} is {committed} in the timeline, but {claimed} in the feed")


def verify_root(changes: ChangeSet) -> None:
    """Verifies that the changes hash to the change set's own root and count, whose origin is not checked.

    They must be in canonical order: an absence is proven by two neighbours, which means nothing in an unsorted tree.
    """
    subject = describe(changes)
    with refusing(changes):
        if not changes.changes.schema.equals(changes_schema(changes.schema), check_metadata=True):
            raise Unverified(f"{subject}: the feed's columns are not op, before and after of its schema")
        check_key(changes.schema, changes.key)
        block = records(changes.changes, changes.key)
        _verify_updates(changes, block)
        if changes.part is not None:
            _verify_part(changes, changes.part, block)
            return
        computed = hashing.root(leaf_hashes(block))
        if len(block) != changes.count or computed != changes.root:
            raise Unverified(
                f"{subject}: its {len(block)} changes have the root {computed.hex()}; the commit has {changes.count} "
                f"with the root {changes.root.hex()}. A change was dropped, altered, repeated or moved"
            )
        _verify_order(key_columns(changes.changes, changes.key), block)


@contextmanager
def refusing(changes: ChangeSet) -> Iterator[None]:
    """Raises Unverified for whatever goes wrong in the block: what cannot be checked is not verified."""
    try:
        yield
    except Unverified:
        raise
    except LakeError as error:
        raise Unverified(f"{describe(changes)}: {error.message}") from None
    except (ProofError, ValueError) as error:
        raise Unverified(f"{describe(changes)}: {error}") from None
    except Exception as error:
        raise Unverified(f"{describe(changes)} cannot be checked: {type(error).__name__}: {error!s:.200}") from None


def _verify_updates(changes: ChangeSet, block: hashing.Hashes) -> None:
    """Verifies that each UPDATE has one key and two different rows."""
    updates = changes.changes.filter(pc.equal(changes.changes.column("op"), pa.scalar(UPDATE)))
    if not len(updates):
        return
    if not changes.key:
        raise Unverified("a table without a key has an UPDATE: nothing says that the two rows are one")
    before, after = (key_digests(side(updates, name), changes.key) for name in ("before", "after"))
    if not np.array_equal(before, after):
        raise Unverified("an UPDATE has another key before than after: those are a DELETE and an INSERT")
    updated = block[block[:, 0] == ord("U")]
    if (updated[:, 33:65] == updated[:, 65:97]).all(axis=1).any():
        raise Unverified("an UPDATE changes nothing: its rows before and after are equal")


def _verify_order(keys: pa.Table, block: hashing.Hashes) -> None:
    """Verifies that the records, with these keys, are in canonical order. Equal records may be in any order."""
    order = canonical_order(keys, block).to_numpy()
    if not np.array_equal(block[order], block):
        raise Unverified("the changes are not in the order of their keys: they do not show which keys have none")


def _verify_part(changes: ChangeSet, part: PartialProof, block: hashing.Hashes) -> None:
    """Verifies that the records, and the neighbours around them, are the leaves at the part's indices, in order."""
    keys = key_columns(changes.changes, changes.key)
    if part.keys is not None:
        try:
            _verify_range(changes, part, part.keys)
        except TypeError:
            raise Unverified("the bounds of the key range have other types than the key's columns") from None
        left, right = (_neighbour_record(changes, neighbour) for neighbour in (part.left, part.right))
        block = np.concatenate([left, block, right])
        ends = [[] if neighbour is None else [neighbour.key] for neighbour in (part.left, part.right)]
        keys = pa.concat_tables([*ends[0], keys, *ends[1]])
    elif part.left is not None or part.right is not None:
        raise Unverified("the feed has neighbours, but no key range")
    if len(part.indices) != len(block):
        raise Unverified(f"the feed has {len(block)} changes, but {len(part.indices)} indices")
    if len(block):
        _verify_order(keys, block)
        leaves = [value.tobytes() for value in leaf_hashes(block)]
        verify_batch(leaves, part.indices, changes.count, part.proof, changes.root)
    elif part.proof:
        raise Unverified("the feed has a proof, but no changes")


def _verify_range(changes: ChangeSet, part: PartialProof, keys: KeyRange) -> None:
    """Verifies that the rows are in the range and in order, the neighbours outside of it, and all indices adjacent."""
    if not changes.key:
        raise Unverified("the feed claims a key range, but its table has no key")
    row_keys = key_values(key_columns(changes.changes, changes.key))
    if any(key not in keys for key in row_keys):
        raise Unverified("a change is outside of the feed's key range")
    if any(rank(a) > rank(b) for a, b in pairwise(row_keys)):
        raise Unverified("the changes of the key range are not in the order of their keys")
    if part.left is not None and not keys.is_before(key_values(part.left.key)[0]):
        raise Unverified("the left neighbour is not before the key range: a change may have been left out")
    if part.right is not None and not keys.is_after(key_values(part.right.key)[0]):
        raise Unverified("the right neighbour is not after the key range: a change may have been left out")
    first, end = (part.indices[0], part.indices[-1] + 1) if part.indices else (0, 0)
    if list(part.indices) != list(range(first, end)):
        raise Unverified("the indices of the key range's changes are not adjacent: a change may have been left out")
    if part.left is None and first != 0:
        raise Unverified("the feed has no left neighbour: changes may have been left out at the range's start")
    if part.right is None and end != changes.count:
        raise Unverified("the feed has no right neighbour: changes may have been left out at the range's end")


def _neighbour_record(changes: ChangeSet, neighbour: Neighbour | None) -> hashing.Hashes:
    """The neighbour's record, after checking that its key is the one in the record; none for None."""
    if neighbour is None:
        return np.empty((0, RECORD_SIZE), np.uint8)
    key_schema = pa.schema([changes.schema.field(name) for name in changes.key])
    if len(neighbour.record) != RECORD_SIZE or len(neighbour.key) != 1:
        raise Unverified("a neighbour of the key range is not one record with its key")
    if not neighbour.key.schema.equals(key_schema, check_metadata=True):
        raise Unverified("a neighbour of the key range has other key columns than the feed")
    if key_digests(neighbour.key, changes.key)[0].tobytes() != neighbour.record[1:33]:
        raise Unverified("a neighbour of the key range has another key than its record")
    return np.frombuffer(neighbour.record, np.uint8).reshape(1, RECORD_SIZE)


def _verify_schema(changes: ChangeSet, schema_sha256: str | None) -> None:
    """Verifies that columns and key are those of the committed schema."""
    if schema_sha256 is None:
        raise Unverified(f"the leaf of {describe(changes)} has no digest of the schema: its columns are not proven")
    if changes.schema_json is None:
        raise Unverified(f"{describe(changes)}: the feed lacks the table's schema, so its column names are not proven")
    if sha256(changes.schema_json).hexdigest() != schema_sha256:
        raise Unverified(f"{describe(changes)}: the schema in the feed is not the committed one")
    check_columns(changes.schema_json, changes.schema, changes.key)


def describe(changes: ChangeSet) -> str:
    """The change set as messages name it."""
    return f"snapshot {changes.commit.snapshot_id} of {changes.commit.table}"
