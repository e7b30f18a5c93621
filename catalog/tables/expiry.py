"""Expiry: snapshots leave the metadata, then the files that no remaining snapshot refers to are deleted.

Never deletes an object outside the table's own location, which is what makes zero-copy clones safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from catalog.errors import Invalid
from catalog.refusals import explained
from catalog.tables.commits import TRANSACTION_PREFIX, Committer
from catalog.tables.deltas import Delta
from catalog.tables.fileio import CommitIO
from catalog.tables.history import past
from catalog.tables.versions import Version


@dataclass(frozen=True)
class Expired:
    """What an expiry took away: snapshot ids, and the paths of deleted objects."""

    snapshots: tuple[int, ...] = ()
    objects: tuple[str, ...] = ()
    waiting: int = 0
    """How many more were old enough, but had to be kept."""


def expire_snapshots(
    committer: Committer, name: str, older_than_ms: int, retain_last: int, keep: Callable[[Snapshot], bool]
) -> Expired:
    """Expires snapshots older than the time, but never what a reference names or `keep` is true for.

    What is kept keeps the snapshot before it: without that, nobody could say any more what it changed.
    Requests: one commit, one GET for each manifest list and manifest not seen before, one delete per thousand
    objects. A crash after the commit leaves objects nobody refers to; the snapshots are gone all the same.
    """
    if retain_last < 1:
        raise Invalid(f"{name}: at least one snapshot must be retained, not {retain_last}", subject=name)
    gone: list[Snapshot] = []
    waiting = 0

    def attempt(version: Version, io: CommitIO) -> tuple[Sequence[TableUpdate], Snapshot | None, Delta]:
        nonlocal gone, waiting
        old = [snapshot for snapshot in version.metadata.snapshots if snapshot.timestamp_ms < older_than_ms]
        named = _held(version, retain_last)
        kept = [snapshot for snapshot in version.metadata.snapshots if keep(snapshot)]
        held = named | {id_ for s in kept for id_ in (s.snapshot_id, s.parent_snapshot_id) if id_}
        gone = [snapshot for snapshot in old if snapshot.snapshot_id not in held]
        waiting = sum(snapshot.snapshot_id in held - named for snapshot in old)
        updates = [RemoveSnapshotsUpdate(snapshot_ids=[s.snapshot_id for s in gone])] if gone else []
        return updates, version.head(), Delta()

    version, _, _ = committer.commit(name, attempt, holder=None)
    if not gone:
        return Expired(waiting=waiting)
    with explained(name):
        objects = sorted(unreferenced(committer, version, gone))
        committer.catalogue.io.store.delete(objects)
    return Expired(tuple(snapshot.snapshot_id for snapshot in gone), tuple(objects), waiting)


def _held(version: Version, retain_last: int) -> set[int]:
    metadata = version.metadata
    held = {ref.snapshot_id for ref in metadata.refs.values()}
    held |= {snapshot.snapshot_id for snapshot in past(version)[:retain_last]}
    for ref, named in metadata.refs.items():
        if ref.startswith(TRANSACTION_PREFIX):  # not visible yet: its whole branch is
            held |= {s.snapshot_id for s in ancestors_of(metadata.snapshot_by_id(named.snapshot_id), metadata)}
    return held


def unreferenced(committer: Committer, version: Version, gone: Iterable[Snapshot]) -> set[str]:
    """The objects of snapshots that left the metadata which none of those still in it needs.

    Sound against writers at work: whatever they commit next refers only to files of a snapshot that stays.
    """
    kept = _manifests(committer, version.metadata.snapshots)
    dropped = _manifests(committer, gone)
    live = {path for manifest in kept.values() for path in _files(committer, manifest)}
    found = {snapshot.manifest_list for snapshot in gone} - {s.manifest_list for s in version.metadata.snapshots}
    found |= dropped.keys() - kept.keys()
    for path, manifest in dropped.items():
        if path not in kept:
            found |= _files(committer, manifest) - live
    paths = version.paths()
    own = tuple(f"{place}/" for place in (version.metadata.location.rstrip("/"), paths.data_path, paths.metadata_path))
    return {path for path in found if path.startswith(own)}


def _manifests(committer: Committer, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    io, reader = committer.catalogue.io, committer.manifests
    return {m.manifest_path: m for snapshot in snapshots for m in reader.manifests(io, snapshot)}


def _files(committer: Committer, manifest: ManifestFile) -> set[str]:
    """The files that are live in the manifest. One that it deletes was live in an older one, and is found there."""
    entries = committer.manifests.entries(committer.catalogue.io, manifest)
    return {entry.data_file.file_path for entry in entries}
