"""A table's history: finds the snapshot at a point in time, names it, and rolls back to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.core.point_in_time import Moment, NamedSnapshot, PointInTime, SnapshotId, check_name
from catalog.iceberg import TRANSACTION_PREFIX, CommitIO
from catalog.tables.committer import AttemptResult, Committer
from catalog.tables.creation import CLONE_TAG
from catalog.tables.delta import Delta, set_ref
from catalog.tables.glue_store import TableVersion

SnapshotAt = Callable[[str, PointInTime], int | None]
"""The id of a table's snapshot on main at an index, time or named index of the timeline.

None: the table did not exist yet, or was empty. NotFound: the timeline has no such point.
"""

_RESERVED = (MAIN_BRANCH, TRANSACTION_PREFIX, CLONE_TAG)


def find_snapshot(version: TableVersion, point: PointInTime, snapshot_at: SnapshotAt | None) -> Snapshot:
    """The snapshot at a point in time. NotFound lists what exists.

    Indexes and times are the timeline's. Without one (`snapshot_at` None), a time is that of Iceberg's snapshot log.
    """
    match point:
        case SnapshotId(id=requested):
            return _by_id(version, requested)
        case NamedSnapshot(name=name):
            tagged = named_snapshot_id(version.name, version.metadata.refs, name, snapshot_at)
            if tagged is not None:
                return _by_id(version, tagged)
    if snapshot_at is None:
        return _without_timeline(version, point)
    try:
        snapshot_id = snapshot_at(version.name, point)
    except NotFound as error:
        raise _unnamed(version, point.name, error) if isinstance(point, NamedSnapshot) else error from None
    if snapshot_id is None:
        raise NotFound(
            f"{version.name} had no snapshot at {point}: it did not exist yet, or was empty", subject=version.name
        )
    return _by_id(version, snapshot_id)


def named_snapshot_id(
    table: str, refs: Mapping[str, SnapshotRef], name: str, snapshot_at: SnapshotAt | None
) -> int | None:
    """The snapshot that the table's tag or branch of this name refers to; None if it has none.

    Invalid when an index of the timeline has the same name but another snapshot of the table.
    """
    ref = refs.get(name)
    if ref is None or snapshot_at is None:
        return None if ref is None else ref.snapshot_id
    try:
        indexed = snapshot_at(table, NamedSnapshot(name))
    except NotFound:
        return ref.snapshot_id
    if indexed != ref.snapshot_id:
        other = "had no snapshot" if indexed is None else f"was at snapshot {indexed}"
        raise Invalid(
            f"{name!r} is ambiguous: it names snapshot {ref.snapshot_id} of {table}, and an index of the timeline at "
            f"which {table} {other}: write snapshot:{ref.snapshot_id}, or the index's number",
            subject=table,
        )
    return ref.snapshot_id


def _by_id(version: TableVersion, snapshot_id: int) -> Snapshot:
    snapshot = version.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise NotFound(
            f"{version.name} has no snapshot {snapshot_id}: it may have expired; `strandline table history "
            f"{version.name}` lists those that exist",
            subject=version.name,
        )
    return snapshot


def _without_timeline(version: TableVersion, point: PointInTime) -> Snapshot:
    if isinstance(point, NamedSnapshot):
        raise _unnamed(version, point.name)
    if not isinstance(point, Moment):
        raise NotFound(f"{version.name} as of index {point}: this lake has no timeline", subject=version.name)
    entries = [entry for entry in version.metadata.snapshot_log if entry.timestamp_ms <= point.ms]
    if not entries:
        raise NotFound(f"{version.name} has no snapshot from {point} or before", subject=version.name)
    return _by_id(version, entries[-1].snapshot_id)


def _unnamed(version: TableVersion, name: str, cause: NotFound | None = None) -> NotFound:
    names = ", ".join(sorted(version.metadata.refs)) or "none"
    why = "" if cause is None else f" ({cause.message})"
    return NotFound(f"{version.name} has no snapshot named {name!r}{why}; named are: {names}", subject=version.name)


def history(version: TableVersion) -> list[Snapshot]:
    """Main's snapshots, newest first."""
    return list(ancestors_of(version.metadata.current_snapshot(), version.metadata))


def name_snapshot(
    committer: Committer, name: str, tag: str, point: PointInTime | None, snapshot_at: SnapshotAt | None
) -> Snapshot:
    """Names a snapshot, which keeps it from expiring. A name never moves: Conflict if it names another snapshot.

    Without a point it names the snapshot that is current at the first attempt, whatever is committed meanwhile.
    """
    check_name(tag)
    if not tag or tag.startswith(_RESERVED) or any(c.isspace() for c in tag):
        raise Invalid(f"{tag!r} cannot name a snapshot: choose a word that does not begin with {', '.join(_RESERVED)}")

    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        nonlocal point
        snapshot = _current(version) if point is None else find_snapshot(version, point, snapshot_at)
        point = SnapshotId(snapshot.snapshot_id)
        ref = version.metadata.refs.get(tag)
        if ref is not None and ref.snapshot_id != snapshot.snapshot_id:
            raise Conflict(
                f"{name}: {tag!r} already names snapshot {ref.snapshot_id}: choose another name",
                subject=name,
            )
        updates = [] if ref else [set_ref(tag, snapshot.snapshot_id, SnapshotRefType.TAG)]
        return updates, snapshot, Delta()

    _, snapshot, _ = committer.commit(name, attempt, branch=None)
    assert snapshot is not None
    return snapshot


def unname_snapshot(committer: Committer, name: str, tag: str) -> None:
    """Removes the name; the snapshot may then expire. Also removes a clone's pin."""

    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        ref = version.metadata.refs.get(tag)
        if ref is None or ref.snapshot_ref_type != SnapshotRefType.TAG:
            raise NotFound(f"{name} has no snapshot named {tag!r}", subject=name)
        return [RemoveSnapshotRefUpdate(ref_name=tag)], version.head(), Delta()

    committer.commit(name, attempt, branch=None)


def roll_back(committer: Committer, name: str, to: PointInTime, snapshot_at: SnapshotAt | None) -> Snapshot:
    """Makes an earlier snapshot of main current again. Later ones stay until they expire, and so do their tokens."""

    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        snapshot = find_snapshot(version, to, snapshot_at)
        if snapshot.snapshot_id == version.metadata.current_snapshot_id:
            return [], snapshot, Delta()
        logged = {entry.snapshot_id for entry in version.metadata.snapshot_log}
        if snapshot.snapshot_id not in logged | {s.snapshot_id for s in history(version)}:
            raise Invalid(f"{name}: cannot roll back to snapshot {snapshot.snapshot_id}: it was never current")
        return [set_ref(MAIN_BRANCH, snapshot.snapshot_id)], snapshot, Delta()

    _, snapshot, _ = committer.commit(name, attempt)
    assert snapshot is not None
    return snapshot


def _current(version: TableVersion) -> Snapshot:
    snapshot = version.metadata.current_snapshot()
    if snapshot is None:
        raise NotFound(f"{version.name} has no snapshot yet: write to it first", subject=version.name)
    return snapshot
