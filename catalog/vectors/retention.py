"""Which versions of a vector table to keep: those in which some snapshot of its source is searched."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from catalog.core.vector_head import Head, VectorVersion

GRACE = timedelta(hours=1)
"""How long a version stays readable after it left the head, for searches that began before."""


def kept_entries(head: Head, parents: Mapping[int, int | None]) -> tuple[VectorVersion, ...]:
    """The entries that the head keeps. `parents` maps the source's snapshots to their parents.

    A snapshot without a version is searched in that of its nearest ancestor that has one, so that version is kept too,
    even when the ancestor itself has expired.
    """
    needed = {entry.version for entry in head.entries[-1:]}
    for snapshot_id in parents:
        entry = head.entry_for(snapshot_id, parents.get)
        if entry is not None:
            needed.add(entry.version)
    return tuple(entry for entry in head.entries if entry.version in needed)
