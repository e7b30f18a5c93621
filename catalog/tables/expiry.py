"""Expiry: removes snapshots from the metadata, then deletes the files that no remaining snapshot refers to.

Never deletes an object outside the table's own location: a clone reads files of its source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import RemoveSnapshotsUpdate

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import Invalid
from catalog.iceberg import TRANSACTION_PREFIX, CommitIO
from catalog.tables.commit_tokens import keep_tokens
from catalog.tables.committer import AttemptResult, Committer
from catalog.tables.delta import Delta
from catalog.tables.glue_store import TableVersion
from catalog.tables.legal_hold import check_hold
from catalog.tables.snapshots import history


@dataclass(frozen=True)
class Expired:
    """What an expiry removed: snapshot ids, and the paths of deleted objects."""

    snapshots: tuple[int, ...] = ()
    objects: tuple[str, ...] = ()
    waiting: int = 0
    """How many more snapshots were old enough, but had to be kept."""


def expire_snapshots(
    committer: Committer, name: str, older_than_ms: int, retain_last: int, keep: Callable[[Snapshot], bool]
) -> Expired:
    """Expires snapshots older than the time, but none that a reference names or `keep` is true for.

    The parent of a snapshot that `keep` is true for stays too: its changes are computed from both. The tokens of
    expired snapshots are kept for as long as idempotency keys are valid, so that no write is repeated.
    Denied under a legal hold. Requests: one commit, one GET for each manifest list and manifest not read before, one
    delete per thousand objects. A crash after the commit leaves objects that nothing refers to.
    """
    if retain_last < 1:
        raise Invalid(f"{name}: at least one snapshot must be retained, not {retain_last}", subject=name)
    expired: list[Snapshot] = []
    obsolete: list[str] = []
    waiting = 0

    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        nonlocal expired, obsolete, waiting
        check_hold(version, "expired")
        old = [snapshot for snapshot in version.metadata.snapshots if snapshot.timestamp_ms < older_than_ms]
        referenced = _referenced(version, retain_last)
        kept = [snapshot for snapshot in version.metadata.snapshots if keep(snapshot)]
        retained = referenced | {id_ for s in kept for id_ in (s.snapshot_id, s.parent_snapshot_id) if id_}
        expired = [snapshot for snapshot in old if snapshot.snapshot_id not in retained]
        waiting = sum(snapshot.snapshot_id in retained - referenced for snapshot in old)
        if not expired:
            return [], version.head(), Delta()
        updates, obsolete = keep_tokens(version, expired, io)
        removal = RemoveSnapshotsUpdate(snapshot_ids=[s.snapshot_id for s in expired])
        return [removal, *updates], version.head(), Delta()

    version, _, _ = committer.commit(name, attempt, branch=None)
    if not expired:
        return Expired(waiting=waiting)
    with translate_aws_errors(name):
        objects = sorted(unreferenced(committer, version, expired))
        committer.table_store.io.store.delete([*objects, *obsolete])
    return Expired(tuple(snapshot.snapshot_id for snapshot in expired), tuple(objects), waiting)


def _referenced(version: TableVersion, retain_last: int) -> set[int]:
    """The snapshots that references name, main's last ones, and all of a transaction's branch."""
    metadata = version.metadata
    ids = {ref.snapshot_id for ref in metadata.refs.values()}
    ids |= {snapshot.snapshot_id for snapshot in history(version)[:retain_last]}
    for name, ref in metadata.refs.items():
        if name.startswith(TRANSACTION_PREFIX):
            ids |= {s.snapshot_id for s in ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata)}
    return ids


def unreferenced(committer: Committer, version: TableVersion, removed: Iterable[Snapshot]) -> set[str]:
    """The objects of snapshots removed from the metadata that no remaining snapshot refers to.

    Safe while others write: what they commit next refers only to files of a remaining snapshot.
    """
    kept = _manifests(committer, version.metadata.snapshots)
    dropped = _manifests(committer, removed)
    live = {path for manifest in kept.values() for path in _files(committer, manifest)}
    unused = {snapshot.manifest_list for snapshot in removed} - {s.manifest_list for s in version.metadata.snapshots}
    unused |= dropped.keys() - kept.keys()
    for path, manifest in dropped.items():
        if path not in kept:
            unused |= _files(committer, manifest) - live
    paths = version.paths()
    folders = (version.metadata.location.rstrip("/"), paths.data_path, paths.metadata_path)
    return {path for path in unused if path.startswith(tuple(f"{folder}/" for folder in folders))}


def _manifests(committer: Committer, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    io, reader = committer.table_store.io, committer.manifests
    return {m.manifest_path: m for snapshot in snapshots for m in reader.manifests(io, snapshot)}


def _files(committer: Committer, manifest: ManifestFile) -> set[str]:
    """The files that are live in the manifest. A file that it deletes is live in an older manifest."""
    entries = committer.manifests.entries(committer.table_store.io, manifest)
    return {entry.data_file.file_path for entry in entries}
