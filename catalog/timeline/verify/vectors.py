"""Verifies vector tables: the head, and Lance's manifest of every version that it offers. Reads only.

The head is one object, which every refresh replaces, so it may be newer than the last leaf. Each version that has a
leaf must be as the leaf states; a newer one is counted as uncovered. Without its head the vector table was dropped.
"""

from __future__ import annotations

from typing import Protocol

from catalog.core.errors import NotFound, Unverified
from catalog.core.vector_head import VectorVersion
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.sequencer.table_state import TableState
from catalog.timeline.sequencer.vector_events import (
    VECTOR_VERSION_OPERATION,
    VectorHead,
    VectorObjects,
    head_key,
    manifest_key,
    manifest_root,
)
from catalog.timeline.verify.faults import Fault, FaultCollector


class Verification(Protocol):
    """What this module needs of the verification that it is part of."""

    start: int
    size: int
    faults: FaultCollector

    def count_object(self, length: int) -> None: ...

    def count_uncovered(self) -> None: ...


def verify_vectors(
    verification: Verification, objects: VectorObjects, state: TableState, chain: list[tuple[int, Leaf]]
) -> None:
    """Verifies one vector table. `chain`: its leaves, oldest first. Every altered head or manifest is a fault."""
    name, (last, newest) = state.name, chain[-1]
    location = objects.location(head_key(name))

    def fault(index: int, leaf: Leaf, path: str, what: str) -> None:
        verification.faults.add(Fault(path, what, index, leaf.table, leaf.snapshot_id))

    try:
        data = objects.read(head_key(name))
    except NotFound:
        return
    verification.count_object(len(data))
    try:
        head = VectorHead.parse(data, name)
    except Unverified as error:
        fault(last, newest, location, error.message)
        return
    if (head.uuid, head.identity_sha256) != (newest.table_uuid, newest.schema_sha256):
        fault(last, newest, location, "it is not the head of the vector table that was sequenced")
        return
    leaves = {(leaf.snapshot_id, leaf.manifest_list_sha256): (index, leaf) for index, leaf in chain if _offers(leaf)}
    head_is_sequenced = head.sha256 == newest.metadata_sha256
    newest_version = state.log[0] if state.log is not None else 0
    for offered in head.offered:
        indexed = leaves.get((offered.snapshot_id, offered.manifest_sha256))
        path = objects.location(manifest_key(name, offered.version))
        if indexed is None:
            if head_is_sequenced or offered.version <= newest_version:
                fault(last, newest, location, f"it offers {path} with a digest that has no leaf")
            else:
                verification.count_uncovered()
        elif verification.start <= indexed[0] < verification.size and not _verify_manifest(
            verification, objects, offered, *indexed
        ):
            fault(*indexed, path, "it is missing")


def _verify_manifest(
    verification: Verification, objects: VectorObjects, offered: VectorVersion, index: int, leaf: Leaf
) -> bool:
    """False if the manifest is missing, unless the head has withdrawn the version since. An altered one is a fault."""
    try:
        manifest = objects.manifest(leaf.table, offered.version)
    except NotFound:
        return _is_withdrawn(objects, leaf.table, offered)
    verification.count_object(manifest.length)
    if (manifest.sha256, manifest_root(manifest)) != (leaf.manifest_list_sha256, leaf.content_root):
        what = "its bytes are not those that were committed"
        verification.faults.add(Fault(manifest.path, what, index, leaf.table, leaf.snapshot_id))
    return True


def _is_withdrawn(objects: VectorObjects, name: str, offered: VectorVersion) -> bool:
    try:
        return offered not in VectorHead.parse(objects.read(head_key(name)), name).offered
    except NotFound:
        return True


def _offers(leaf: Leaf) -> bool:
    return leaf.operation == VECTOR_VERSION_OPERATION
