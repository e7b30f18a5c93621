"""A vector table's head against the timeline: a version it offers is the one a leaf speaks of, or not sequenced yet."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.errors import NotFound, Unverified
from catalog.timeline.proofs import Timeline
from catalog.timeline.vector_moves import VERSION, name_of
from catalog.vectors.head import Head


@dataclass(frozen=True)
class Verified:
    """What was found right: versions by their manifests, and for those that are sequenced the index of the leaf."""

    id: str
    versions: int
    leaves: dict[int, int]

    @property
    def sequenced(self) -> int:
        return len(self.leaves)


def check_head(head: Head, timeline: Timeline | None) -> Verified:
    """Unverified when the timeline has the version with another manifest. Each leaf it relies on is proven."""
    verified = Verified(head.id, len(head.entries), {})
    if timeline is None:
        return verified
    try:
        chain = list(timeline.commits_since(name_of(head.id)))
    except NotFound:
        return verified
    if chain[-1][1].table_uuid != head.uuid:
        return verified  # made anew, and not sequenced since
    offered = {
        (leaf.snapshot_id, leaf.committed_ms): (index, leaf) for index, leaf in chain if leaf.operation == VERSION
    }
    for entry in head.entries:
        found = offered.get((entry.snapshot_id, entry.refreshed_ms))
        if found is None:
            continue
        index, leaf = found
        if timeline.commit(index) != leaf or leaf.manifest_list_sha256 != entry.manifest_sha256:
            raise Unverified(
                f"the manifest of version {entry.version} of {head.id} is not the one sequenced at index {index}",
                subject=head.id,
            )
        verified.leaves[entry.version] = index
    return verified
