"""A table's history: finding a snapshot by time or name, naming it, and going back to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import RemoveSnapshotRefUpdate, TableUpdate

from catalog.errors import Conflict, Invalid, NotFound
from catalog.tables.commits import TRANSACTION_PREFIX, Committer
from catalog.tables.creation import CLONE_TAG
from catalog.tables.deltas import Delta, set_ref
from catalog.tables.fileio import CommitIO
from catalog.tables.versions import Version

AsOf = int | str | datetime
"""A snapshot id, a time (milliseconds or datetime), or the name of a tag or branch."""

# Snapshot ids are random 63-bit numbers; no clock will show this many milliseconds for thirty thousand years.
_LATEST_MS = 10**15
_RESERVED = (MAIN_BRANCH, TRANSACTION_PREFIX, CLONE_TAG)

_Attempt = tuple[Sequence[TableUpdate], Snapshot | None, Delta]


def find_snapshot(version: Version, as_of: AsOf) -> Snapshot:
    """By id, by name, or the one that was current at a time. NotFound says what there is."""
    metadata = version.metadata
    if isinstance(as_of, str):
        found = metadata.snapshot_by_name(as_of)
        if found is None:
            names = ", ".join(sorted(metadata.refs)) or "none"
            raise NotFound(f"{version.name} has no snapshot named {as_of!r}; named are: {names}", subject=version.name)
        return found
    if isinstance(as_of, datetime):
        as_of = int(as_of.timestamp() * 1000)
    found = metadata.snapshot_by_id(as_of)
    if found is not None:
        return found
    if as_of > _LATEST_MS:
        raise NotFound(f"{version.name} has no snapshot {as_of}: it may have expired", subject=version.name)
    current = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= as_of]
    found = metadata.snapshot_by_id(current[-1].snapshot_id) if current else None
    if found is None:
        raise NotFound(f"{version.name} has no snapshot from {as_of} ms or before", subject=version.name)
    return found


def past(version: Version) -> list[Snapshot]:
    """Main's snapshots, newest first."""
    return list(ancestors_of(version.metadata.current_snapshot(), version.metadata))


def name_snapshot(committer: Committer, name: str, tag: str, as_of: AsOf | None) -> Snapshot:
    """Gives a snapshot a name, which keeps it from expiring. A name never moves: Conflict if it is taken."""
    if not tag or tag.startswith(_RESERVED) or any(c.isspace() for c in tag):
        raise Invalid(f"{tag!r} cannot name a snapshot: choose a word, not one of {', '.join(_RESERVED)}")

    def attempt(version: Version, io: CommitIO) -> _Attempt:
        snapshot = _current(version) if as_of is None else find_snapshot(version, as_of)
        taken = version.metadata.refs.get(tag)
        if taken is not None and taken.snapshot_id != snapshot.snapshot_id:
            raise Conflict(
                f"{name}: {tag!r} names snapshot {taken.snapshot_id} already: choose another name",
                subject=name,
            )
        updates = [] if taken else [set_ref(tag, snapshot.snapshot_id, SnapshotRefType.TAG)]
        return updates, snapshot, Delta()

    _, snapshot, _ = committer.commit(name, attempt, holder=None)
    assert snapshot is not None
    return snapshot


def unname_snapshot(committer: Committer, name: str, tag: str) -> None:
    """Takes the name away; the snapshot may then expire. A clone's pin can be taken off so, too."""

    def attempt(version: Version, io: CommitIO) -> _Attempt:
        found = version.metadata.refs.get(tag)
        if found is None or found.snapshot_ref_type != SnapshotRefType.TAG:
            raise NotFound(f"{name} has no snapshot named {tag!r}", subject=name)
        return [RemoveSnapshotRefUpdate(ref_name=tag)], version.head(), Delta()

    committer.commit(name, attempt, holder=None)


def roll_back(committer: Committer, name: str, to: AsOf) -> Snapshot:
    """Makes an earlier snapshot of main current again. Later ones stay until they expire, and so do their tokens."""

    def attempt(version: Version, io: CommitIO) -> _Attempt:
        snapshot = find_snapshot(version, to)
        if snapshot.snapshot_id == version.metadata.current_snapshot_id:
            return [], snapshot, Delta()
        been = {entry.snapshot_id for entry in version.metadata.snapshot_log}
        if snapshot.snapshot_id not in been | {s.snapshot_id for s in past(version)}:
            raise Invalid(f"{name}: snapshot {snapshot.snapshot_id} was never current, so there is no way back to it")
        return [set_ref(MAIN_BRANCH, snapshot.snapshot_id)], snapshot, Delta()

    _, snapshot, _ = committer.commit(name, attempt)
    assert snapshot is not None
    return snapshot


def _current(version: Version) -> Snapshot:
    snapshot = version.metadata.current_snapshot()
    if snapshot is None:
        raise NotFound(f"{version.name} has no snapshot yet: write to it first", subject=version.name)
    return snapshot
