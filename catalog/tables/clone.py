"""Clones: a new table over the files of another table's snapshot, without copying them.

A tag on the source pins the snapshot, so that no expiry, here or in Spark, deletes a file the clone reads; the clone
deletes nothing outside its own location. So both can be written independently; only purging the source is refused
while the pin exists.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import NotFound
from catalog.core.point_in_time import PointInTime
from catalog.iceberg import CommitIO, new_table_location
from catalog.tables.commit_tokens import ALTER_TOKENS, EXPIRED_TOKENS
from catalog.tables.committer import AttemptResult, Committer
from catalog.tables.creation import CLONE_TAG, check_own_folder, drop_table, make_database, register
from catalog.tables.delta import Delta, set_ref, summary_value
from catalog.tables.glue_store import TableVersion, split_name
from catalog.tables.legal_hold import HOLD_PROPERTY
from catalog.tables.manifest_writer import ManifestPlan
from catalog.tables.snapshots import SnapshotAt, find_snapshot

CLONE_OF, CLONE_PIN = "strandline.clone-of", "strandline.clone-pin"
# Properties that a clone does not copy.
_NOT_COPIED = (CLONE_OF, CLONE_PIN, EXPIRED_TOKENS, ALTER_TOKENS, HOLD_PROPERTY, "strandline.erasure")
_TOTALS = ("total-records", "total-data-files", "total-delete-files", "total-files-size",
           "total-position-deletes", "total-equality-deletes")  # fmt: skip


@dataclass(frozen=True)
class Drop:
    """A planned drop. `source` and `pin`, for a clone: the table it reads, and the tag that keeps its files."""

    name: str
    uuid: str
    location: str
    source: str | None = None
    pin: str | None = None


def clone_table(
    committer: Committer, name: str, target: str, point: PointInTime | None, snapshot_at: SnapshotAt | None
) -> TableVersion:
    """Pins the snapshot, writes two small objects, and registers the table. A crash after the pin leaves a tag, which
    only delays expiry."""
    table_store = committer.table_store
    database, table = split_name(target)
    source = table_store.load(name)
    snapshot = find_snapshot(source, point, snapshot_at) if point is not None else source.head()
    pin, io = f"{CLONE_TAG}{target}-{uuid4().hex[:8]}", CommitIO(table_store.io)
    if snapshot is not None:
        _pin(committer, name, pin, snapshot)
    try:
        with translate_aws_errors(target):
            make_database(table_store.catalog, database)
            location = new_table_location(table_store.catalog, database, table)
            metadata = _metadata(committer, io, source, snapshot, location, target, pin)
            version = TableVersion(target, metadata, "", {})
            path = version.paths().new_table_metadata_file_location()
            table_store.io.store.put(path, metadata.model_dump_json(exclude_none=True).encode())
        register(table_store, target, metadata, path)
    except Exception:
        if snapshot is not None:
            _unpin(committer, name, pin)
        raise
    clone = table_store.load(target)
    committer.announce(clone, clone.head(), io.wait())
    return clone


def plan_drop(committer: Committer, name: str) -> Drop:
    version = committer.table_store.load(name)
    source, pin = version.properties.get(CLONE_OF, "").partition("@")[0], version.properties.get(CLONE_PIN)
    return Drop(name, version.uuid, version.metadata.location, source if pin else None, pin)


def finish_drop(committer: Committer, drop: Drop, *, purge: bool) -> None:
    """Drops a table. Purging a clone removes its pin from the source; without `purge` its files, and so the pin, stay.

    Repeat it after a crash: if the table has left the catalog its files are deleted, unless there is a new table of
    the name, which may have the same location.
    """
    table_store = committer.table_store
    try:
        version: TableVersion | None = table_store.load(drop.name)
    except NotFound:
        version = None
    if version is not None and version.uuid == drop.uuid:
        drop_table(committer, version, purge=purge)
    elif version is None and purge:
        check_own_folder(table_store, drop.name, drop.location)
        with translate_aws_errors(drop.name):
            table_store.io.store.delete_below(drop.location)
    if purge and drop.source and drop.pin:
        with suppress(NotFound):  # the source was dropped, with its pins
            _unpin(committer, drop.source, drop.pin)


def _pin(committer: Committer, name: str, pin: str, snapshot: Snapshot) -> None:
    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        if version.metadata.snapshot_by_id(snapshot.snapshot_id) is None:
            # It expired after it was found; nothing is cloned yet.
            raise NotFound(f"{name}: snapshot {snapshot.snapshot_id} has expired", subject=name)
        return [set_ref(pin, snapshot.snapshot_id, SnapshotRefType.TAG)], version.head(), Delta()

    committer.commit(name, attempt, branch=None)


def _unpin(committer: Committer, name: str, pin: str) -> None:
    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        updates = [RemoveSnapshotRefUpdate(ref_name=pin)] if pin in version.metadata.refs else []
        return updates, version.head(), Delta()

    committer.commit(name, attempt, branch=None)


def _metadata(
    committer: Committer,
    io: CommitIO,
    source: TableVersion,
    snapshot: Snapshot | None,
    location: str,
    target: str,
    pin: str,
) -> TableMetadata:
    now = max(int(time.time() * 1000), source.metadata.last_updated_ms + 1)
    properties = {k: v for k, v in source.properties.items() if k not in _NOT_COPIED}
    clone_of = f"{source.name}@{snapshot.snapshot_id}" if snapshot else source.name
    properties |= {CLONE_OF: clone_of, **({CLONE_PIN: pin} if snapshot else {})}
    empty = source.metadata.model_copy(
        update={
            "table_uuid": uuid4(),
            "location": location,
            "last_updated_ms": now,
            "properties": properties,
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "statistics": [],
            "partition_statistics": [],
            "refs": {},
            "current_snapshot_id": None,
        }
    )
    if snapshot is None:
        return empty
    first = _first_snapshot(committer, io, TableVersion(target, empty, "", {}), source, snapshot, now, clone_of)
    return empty.model_copy(
        update={
            "snapshots": [first],
            "snapshot_log": [SnapshotLogEntry(snapshot_id=first.snapshot_id, timestamp_ms=now)],
            "current_snapshot_id": first.snapshot_id,
            "current_schema_id": first.schema_id,
            "last_sequence_number": first.sequence_number,
            "refs": {MAIN_BRANCH: _branch(first)},
        }
    )


def _branch(snapshot: Snapshot) -> SnapshotRef:
    return SnapshotRef.model_validate({"snapshot-id": snapshot.snapshot_id, "type": SnapshotRefType.BRANCH})


def _first_snapshot(
    committer: Committer,
    io: CommitIO,
    clone: TableVersion,
    source: TableVersion,
    snapshot: Snapshot,
    now: int,
    clone_of: str,
) -> Snapshot:
    """The clone's first snapshot, with the source's manifests, which keep their sequence numbers."""
    snapshot_id, sequence = clone.metadata.new_snapshot_id(), source.metadata.next_sequence_number()
    plan = ManifestPlan(clone, io, committer.manifests, snapshot_id, sequence)
    manifests = committer.manifests.manifests(io, snapshot)
    path = plan.write_list(None, manifests)
    io.wait()
    totals = {name: value for name in _TOTALS if (value := summary_value(snapshot, name))}
    return Snapshot(
        snapshot_id=snapshot_id,
        sequence_number=sequence,
        timestamp_ms=now,
        manifest_list=path,
        summary=Summary(operation=Operation.APPEND, **totals, **{CLONE_OF: clone_of}),
        schema_id=snapshot.schema_id if snapshot.schema_id is not None else source.metadata.current_schema_id,
    )
