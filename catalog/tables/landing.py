"""How a transaction's branch ends: main moves to its head, or the branch goes as if it had never been.

Both can be done by anybody, any number of times, and end the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate, TableUpdate

from catalog.errors import Conflict
from catalog.refusals import explained
from catalog.summary import PICKED, TRANSACTION
from catalog.tables.commits import Committer, Tell
from catalog.tables.deltas import Delta, noted, produce, set_ref
from catalog.tables.expiry import unreferenced
from catalog.tables.fileio import CommitIO
from catalog.tables.live import LiveFiles, referenced_path
from catalog.tables.versions import Version

_Attempt = tuple[Sequence[TableUpdate], Snapshot | None, Delta]


def finish(committer: Committer, name: str, branch: str, tell: Tell | None = None) -> None:
    """Moves main to the branch's head and takes the branch away, in one commit; nothing if that is done."""

    def attempt(version: Version, io: CommitIO) -> _Attempt:
        head = version.metadata.snapshot_by_name(branch)
        if head is None:
            return [], version.head(), Delta()
        unref = RemoveSnapshotRefUpdate(ref_name=branch)
        if _on_main(version, head):
            return [unref], head, Delta()
        staged = _staged(version, head)
        base = staged[-1].parent_snapshot_id
        if base == version.metadata.current_snapshot_id:
            return [set_ref(MAIN_BRANCH, head.snapshot_id), unref], head, Delta()
        snapshot, updates = _pick(committer, version, staged, io)
        return [*updates, unref], snapshot, Delta()

    committer.commit(name, attempt, holder=None, tell=tell)


def undo(committer: Committer, name: str, branch: str) -> None:
    """Takes the branch, its snapshots and their files away. A crash on the way leaves objects nobody refers to."""
    gone: list[Snapshot] = []

    def attempt(version: Version, io: CommitIO) -> _Attempt:
        nonlocal gone
        head = version.metadata.snapshot_by_name(branch)
        if head is None:
            gone = []
            return [], version.head(), Delta()
        gone = [] if _on_main(version, head) else _staged(version, head)
        updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=branch)]
        if gone:
            updates.append(RemoveSnapshotsUpdate(snapshot_ids=[s.snapshot_id for s in gone]))
        return updates, version.head(), Delta()

    version, _, _ = committer.commit(name, attempt, holder=None)
    if gone:
        with explained(name):
            committer.catalogue.io.store.delete(unreferenced(committer, version, gone))


def _on_main(version: Version, snapshot: Snapshot) -> bool:
    main = ancestors_of(version.metadata.current_snapshot(), version.metadata)
    return any(found.snapshot_id == snapshot.snapshot_id for found in main)


def _staged(version: Version, head: Snapshot) -> list[Snapshot]:
    """The branch's own snapshots, newest first: those with the head's transaction in their summary."""
    transaction = noted(head, TRANSACTION)
    branch = ancestors_of(head, version.metadata)
    return [s for s in branch if noted(s, TRANSACTION) == transaction]


def _pick(
    committer: Committer, version: Version, staged: Sequence[Snapshot], io: CommitIO
) -> tuple[Snapshot, Sequence[TableUpdate]]:
    """Main moved although it was held, so by a writer that is not ours: the staged files go on top of its commit.

    Sound as long as every file the transaction replaced is still there; whether the other writer added a key
    that the transaction added too is beyond what files can tell.
    """
    reader = committer.manifests
    ids = {snapshot.snapshot_id for snapshot in staged}
    base = version.metadata.snapshot_by_id(staged[-1].parent_snapshot_id or 0)
    added = [entry for entry in _live(committer, staged[0]) if entry.snapshot_id in ids]
    kept = {entry.data_file.file_path for entry in _live(committer, staged[0])}
    now = {entry.data_file.file_path: entry for entry in _live(committer, version.head())}
    removed = [e.data_file.file_path for e in _live(committer, base) if e.data_file.file_path not in kept]
    marked = [referenced_path(e.data_file) for e in added if e.data_file.content != 0]
    own = {entry.data_file.file_path for entry in added}
    missing = [path for path in [*removed, *marked] if path not in now and path not in own]
    if missing:
        raise Conflict(
            f"{version.name}: another engine replaced files that the committed transaction "
            f"{noted(staged[0], TRANSACTION)} replaces too; roll {version.name} back to "
            f"snapshot {base.snapshot_id if base else None} and recover again",
            subject=version.name,
        )
    properties = staged[0].summary.additional_properties if staged[0].summary else {}
    carried = {key: value for key, value in properties.items() if key.startswith("strandline.")}
    delta = Delta(
        added=tuple(entry.data_file for entry in added),
        removed=tuple(now[path] for path in removed),
        operation=Operation.OVERWRITE if removed or marked else Operation.APPEND,
        properties={**carried, PICKED: str(staged[0].snapshot_id)},
    )
    return produce(version, delta, io, reader)


def _live(committer: Committer, snapshot: Snapshot | None) -> list[ManifestEntry]:
    io = committer.catalogue.io
    live = LiveFiles.of(io, committer.manifests, snapshot, "")
    entries = [file.entry for file in live.data] + list(live.deletes)
    return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
