"""Verifies a vector table's head against the timeline: each of its versions is in a leaf, or not sequenced yet."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.errors import NotFound, Unverified
from catalog.core.vector_head import Head
from catalog.timeline import VECTOR_VERSION_OPERATION, Timeline, vector_table_name


@dataclass(frozen=True)
class VerifiedHead:
    """A verified head: its number of versions, and for each sequenced version the index of its leaf."""

    id: str
    versions: int
    leaves: dict[int, int]

    @property
    def sequenced(self) -> int:
        return len(self.leaves)


def check_head(head: Head, timeline: Timeline | None) -> VerifiedHead:
    """Unverified when the timeline has a version with another manifest. Proves each leaf that it uses."""
    verified = VerifiedHead(head.id, len(head.entries), {})
    if timeline is None:
        return verified
    try:
        leaves = list(timeline.commits_since(vector_table_name(head.id)))
    except NotFound:
        return verified
    if leaves[-1][1].table_uuid != head.uuid:
        return verified  # dropped and created again, and not sequenced since
    sequenced = {
        (leaf.snapshot_id, leaf.committed_ms): (index, leaf)
        for index, leaf in leaves
        if leaf.operation == VECTOR_VERSION_OPERATION
    }
    for entry in head.entries:
        match = sequenced.get((entry.snapshot_id, entry.refreshed_ms))
        if match is None:
            continue
        index, leaf = match
        if timeline.commit(index) != leaf or leaf.manifest_list_sha256 != entry.manifest_sha256:
            raise Unverified(
                f"the manifest of version {entry.version} of {head.id} is not the one sequenced at index {index}",
                subject=head.id,
            )
        verified.leaves[entry.version] = index
    return verified
