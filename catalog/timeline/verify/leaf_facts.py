"""What a leaf and what it is compared with must agree in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyiceberg.table.snapshots import Snapshot

from catalog.timeline.log.leaf import RESET, TRANSACTION, Leaf
from catalog.timeline.sequencer.attestation import Attestation


def is_hidden_reset(
    leaf: Leaf, snapshots: Mapping[int, Snapshot], stated: Mapping[int | None, int | None] = MappingProxyType({})
) -> bool:
    """Whether the leaf moves main to a snapshot that does not follow where main was, and does not say so.

    False if an expired snapshot leaves it open. When a snapshot expires, the one after it may lose the name of its
    parent; for a move over several snapshots, `stated`, the parents by their own leaves, stands in.
    """
    if leaf.parent_id is None or leaf.snapshot_id is None or leaf.operation in ("rollback", RESET, TRANSACTION):
        return False
    if leaf.parent_id not in snapshots:
        return False
    at: int | None = leaf.snapshot_id
    while at is not None and at != leaf.parent_id:
        if at not in snapshots:
            return False
        parent = snapshots[at].parent_snapshot_id
        if leaf.is_snapshot:
            at = parent
            break  # an ordinary commit: its parent itself is where main was
        at = stated.get(at) if parent is None else parent
    return at != leaf.parent_id


def is_attestation_of(leaf: Leaf, attestation: Attestation) -> bool:
    """Whether it is of the leaf's commit, with the same objects, byte for byte. The changes are the leaf's own: what an
    attestation states of them is its writer's word."""
    return _stated(leaf) == (
        attestation.table_uuid,
        attestation.snapshot_id,
        attestation.manifest_list.sha256,
        attestation.content_root,
        len(attestation.entries),
    )


def _stated(leaf: Leaf) -> tuple[str, int | None, str | None, str | None, int]:
    """What a leaf states about its commit's attestation."""
    return (
        leaf.table_uuid,
        leaf.snapshot_id,
        leaf.manifest_list_sha256,
        leaf.content_root,
        leaf.content_count,
    )
