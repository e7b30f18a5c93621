"""Which versions of a vector table stay: those that a snapshot its source still has would be searched in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from catalog.vectors.head import Entry, Head

GRACE = timedelta(hours=1)
"""How long a version that no head offers any more can still be read: a search may have begun before."""


def kept_entries(head: Head, parents: Mapping[int, int | None]) -> tuple[Entry, ...]:
    """The entries to go on offering. `parents`: the source's snapshots, each with the one it was made from.

    A snapshot that was not refreshed to is searched in its nearest ancestor that was, so that one stays too, even when
    the ancestor itself has expired.
    """
    needed = {entry.version for entry in head.entries[-1:]}
    for snapshot_id in parents:
        found = head.entry_for(snapshot_id, parents.get)
        if found is not None:
            needed.add(found.version)
    return tuple(entry for entry in head.entries if entry.version in needed)
