"""How a transaction's branch is resolved: main moves to its head, or the branch is removed with all it added.

Any process may do either, any number of times, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate, TableUpdate

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import Conflict
from catalog.iceberg import PICKED_FROM, TRANSACTION_ID, CommitIO, LiveFiles, referenced_path
from catalog.tables.committer import COMMIT_TOKEN, TOKEN_ROWS, AttemptResult, Committer, Notify
from catalog.tables.delta import Delta, build_snapshot, set_ref, summary_value
from catalog.tables.expiry import unreferenced
from catalog.tables.glue_store import TableVersion


def commit_branch(committer: Committer, name: str, branch: str, notify: Notify | None = None) -> None:
    """Moves main to the branch's head and removes the branch, in one commit. Does nothing without the branch."""

    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
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

    committer.commit(name, attempt, branch=None, notify=notify)


def abort_branch(committer: Committer, name: str, branch: str) -> None:
    """Removes the branch, its snapshots and their files. A crash half-way leaves objects that nothing refers to."""
    removed: list[Snapshot] = []

    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        nonlocal removed
        head = version.metadata.snapshot_by_name(branch)
        if head is None:
            removed = []
            return [], version.head(), Delta()
        removed = [] if _on_main(version, head) else _staged(version, head)
        updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=branch)]
        if removed:
            updates.append(RemoveSnapshotsUpdate(snapshot_ids=[s.snapshot_id for s in removed]))
        return updates, version.head(), Delta()

    version, _, _ = committer.commit(name, attempt, branch=None)
    if removed:
        with translate_aws_errors(name):
            committer.table_store.io.store.delete(unreferenced(committer, version, removed))


def _on_main(version: TableVersion, snapshot: Snapshot) -> bool:
    main = ancestors_of(version.metadata.current_snapshot(), version.metadata)
    return any(ancestor.snapshot_id == snapshot.snapshot_id for ancestor in main)


def _staged(version: TableVersion, head: Snapshot) -> list[Snapshot]:
    """The branch's own snapshots, newest first: those with the head's transaction in their summary."""
    transaction = summary_value(head, TRANSACTION_ID)
    branch = ancestors_of(head, version.metadata)
    return [s for s in branch if summary_value(s, TRANSACTION_ID) == transaction]


def _pick(
    committer: Committer, version: TableVersion, staged: Sequence[Snapshot], io: CommitIO
) -> tuple[Snapshot, Sequence[TableUpdate]]:
    """A snapshot with the staged files on top of main, which a foreign writer moved although the transaction held it.

    Conflict if a file that the transaction replaces is gone. A key that both the transaction and the other writer
    added is not detected: file metadata does not show it.
    """
    reader = committer.manifests
    ids = {snapshot.snapshot_id for snapshot in staged}
    base = version.metadata.snapshot_by_id(staged[-1].parent_snapshot_id or 0)
    added = [entry for entry in _live(committer, staged[0]) if entry.snapshot_id in ids]
    retained = {entry.data_file.file_path for entry in _live(committer, staged[0])}
    current = {entry.data_file.file_path: entry for entry in _live(committer, version.head())}
    removed = [e.data_file.file_path for e in _live(committer, base) if e.data_file.file_path not in retained]
    referenced = [referenced_path(e.data_file) for e in added if e.data_file.content != 0]
    added_paths = {entry.data_file.file_path for entry in added}
    missing = [path for path in [*removed, *referenced] if path not in current and path not in added_paths]
    if missing:
        raise Conflict(
            f"{version.name}: another engine replaced files that the committed transaction "
            f"{summary_value(staged[0], TRANSACTION_ID)} replaces too; roll {version.name} back to "
            f"snapshot {base.snapshot_id if base else None} and recover again",
            subject=version.name,
        )
    properties = staged[0].summary.additional_properties if staged[0].summary else {}
    inherited = {key: value for key, value in properties.items() if key.startswith("strandline.")}
    delta = Delta(
        added=tuple(entry.data_file for entry in added),
        removed=tuple(current[path] for path in removed),
        operation=Operation.OVERWRITE if removed or referenced else Operation.APPEND,
        properties={**inherited, **_tokens(staged), PICKED_FROM: str(staged[0].snapshot_id)},
    )
    return build_snapshot(version, delta, io, reader)


def _tokens(staged: Sequence[Snapshot]) -> dict[str, str]:
    """The tokens of all of them: the picked snapshot is the only one that stays."""
    values = {key: " ".join(summary_value(s, key) for s in staged).strip() for key in (COMMIT_TOKEN, TOKEN_ROWS)}
    return {key: value for key, value in values.items() if value}


def _live(committer: Committer, snapshot: Snapshot | None) -> list[ManifestEntry]:
    io = committer.table_store.io
    live = LiveFiles.of(io, committer.manifests, snapshot, "")
    entries = [file.entry for file in live.data] + list(live.deletes)
    return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
