"""Vector tables against their leaves: the head, and Lance's manifest of every version it offers. Reads only.

A head is one object that a refresh replaces, so it may be newer than what was sequenced. Then each version the
timeline has must still be as its leaf says, and one that is newer is counted as uncovered. A head that is gone is a
vector table that was dropped.
"""

from __future__ import annotations

from typing import Protocol

from catalog.errors import NotFound, Unverified
from catalog.timeline.faults import Fault, Findings
from catalog.timeline.leaf import Leaf
from catalog.timeline.moves import TableState
from catalog.timeline.vector_moves import (
    VERSION,
    Offered,
    VectorHead,
    VectorObjects,
    head_key,
    manifest_key,
    manifest_root,
)


class Run(Protocol):
    """What this asks of the verification it is part of."""

    start: int
    size: int
    uncovered: int
    findings: Findings

    def count(self, length: int) -> None: ...


def verify_vectors(run: Run, objects: VectorObjects, state: TableState, chain: list[tuple[int, Leaf]]) -> None:
    """One vector table. `chain`: its leaves, oldest first. Names every manifest that is not the one sequenced."""
    name, (last, newest) = state.name, chain[-1]
    location = objects.location(head_key(name))

    def fault(index: int, leaf: Leaf, path: str, what: str) -> None:
        run.findings.add(Fault(path, what, index, leaf.table, leaf.snapshot_id))

    try:
        data = objects.read(head_key(name))
    except NotFound:
        return
    run.count(len(data))
    try:
        head = VectorHead.parse(data, name)
    except Unverified as error:
        fault(last, newest, location, error.message)
        return
    if (head.uuid, head.identity_sha256) != (newest.table_uuid, newest.schema_sha256):
        fault(last, newest, location, "it is not the head of the vector table that was sequenced")
        return
    leaves = {(leaf.snapshot_id, leaf.manifest_list_sha256): (index, leaf) for index, leaf in chain if _offers(leaf)}
    sequenced = head.sha256 == newest.metadata_sha256
    newest_version = state.log[0] if state.log is not None else 0
    for offered in head.offered:
        found = leaves.get((offered.snapshot_id, offered.manifest_sha256))
        if found is None:
            if sequenced or offered.version <= newest_version:
                path = objects.location(manifest_key(name, offered.version))
                fault(last, newest, location, f"it offers {path}, which was not sequenced so")
            else:
                run.uncovered += 1
        elif run.start <= found[0] < run.size and not _stands(run, objects, offered, *found):
            fault(*found, objects.location(manifest_key(name, offered.version)), "it is gone")


def _stands(run: Run, objects: VectorObjects, offered: Offered, index: int, leaf: Leaf) -> bool:
    """False if the manifest is gone, unless the head has withdrawn it since. One that is another is a fault."""
    try:
        manifest = objects.manifest(leaf.table, offered.version)
    except NotFound:
        return _withdrawn(objects, leaf.table, offered)
    run.count(manifest.length)
    if (manifest.sha256, manifest_root(manifest)) != (leaf.manifest_list_sha256, leaf.content_root):
        what = "its bytes are not those that were committed"
        run.findings.add(Fault(manifest.path, what, index, leaf.table, leaf.snapshot_id))
    return True


def _withdrawn(objects: VectorObjects, name: str, offered: Offered) -> bool:
    try:
        return offered not in VectorHead.parse(objects.read(head_key(name)), name).offered
    except NotFound:
        return True


def _offers(leaf: Leaf) -> bool:
    return leaf.operation == VERSION
