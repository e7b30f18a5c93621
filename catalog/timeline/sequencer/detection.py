"""Detection: inspects tables in their catalog and determines which leaves the timeline lacks. Writes only attestations.

Tables are inspected side by side. Their leaves are ordered by the names as requested, so that a run over many tables
gives the same order of leaves whichever table is read first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import Conflict, LakeError, NotFound
from catalog.iceberg import TRANSACTION_PREFIX
from catalog.timeline.log import store_keys
from catalog.timeline.log.erasure import ERASURE_PROPERTY
from catalog.timeline.log.leaf import ERASE, Leaf
from catalog.timeline.log.leaf_rules import check_leaf
from catalog.timeline.log.store import Store
from catalog.timeline.sequencer.attestation import Attestations, ComputeChanges
from catalog.timeline.sequencer.erasure_records import ErasureRecords
from catalog.timeline.sequencer.ordering import arrange, link_transaction
from catalog.timeline.sequencer.row_state import ComputeState
from catalog.timeline.sequencer.table_events import drop_event, table_events
from catalog.timeline.sequencer.table_leaves import BuiltLeaf, LeafBuilder, build_leaf
from catalog.timeline.sequencer.table_state import MetadataFile, TableEvent, TableState, TransactionCommit
from catalog.timeline.sequencer.vector_events import VectorHead, VectorObjects, head_key, is_vector_table, vector_leaves

WORKERS = 8
MAX_ROUNDS = 5
"""How often tables are read again because of transactions seen in other tables; what is left waits for the next run."""


@dataclass(frozen=True)
class NewLeaves:
    """A table's next leaves, complete but for `sequenced_ms`, and the table's state after them."""

    name: str
    uuid: str
    leaves: tuple[Leaf, ...]
    state: TableState | None = None
    """None: the state is stored with later leaves of the table."""
    uuids: tuple[str, ...] | None = None
    """The uuids of all tables that had the name, this one last; None when that is stored already."""
    rows: bytes | None = None
    """The state of main's rows after the leaves, to be stored; None: none of them states it."""
    nodes: Mapping[bytes, bytes] = field(default_factory=dict)
    """The new nodes of the table's state map, by hash."""
    erased_nodes: frozenset[bytes] = frozenset()
    """Nodes of its state maps that have an erased key, to be deleted."""


@dataclass(frozen=True)
class _Inspection:
    """A table that has events which the timeline lacks. `state`: before them, `after`: after them."""

    name: str
    uuid: str
    table: Table
    file: MetadataFile
    state: TableState | None
    sequenced: set[int]
    uuids: list[str]
    events: list[TableEvent]
    after: TableState

    @property
    def transactions(self) -> dict[str, TransactionCommit]:
        return {event.transaction.id: event.transaction for event in self.events if event.transaction is not None}

    def state_before(self, held: set[str]) -> TableState:
        """The state before the first of the transactions that are held back."""
        if held.isdisjoint(self.transactions):
            return self.after
        return table_events(self.name, self.table.metadata, self.file, self.state, self.sequenced, held)[1]


@dataclass
class Detection:
    """One run of detection. `failed`: the tables that could not be read, and why; the others are not affected.

    `unfinished`: the tables that have a transaction's branch; its writer may have crashed.
    """

    database: Store
    catalog: Catalog
    attestations: Attestations
    now_ms: int
    compute_changes: ComputeChanges | None = None
    compute_state: ComputeState | None = None
    failed: dict[str, LakeError] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    _states: dict[str, TableState] = field(default_factory=dict)
    _tables: dict[str, Table | None] = field(default_factory=dict)

    def detect(self, names: Sequence[str]) -> list[NewLeaves]:
        """The new leaves of the tables that changed. A table that is gone from the catalog was dropped.

        Reads, per table, its catalog entry and its metadata file and, if that is not the last one sequenced, an
        attestation per new snapshot. Also inspects the other tables of each transaction it meets. Reads, per vector
        table, its head and the manifest of each new version.
        """
        tables = [name for name in dict.fromkeys(names) if not is_vector_table(name)]
        vector_tables = [name for name in dict.fromkeys(names) if is_vector_table(name)]
        with ThreadPoolExecutor(WORKERS) as pool:
            inspections, drops, incomplete = self._inspect_tables(tables, pool)
            leaves = dict[str, list[BuiltLeaf]]()
            for inspection in inspections.values():
                try:
                    with translate_errors(inspection.name):
                        leaves[inspection.name] = self._build_leaves(inspection, pool)
                except LakeError as error:
                    self.failed[inspection.name] = error
                    incomplete |= inspection.transactions.keys()
            self._fail_successors(inspections, leaves, incomplete)
        new_leaves = [*drops, *self._ordered(inspections, leaves, incomplete)]
        for name in vector_tables:
            new_leaves += self._inspect_vector_table(name)
        return new_leaves

    def _fail_successors(
        self, inspections: Mapping[str, _Inspection], leaves: dict[str, list[BuiltLeaf]], incomplete: set[str]
    ) -> None:
        """Fails the tables whose name belongs to a table that was renamed, but whose rename could not be sequenced."""
        failed_uuids = {inspection.uuid for inspection in inspections.values() if inspection.name in self.failed}
        waiting = [
            inspection
            for inspection in inspections.values()
            if inspection.name in leaves and inspection.uuids and inspection.uuids[-1] in failed_uuids
        ]
        for inspection in waiting:
            del leaves[inspection.name]
            incomplete |= inspection.transactions.keys()
            self.failed[inspection.name] = Conflict(
                f"{inspection.name} is the new name of a table, or a new table, while the table that had this name "
                "could not be sequenced: correct that one first",
                subject=inspection.name,
            )
        if waiting:
            self._fail_successors(inspections, leaves, incomplete)

    def _inspect_tables(
        self, names: list[str], pool: ThreadPoolExecutor
    ) -> tuple[dict[str, _Inspection], list[NewLeaves], set[str]]:
        """The tables that changed, the drops, and the ids of the transactions that are not complete yet.

        A table that was read before one of its transactions was seen in another table is read again: its part may
        have been staged since. After that, a table without the transaction's branch has either committed or aborted.
        """
        inspections, drops = dict[str, _Inspection](), list[NewLeaves]()
        read_in = dict[str, int]()  # table -> the last round in which it was read
        seen_in = dict[str, tuple[int, TransactionCommit]]()  # transaction -> the first round in which it was seen
        to_read, round_ = names, 0
        while to_read and round_ < MAX_ROUNDS:
            round_ += 1
            self._tables |= dict(zip(to_read, pool.map(self._load, to_read), strict=True))
            read_in |= dict.fromkeys(to_read, round_)
            # Existing tables first: a renamed table is then recorded under its new name before its old name, which
            # no table has any more, is looked up.
            for name in sorted(to_read, key=lambda name: self._tables[name] is None):
                if (outdated := inspections.pop(name, None)) is not None:
                    self._states.pop(outdated.uuid)
                if name not in self.failed:
                    self._inspect(name, inspections, drops)
            for inspection in inspections.values():
                new = {id_: (round_, commit) for id_, commit in inspection.transactions.items() if id_ not in seen_in}
                seen_in |= new
            to_read = [
                name
                for name in dict.fromkeys(name for _, commit in seen_in.values() for name in commit.tables)
                if any(self._is_outdated(name, read_in, *seen, inspections) for seen in seen_in.values())
            ]
        incomplete = {
            id_
            for id_, (_, commit) in seen_in.items()
            if any(
                name in to_read or name in self.failed or TRANSACTION_PREFIX + id_ in self._transaction_branches(name)
                for name in commit.tables
            )
        }
        self.unfinished = [name for name in self._tables if self._transaction_branches(name)]
        return inspections, drops, incomplete

    def _is_outdated(
        self,
        name: str,
        read_in: Mapping[str, int],
        seen_in_round: int,
        commit: TransactionCommit,
        inspections: Mapping[str, _Inspection],
    ) -> bool:
        """Whether the table must be read (again) to learn whether the transaction has committed to it."""
        committed = name in inspections and commit.id in inspections[name].transactions
        return (
            name in commit.tables
            and not committed
            and name not in self.failed
            and read_in.get(name, 0) <= seen_in_round
        )

    def _transaction_branches(self, name: str) -> list[str]:
        table = self._tables.get(name)
        return [ref for ref in table.metadata.refs if ref.startswith(TRANSACTION_PREFIX)] if table is not None else []

    def _load(self, name: str) -> Table | None:
        """The table; None when the catalog has none of this name, or when reading it failed."""
        try:
            with translate_errors(name):
                try:
                    return self.catalog.load_table(name)
                except (NoSuchTableError, NoSuchNamespaceError):
                    return None
        except LakeError as error:
            self.failed[name] = error
            return None

    def _inspect(self, name: str, inspections: dict[str, _Inspection], drops: list[NewLeaves]) -> None:
        """Adds a loaded table's inspection, if it changed, and the drop of the table that had the name before."""
        table = self._tables[name]
        try:
            with translate_errors(name):
                uuids = self._uuids(name)
                dropped = self._drop_replaced(name, uuids, None if table is None else str(table.metadata.table_uuid))
                inspection = None if table is None else self._inspect_table(name, uuids, table)
        except LakeError as error:
            self.failed[name] = error
            return
        drops += dropped
        self._states |= {drop.uuid: drop.state for drop in dropped if drop.state}
        if inspection is not None:
            inspections[name] = inspection
            self._states[inspection.uuid] = inspection.after

    def _inspect_table(self, name: str, uuids: list[str], table: Table) -> _Inspection | None:
        """None when the table's metadata file is the last one sequenced."""
        uuid = str(table.metadata.table_uuid)
        state = self._state(uuid)
        if (
            state is not None
            and not state.dropped
            and not state.held
            and (state.name, state.metadata_location) == (name, table.metadata_location)
        ):
            return None
        file = MetadataFile.read(table.metadata_location, table.io)
        ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        stored = self.database.get_many([store_keys.snapshot(id_, uuid) for id_ in ids])
        sequenced = {id_ for id_, value in zip(ids, stored, strict=True) if value is not None}
        events, after = table_events(name, table.metadata, file, state, sequenced)
        return _Inspection(name, uuid, table, file, state, sequenced, uuids, events, after)

    def _build_leaves(self, inspection: _Inspection, pool: ThreadPoolExecutor) -> list[BuiltLeaf]:
        builder = LeafBuilder(
            inspection.name,
            inspection.uuid,
            inspection.table,
            inspection.file,
            self.attestations,
            self.compute_changes,
            self.compute_state,
            self.database.get(store_keys.rows(inspection.uuid)),
            lambda hashes: _state_nodes(self.database, hashes),
        )
        first_sequence = inspection.after.sequence - len(inspection.events)
        leaves = list(builder.build(inspection.events, first_sequence, pool))
        for built in leaves:  # raises Invalid here, before the leaves of other tables depend on this one
            check_leaf(built.leaf)
            built.leaf.encode()
        return leaves

    def _ordered(
        self, inspections: Mapping[str, _Inspection], leaves: Mapping[str, list[BuiltLeaf]], incomplete: set[str]
    ) -> list[NewLeaves]:
        """The leaves of all tables in their order, in segments that begin and end where a transaction does."""
        order, held = arrange({name: inspections[name].events for name in leaves}, incomplete)
        last = {segment.table: at for at, segment in enumerate(order)}
        ordered, at = list[NewLeaves](), 0
        while at < len(order):
            segments = order[at : at + (len(order[at].group) or 1)]
            built = [leaves[segment.table][segment.start : segment.end] for segment in segments]
            parts = [[each.leaf for each in part] for part in built]
            if segments[0].group:
                parts = [[leaf] for leaf in link_transaction([leaf for (leaf,) in parts])]
            for position, (segment, part) in enumerate(zip(segments, parts, strict=True), at):
                inspection, state, uuids = inspections[segment.table], None, None
                if last[segment.table] == position:
                    state = inspection.state_before(held)
                    uuids = _extended(inspection.uuids, inspection.uuid)
                states = [each.rows for each in built[position - at] if each.rows is not None]
                rows = next((state.stored for state in reversed(states) if state.stored), None)
                nodes = {hash_: node for state in states for hash_, node in state.nodes.items()}
                erased = (
                    self._erased_nodes(inspection) if any(leaf.operation == ERASE for leaf in part) else frozenset()
                )
                ordered.append(
                    NewLeaves(inspection.name, inspection.uuid, tuple(part), state, uuids, rows, nodes, erased)
                )
            at += len(segments)
        return ordered

    def _erased_nodes(self, inspection: _Inspection) -> frozenset[bytes]:
        """The pages of the table's past state maps that have the key of an erased row: they would confirm a guess."""
        uuid, erasure = inspection.uuid, inspection.table.metadata.properties[ERASURE_PROPERTY]
        keys = ErasureRecords(self.attestations.s3, self.attestations.bucket).key_digests(uuid, erasure)
        if not keys or self.compute_state is None:
            return frozenset()
        roots = dict[str, None]()
        for _, index in self.database.scan(store_keys.table(uuid), store_keys.after(store_keys.table(uuid)[:-8])):
            leaf = Leaf.decode(self.database.get(store_keys.leaf(store_keys.unpack(index)[0])) or b"")
            if leaf.state_root is not None:
                roots[leaf.state_root] = None
        return self.compute_state.pages_with(list(roots), keys, lambda hashes: _state_nodes(self.database, hashes))

    def _inspect_vector_table(self, name: str) -> list[NewLeaves]:
        """A vector table's new leaves. Without its head object it was dropped."""
        objects = VectorObjects(self.attestations.s3, self.attestations.bucket)
        try:
            uuids = self._uuids(name)
            try:
                data = objects.read(head_key(name))
            except NotFound:
                return self._drop_replaced(name, uuids, None)
            head = VectorHead.parse(data, name)
            drops = self._drop_replaced(name, uuids, head.uuid)
            leaves, after = vector_leaves(
                name,
                objects.location(head_key(name)),
                head,
                self._state(head.uuid),
                lambda version: objects.checked_manifest(name, version),
                self.now_ms,
            )
        except LakeError as error:
            self.failed[name] = error
            return []
        if not leaves:
            return drops
        return [*drops, NewLeaves(name, head.uuid, tuple(leaves), after, _extended(uuids, head.uuid))]

    def _drop_replaced(self, name: str, uuids: Sequence[str], uuid: str | None) -> list[NewLeaves]:
        """The drop of the last table that had the name, unless that is this uuid's, dropped before, or renamed.

        `uuid`: of the table that has the name now; None when there is none.
        """
        if not uuids or uuids[-1] == uuid:
            return []
        state = self._state(uuids[-1])
        if state is None or state.dropped or state.name != name:
            return []
        event, after = drop_event(state, self.now_ms)
        leaf = build_leaf(name, uuids[-1], state.metadata_sha256, state.sequence, event)
        return [NewLeaves(name, uuids[-1], (leaf,), after)]

    def _state(self, uuid: str) -> TableState | None:
        if uuid not in self._states:
            stored = self.database.get(store_keys.state(uuid))
            if stored is None:
                return None
            self._states[uuid] = TableState.decode(stored)
        return self._states[uuid]

    def _uuids(self, name: str) -> list[str]:
        """The uuids of the tables that had the name, the newest last."""
        return store_keys.unpack_uuids(self.database.get(store_keys.uuids(name)) or b"")


def _state_nodes(db: Store, hashes: Sequence[bytes]) -> list[bytes]:
    """Stored nodes of state maps; an unknown one is empty, which no hash is of."""
    return [value or b"" for value in db.get_many([store_keys.state_node(hash_) for hash_ in hashes])]


def _extended(uuids: Sequence[str], uuid: str) -> tuple[str, ...] | None:
    """The uuids with this one last; None when it is last already."""
    return None if list(uuids[-1:]) == [uuid] else (*uuids, uuid)
