"""A change feed is checked with the timeline's public key alone."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from catalog.changes import (
    ChangeSet,
    from_ipc,
    from_json_lines,
    to_ipc,
    to_json_lines,
    verify,
)
from catalog.core.errors import Unverified
from catalog.merkle import Checkpoint, CompactRange, Ed25519Signer, leaf_hash, sign_note, tree
from catalog.merkle import proof as proof_file
from catalog.timeline.log.leaf import Leaf
from tests.property.changes.feeds import (
    SCHEMA_JSON,
    change_set,
    leaf_of,
    random_state,
)

SIGNER = Ed25519Signer("strandline.example/lake", bytes(range(32)))


def in_timeline(changes: ChangeSet, **overrides) -> ChangeSet:
    """The change set with its leaf as number 3 of a signed log of six."""
    record = dict.fromkeys(field.name for field in fields(Leaf)) | {"content_count": 0}
    record |= vars(leaf_of(changes)) | {"format": "strandline/commit@v2"} | overrides
    record |= {name: None if record[name] is None else str(record[name]) for name in ("snapshot_id", "parent_id")}
    import json

    leaf = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    hashes = [leaf_hash(leaf if at == 3 else b"another leaf") for at in range(6)]
    head, nodes = CompactRange().extend(hashes)
    stored = {(level, index): value for level, index, value in nodes}
    path = tree.inclusion_proof(3, 6, lambda wanted: [stored[at] for at in wanted])
    checkpoint = sign_note(Checkpoint(SIGNER.name, 6, head.root()).text(), [SIGNER])
    proof = proof_file.write(proof_file.ProofFile(3, tuple(path), checkpoint))
    return changes.with_evidence(leaf, proof, 3)


def test_a_feed_is_checked_with_the_public_key_alone():
    whole = replace(change_set(random_state(20), random_state(20)), schema_json=SCHEMA_JSON)
    for feed in (whole, whole.between(("DE",), ("DE",)), next(whole.pages(4))):
        sent = to_ipc(in_timeline(feed))
        verify(from_ipc(sent), SIGNER.verifier_key)
        verify(from_json_lines(list(to_json_lines(in_timeline(feed)))), [SIGNER.verifier_key])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda feed: replace(feed, evidence=None), "no evidence"),
        (lambda feed: replace(feed, commit=replace(feed.commit, index=4)), "leaf 3"),
        (
            lambda feed: replace(feed, evidence=replace(feed.evidence, leaf=feed.evidence.leaf + b" ")),
            "not in the signed",
        ),
        (lambda feed: replace(feed, schema_json=None), "column names are not proven"),
        (lambda feed: replace(feed, changes=feed.changes.slice(1)), "dropped, altered, repeated or moved"),
    ],
)
def test_what_does_not_hold_is_named(spoil, reason):
    feed = in_timeline(replace(change_set(random_state(5), random_state(5)), schema_json=SCHEMA_JSON))
    with pytest.raises(Unverified, match=reason):
        verify(spoil(feed), SIGNER.verifier_key)


def test_another_key_and_a_leaf_without_changes_are_refused():
    feed = replace(change_set(random_state(5), random_state(5)), schema_json=SCHEMA_JSON)
    with pytest.raises(Unverified, match="not signed by a known key"):
        verify(in_timeline(feed), Ed25519Signer("strandline.example/lake", bytes(32)).verifier_key)
    with pytest.raises(Unverified, match="never computed"):
        verify(in_timeline(feed, changes_root=None, changes_count=None, attested=None), SIGNER.verifier_key)
