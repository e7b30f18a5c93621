"""Clones: a new table over the files of another's snapshot, without copying them.

The source pins the snapshot with a tag, so that no expiry, here or in Spark, deletes a file the clone reads; the
clone deletes nothing outside its own location. So either can live on without regard to the other, and only
purging the source is refused while the pin is there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from uuid import uuid4

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.update import RemoveSnapshotRefUpdate, TableUpdate

from catalog.errors import NotFound
from catalog.refusals import explained
from catalog.tables.commits import Committer
from catalog.tables.creation import CLONE_TAG, drop_table, make_database, register
from catalog.tables.deltas import Delta, noted, set_ref
from catalog.tables.fileio import CommitIO
from catalog.tables.history import AsOf, find_snapshot
from catalog.tables.manifests import ManifestPlan
from catalog.tables.versions import Version, split_name

CLONE_OF, CLONE_PIN = "strandline.clone-of", "strandline.clone-pin"
_TOTALS = ("total-records", "total-data-files", "total-delete-files", "total-files-size",
           "total-position-deletes", "total-equality-deletes")  # fmt: skip

_Attempt = tuple[Sequence[TableUpdate], Snapshot | None, Delta]


def clone_table(committer: Committer, name: str, target: str, as_of: AsOf | None) -> Version:
    """Pin, write two small objects, register. A crash after the pin leaves a tag that only delays expiry."""
    catalogue = committer.catalogue
    database, table = split_name(target)
    source = catalogue.load(name)
    snapshot = find_snapshot(source, as_of) if as_of is not None else source.head()
    pin = f"{CLONE_TAG}{target}-{uuid4().hex[:8]}"
    if snapshot is not None:
        _pin(committer, name, pin, snapshot)
    try:
        with explained(target):
            make_database(catalogue.catalog, database)
            location = catalogue.catalog._resolve_table_location(None, database, table)
            metadata = _metadata(committer, source, snapshot, location, target, pin)
            version = Version(target, metadata, "", {})
            path = version.paths().new_table_metadata_file_location()
            catalogue.io.store.put(path, metadata.model_dump_json(exclude_none=True).encode())
        register(catalogue, target, metadata, path)
    except Exception:
        if snapshot is not None:
            _unpin(committer, name, pin)
        raise
    made = catalogue.load(target)
    committer.announce(made, made.head(), ())
    return made


def drop_clone_or_table(committer: Committer, name: str, *, purge: bool) -> None:
    """Drops a table. A purged clone takes its pin off its source; one that is only dropped may yet be needed."""
    version = committer.catalogue.load(name)
    drop_table(committer, version, purge=purge)
    source, pin = version.properties.get(CLONE_OF, "").partition("@")[0], version.properties.get(CLONE_PIN)
    if purge and source and pin:
        with suppress(NotFound):  # the source is gone, and its pins with it
            _unpin(committer, source, pin)


def _pin(committer: Committer, name: str, pin: str, snapshot: Snapshot) -> None:
    # Refused by the metadata itself if the snapshot expired meanwhile: then nothing was cloned yet.
    def attempt(version: Version, io: CommitIO) -> _Attempt:
        if version.metadata.snapshot_by_id(snapshot.snapshot_id) is None:
            raise NotFound(f"{name}: snapshot {snapshot.snapshot_id} has expired", subject=name)
        return [set_ref(pin, snapshot.snapshot_id, SnapshotRefType.TAG)], version.head(), Delta()

    committer.commit(name, attempt, holder=None)


def _unpin(committer: Committer, name: str, pin: str) -> None:
    def attempt(version: Version, io: CommitIO) -> _Attempt:
        updates = [RemoveSnapshotRefUpdate(ref_name=pin)] if pin in version.metadata.refs else []
        return updates, version.head(), Delta()

    committer.commit(name, attempt, holder=None)


def _metadata(
    committer: Committer, source: Version, snapshot: Snapshot | None, location: str, target: str, pin: str
) -> TableMetadata:
    now = max(int(time.time() * 1000), source.metadata.last_updated_ms + 1)
    properties = {k: v for k, v in source.properties.items() if k not in (CLONE_OF, CLONE_PIN)}
    of = f"{source.name}@{snapshot.snapshot_id}" if snapshot else source.name
    properties |= {CLONE_OF: of, **({CLONE_PIN: pin} if snapshot else {})}
    bare = source.metadata.model_copy(
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
        return bare
    made = _first_snapshot(committer, Version(target, bare, "", {}), source, snapshot, now, of)
    return bare.model_copy(
        update={
            "snapshots": [made],
            "snapshot_log": [SnapshotLogEntry(snapshot_id=made.snapshot_id, timestamp_ms=now)],
            "current_snapshot_id": made.snapshot_id,
            "current_schema_id": made.schema_id,
            "last_sequence_number": made.sequence_number,
            "refs": {MAIN_BRANCH: _branch(made)},
        }
    )


def _branch(snapshot: Snapshot) -> SnapshotRef:
    return SnapshotRef.model_validate({"snapshot-id": snapshot.snapshot_id, "type": SnapshotRefType.BRANCH})


def _first_snapshot(
    committer: Committer, clone: Version, source: Version, snapshot: Snapshot, now: int, of: str
) -> Snapshot:
    """A snapshot of the clone's own with the source's manifests, which keep their sequence numbers."""
    io = CommitIO(committer.catalogue.io)
    snapshot_id, sequence = clone.metadata.new_snapshot_id(), source.metadata.next_sequence_number()
    plan = ManifestPlan(clone, io, committer.manifests, snapshot_id, sequence)
    manifests = committer.manifests.manifests(io, snapshot)
    path = plan.write_list(None, manifests)
    io.settle()
    totals = {name: value for name in _TOTALS if (value := noted(snapshot, name))}
    return Snapshot(
        snapshot_id=snapshot_id,
        sequence_number=sequence,
        timestamp_ms=now,
        manifest_list=path,
        summary=Summary(operation=Operation.APPEND, **totals, **{CLONE_OF: of}),
        schema_id=snapshot.schema_id if snapshot.schema_id is not None else source.metadata.current_schema_id,
    )
