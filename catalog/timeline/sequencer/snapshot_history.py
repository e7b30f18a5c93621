"""A table's snapshots as its metadata lists them: their ancestry, their branches, and which have no leaf yet. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.iceberg import PARTICIPANTS, PICKED_FROM, TRANSACTION_ID, TRANSACTION_PREFIX
from catalog.timeline.log.leaf import MAIN
from catalog.timeline.sequencer.table_state import MetadataFile, References, TableEvent, TransactionCommit


class SnapshotHistory:
    """A table's snapshots: their ancestry, and those that have no leaf yet, oldest first."""

    def __init__(self, metadata: TableMetadata, file: MetadataFile, sequenced: Collection[int]) -> None:
        self._by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        self._file = file
        self._current_schema = file.schemas[metadata.current_schema_id]
        # Format v1 has no sequence numbers: there the time is the order.
        pending = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in sequenced]
        self._pending = sorted(pending, key=lambda s: (s.sequence_number or 0, s.timestamp_ms))
        self._branch_of = self._branches(metadata)

    def ancestors(self, snapshot_id: int | None) -> set[int]:
        """The snapshot and all its ancestors that have not expired."""
        ancestors = set[int]()
        while snapshot_id is not None and snapshot_id in self._by_id and snapshot_id not in ancestors:
            ancestors.add(snapshot_id)
            snapshot_id = self._by_id[snapshot_id].parent_snapshot_id
        return ancestors

    def follows(self, target: int, main: int | None) -> bool:
        """Whether the target was committed on top of the snapshot that main was at.

        If not, main moved to it separately: past other snapshots of one commit, from a branch, or because the writer
        named another parent, or none. Such a move is compared with where main was, not with the parent that the
        writer named. For a table that is new to the timeline, expired snapshots are unknown, so any parent that is
        gone counts.
        """
        snapshot = self._by_id.get(target)
        parent = snapshot.parent_snapshot_id if snapshot is not None else None
        return parent == main or (main is None and parent not in self._by_id)

    def transaction_of(self, name: str, target: int, refs: References) -> TransactionCommit | None:
        """The transaction whose commit moved main to the target; None when the timeline has that commit already."""
        snapshot = self._by_id.get(target)
        identity = _summary_property(snapshot, TRANSACTION_ID)
        if not identity or (TRANSACTION_PREFIX + identity not in refs and not self._is_pending(target)):
            return None
        try:
            participants = {
                str(table): str(id_) for table, id_ in json.loads(_summary_property(snapshot, PARTICIPANTS))
            }
        except (ValueError, TypeError):
            return None
        staged = _summary_property(snapshot, PICKED_FROM) or str(target)
        return TransactionCommit(identity, tuple(sorted(participants))) if participants.get(name) == staged else None

    def take_until(self, target: int, ref: str | None, transaction: TransactionCommit | None) -> Iterator[TableEvent]:
        """Takes the pending snapshots up to the target; none when the target is not pending.

        `ref` is the reference that the target's own commit moved. A transaction's snapshots are on its branch.
        """
        if not self._is_pending(target):
            return
        while True:
            snapshot = self._pending.pop(0)
            last = snapshot.snapshot_id == target
            branch = ref if last and ref is not None else self._branch_of.get(snapshot.snapshot_id)
            if transaction is not None and _summary_property(snapshot, TRANSACTION_ID) == transaction.id:
                branch = TRANSACTION_PREFIX + transaction.id
            yield self._event(snapshot, branch)
            if last:
                return

    def take_all(self) -> Iterator[TableEvent]:
        while self._pending:
            snapshot = self._pending.pop(0)
            yield self._event(snapshot, self._branch_of.get(snapshot.snapshot_id))

    def _is_pending(self, snapshot_id: int) -> bool:
        return any(snapshot.snapshot_id == snapshot_id for snapshot in self._pending)

    def _branches(self, metadata: TableMetadata) -> dict[int, str]:
        """The branch, other than main, that each snapshot is on; of several, the first by name."""
        on_main = self.ancestors(metadata.current_snapshot_id)
        branches = dict[int, str]()
        for name, ref in sorted(metadata.refs.items()):
            if ref.snapshot_ref_type.value == "branch" and name != MAIN:
                for snapshot_id in self.ancestors(ref.snapshot_id) - on_main:
                    branches.setdefault(snapshot_id, name)
        return branches

    def _event(self, snapshot: Snapshot, ref: str | None) -> TableEvent:
        schema = self._current_schema if snapshot.schema_id is None else self._file.schemas.get(snapshot.schema_id)
        operation = snapshot.summary.operation.value if snapshot.summary else "append"
        return TableEvent(
            operation,
            ref,
            snapshot.snapshot_id,
            snapshot.parent_snapshot_id,
            snapshot.timestamp_ms,
            schema,
            snapshot,
        )


def _summary_property(snapshot: Snapshot | None, name: str) -> str:
    """A property of the snapshot's summary; empty when there is none."""
    if snapshot is None or snapshot.summary is None:
        return ""
    return snapshot.summary.additional_properties.get(name) or ""
