"""The events of a table since its last leaf, computed from its metadata file alone.

Pure: the metadata and the timeline's state of the table go in, events come out, oldest first. No message is trusted,
so a commit by any other engine gives the same events as one of ours.

A metadata file shows every snapshot that it still lists, every move of `main` in its snapshot log, and the present
state of all other references and of the schema. So a tag created and removed between two inspections, or a snapshot
that expired before the first one, leaves no leaf. The sequencer runs after every commit to keep that gap small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from pyiceberg.table.metadata import TableMetadata

from catalog.core.errors import Invalid
from catalog.iceberg import TRANSACTION_PREFIX
from catalog.timeline.log.erasure import ERASURE_PROPERTY, is_erasure_id
from catalog.timeline.log.leaf import ERASE, MAIN, RESET, TRANSACTION, is_like_main
from catalog.timeline.sequencer.snapshot_history import SnapshotHistory
from catalog.timeline.sequencer.table_state import MetadataFile, References, TableEvent, TableState, TransactionCommit


def table_events(
    name: str,
    metadata: TableMetadata,
    file: MetadataFile,
    state: TableState | None,
    sequenced: Collection[int],
    held: Collection[str] = (),
) -> tuple[list[TableEvent], TableState]:
    """The events that lead from `state` to the metadata, and the state after them.

    `sequenced`: the ids of those of the metadata's snapshots that have a leaf already. `held`: transactions that must
    not become visible yet; the events end before the first of them, and are otherwise the same. Invalid when a
    reference could be taken for main: its commits would look like commits to the table.
    """
    if like_main := [ref for ref in metadata.refs if is_like_main(ref)]:
        raise Invalid(f"{name} has a reference {like_main[0]!r}, which looks like main: give it another name")
    builder = _EventBuilder(name, metadata, file, state, sequenced)
    builder.add_creation_or_rename()
    if not builder.add_moves_of_main(held):
        return builder.events, builder.held_state()
    builder.add_remaining_snapshots()
    builder.add_moves_of_other_references()
    builder.add_schema_or_metadata_change()
    return builder.events, builder.final_state()


def drop_event(state: TableState, now_ms: int) -> tuple[TableEvent, TableState]:
    """The event of a table that is gone from its catalog, and the state after it."""
    dropped = replace(state, sequence=state.sequence + 1, dropped=True, metadata_location=None)
    return TableEvent("drop", MAIN, None, _main_snapshot(state.refs), now_ms, state.schema_sha256), dropped


class _EventBuilder:
    """Collects a table's events in order, with the references as they are after the last one."""

    def __init__(
        self,
        name: str,
        metadata: TableMetadata,
        file: MetadataFile,
        state: TableState | None,
        sequenced: Collection[int],
    ) -> None:
        self.events = list[TableEvent]()
        self._name = name
        self._metadata = metadata
        self._file = file
        self._is_new = state is None
        self._before = state or TableState(name)
        self._refs = dict(self._before.refs)
        self._log = self._before.log
        self._schema = self._before.schema_sha256
        self._current_schema = file.schemas[metadata.current_schema_id]
        erasure = metadata.properties.get(ERASURE_PROPERTY)
        self._erasure = erasure if is_erasure_id(erasure) else self._before.erasure
        self._history = SnapshotHistory(metadata, file, sequenced)

    def add_creation_or_rename(self) -> None:
        if self._is_new:
            # The oldest schema and time that the metadata still has: the leaf is the same however late the table is
            # first inspected.
            self._schema = self._file.schemas[min(self._file.schemas)]
            files = [entry.timestamp_ms for entry in self._metadata.metadata_log]
            snapshots = [snapshot.timestamp_ms for snapshot in self._metadata.snapshots]
            created_ms = min([*files, *snapshots, self._metadata.last_updated_ms])
            self._add_table_event("create", self._schema, created_ms)
        elif self._before.name != self._name or self._before.dropped:
            self._add_table_event("rename", self._schema or self._current_schema, self._metadata.last_updated_ms)

    def add_moves_of_main(self, held: Collection[str]) -> bool:
        """Each new entry of the snapshot log. False: it stopped before a transaction that is held back."""
        for moved_ms, target in _new_log_entries(self._metadata, self._before.log, _main_snapshot(self._refs)):
            transaction = self._history.transaction_of(self._name, target, self._refs)
            follows = transaction is None and self._history.follows(target, _main_snapshot(self._refs))
            self._add_snapshots(self._history.take_until(target, MAIN if follows else None, transaction))
            if transaction is not None and transaction.id in held:
                return False
            self._add_move_of_main(moved_ms, target, transaction)
            self._log = (moved_ms, target)
        return True

    def add_remaining_snapshots(self) -> None:
        """The other snapshots that have no leaf: those of other branches, and of none."""
        self._add_snapshots(self._history.take_all())

    def add_moves_of_other_references(self) -> None:
        """Every reference that is now elsewhere than the events so far left it."""
        refs = {name: (str(ref.snapshot_ref_type.value), ref.snapshot_id) for name, ref in self._metadata.refs.items()}
        updated_ms = self._metadata.last_updated_ms
        for name in sorted(self._refs.keys() | refs.keys()):
            old, new = self._refs.get(name), refs.get(name)
            if new == old:
                continue
            previous = old[1] if old else None
            kind, target = new or ("unref", None)
            if name == MAIN:
                kind = self._move_of_main(previous, target)
            elif kind == "branch" and target in self._history.ancestors(previous):
                kind = "rollback"
            self.events.append(TableEvent(kind, name, target, previous, updated_ms, self._current_schema))
        self._refs = refs

    def add_schema_or_metadata_change(self) -> None:
        if self._current_schema != self._schema:
            self._add_table_event("schema", self._current_schema, self._metadata.last_updated_ms)
        if self._erasure not in (None, self._before.erasure):
            self._add_table_event(ERASE, self._current_schema, self._metadata.last_updated_ms)
        if not self.events and self._file.location != self._before.metadata_location:
            self._add_table_event("metadata", self._current_schema, self._metadata.last_updated_ms)

    def held_state(self) -> TableState:
        """The state before a transaction that is held back. Without an event there is nothing to store."""
        return self._state_after(self._schema, held=True) if self.events else self._before

    def final_state(self) -> TableState:
        return self._state_after(self._current_schema, held=False)

    def _state_after(self, schema_sha256: str | None, *, held: bool) -> TableState:
        return TableState(
            name=self._name,
            sequence=self._before.sequence + len(self.events),
            refs=self._refs,
            schema_sha256=schema_sha256,
            log=self._log,
            metadata_location=self._file.location,
            metadata_sha256=self._file.sha256,
            dropped=False,
            erasure=self._before.erasure if held else self._erasure,
            held=held,
        )

    def _add_table_event(self, operation: str, schema_sha256: str, ms: int) -> None:
        """An event of the table as a whole: its leaf restates where main is."""
        main = _main_snapshot(self._refs)
        self.events.append(TableEvent(operation, MAIN, main, main, ms, schema_sha256))

    def _add_snapshots(self, events: Iterable[TableEvent]) -> None:
        for event in events:
            if event.ref == MAIN:  # the parent may be one that expired before the table was first inspected
                event = replace(event, parent_id=_main_snapshot(self._refs))
            self.events.append(event)
            if event.ref is not None and event.snapshot_id is not None:
                self._refs[event.ref] = ("branch", event.snapshot_id)

    def _add_move_of_main(self, moved_ms: int, target: int, transaction: TransactionCommit | None) -> None:
        """The move of main to the target, unless the target's own commit made it."""
        previous = _main_snapshot(self._refs)
        if previous == target:
            return
        if transaction is not None:
            operation = TRANSACTION
            self._refs.pop(TRANSACTION_PREFIX + transaction.id, None)  # the same commit removed its branch
        else:
            operation = self._move_of_main(previous, target)
        self.events.append(
            TableEvent(operation, MAIN, target, previous, moved_ms, self._current_schema, transaction=transaction)
        )
        self._refs[MAIN] = ("branch", target)

    def _move_of_main(self, previous: int | None, target: int | None) -> str:
        """The operation of a move of main: back, forward, or to a snapshot that is not known to be either."""
        if target in self._history.ancestors(previous):
            return "rollback"
        return "branch" if previous is None or previous in self._history.ancestors(target) else RESET


def _new_log_entries(
    metadata: TableMetadata, last_sequenced: tuple[int, int] | None, main: int | None
) -> list[tuple[int, int]]:
    """The entries of the snapshot log after the last one sequenced. If expiry removed that one, by their time."""
    log = [(entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log]
    if last_sequenced in log:
        log = log[len(log) - log[::-1].index(last_sequenced) :]
    elif last_sequenced is not None:
        log = [entry for entry in log if entry[0] > last_sequenced[0]]
    # A writer that keeps no snapshot log still states the current snapshot.
    current = metadata.current_snapshot_id
    logged = log[-1][1] if log else main
    if current is not None and current != logged:
        log.append((metadata.last_updated_ms, current))
    return log


def _main_snapshot(refs: References) -> int | None:
    return refs[MAIN][1] if MAIN in refs else None
