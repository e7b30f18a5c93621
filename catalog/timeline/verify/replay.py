"""Replays the leaves and checks that each follows from those before it. Reads only.

By this an auditor knows that the map of tables in each batch's last leaf is that of the leaves, that no table has two
leaves of one sequence, that main was always where the next leaf says it was, and that no leaf that states no change
makes one. Memory: a few hundred bytes per table.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.errors import Invalid, Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.prefix_map import PrefixMap, read_map
from catalog.merkle.tiles import hash_reader
from catalog.merkle.tree import inclusion_proof, leaf_hash
from catalog.merkle.verify import ProofError, verify_inclusion
from catalog.timeline.log import leaf_rules, store_keys
from catalog.timeline.log.leaf import (
    ATTESTED_BY_LAKE,
    MAIN,
    MOVES_OF_MAIN,
    REFERENCE_OPERATIONS,
    SNAPSHOT_OPERATIONS,
    TRANSACTION,
    Leaf,
    is_like_main,
)
from catalog.timeline.log.store import Store
from catalog.timeline.log.table_map import TableChanges, TableMap
from catalog.timeline.reader.sources import StoredSource
from catalog.timeline.sequencer.vector_events import VECTOR_VERSION_OPERATION
from catalog.timeline.verify.faults import Fault, FaultCollector
from catalog.timeline.verify.indexes import row_name
from catalog.timeline.verify.map_rows import MapRows

_OF_REFERENCES = frozenset({"tag", "unref"})
_OF_ANY_BRANCH = frozenset({"branch", "rollback"})
_OF_TABLE = REFERENCE_OPERATIONS - MOVES_OF_MAIN - _OF_REFERENCES - {VECTOR_VERSION_OPERATION}
"""The operations that restate where main is: create, rename, drop, schema, metadata."""


@dataclass(slots=True)
class _Table:
    """A table after its last leaf. `main`: the snapshot main is at, also of a table that was dropped."""

    sequence: int
    main: int | None
    state: tuple[str | None, str | None, str | None] | None = None
    """What its last leaf of main states: schema_sha256, state_digest, state_root; None: not known."""


class Replay:
    """`add` gets the leaves in order, from `start` on. `finish` checks what only the last leaf shows."""

    def __init__(self, db: Store, start: int, faults: FaultCollector) -> None:
        self._db = db
        self._start = start
        self._faults = faults
        self._tables = dict[str, _Table]()
        self._map = TableMap(PrefixMap(), {})
        self._changes = TableChanges(self._map)
        self._rows = MapRows(db, start, faults)
        self._last: tuple[int, Leaf] | None = None
        self._following = 0  # leaves of a transaction that must come next

    def begin_at(self, since: Checkpoint) -> bool:
        """Continues from the map of a checkpoint that was verified before. Reads every entry of that map."""
        index = since.size - 1
        try:
            source = StoredSource(self._db)
            entry = self._db.get(store_keys.leaf(index)) or b""
            proof = inclusion_proof(index, since.size, hash_reader(since.size, source.read_tiles))
            verify_inclusion(leaf_hash(entry), index, since.size, proof, since.root)
            leaf = Leaf.decode(entry)
            if leaf.map_root is None:
                raise ProofError("it has no map_root, but a checkpoint ends with it")
            self._map = TableMap.load(read_map(bytes.fromhex(leaf.map_root), source.map_nodes))
        except (ProofError, Unverified, ValueError) as error:
            self._faults.add(Fault(row_name(store_keys.leaf(index)), f"its map cannot be read: {error}", index))
            return False
        for uuid, key in self._map.keys.items():
            entry_of_table = self._map.entry(key)
            assert entry_of_table is not None
            self._tables[uuid] = _Table(entry_of_table.sequence, entry_of_table.snapshot_id)
        self._changes = TableChanges(self._map)
        self._last = (index, leaf)
        return True

    def add(self, index: int, leaf: Leaf) -> None:
        """Checks the next leaf, and the batch that ended before it. Every contradiction is a fault."""
        if self._last is not None:
            self._check_batch(*self._last, leaf.sequenced_ms)
        for what in leaf_rules.faults(leaf):
            self._fault(index, leaf, what)
        self._check_transaction(index, leaf)
        self._check_table(index, leaf)
        try:
            self._changes.add(index, leaf)
        except Invalid as error:
            self._fault(index, leaf, error.message)
        if leaf.map_root is not None:
            self._check_map(index, leaf, leaf.map_root)
        self._last = (index, leaf)

    def finish(self, is_newest: bool) -> None:
        """Call it after the last leaf of a checkpoint. `is_newest`: the database has no later leaf."""
        if self._last is None:
            return
        index, leaf = self._last
        if leaf.map_root is None:
            self._fault(index, leaf, "it ends a batch, but has no map_root")
        self._rows.finish(self._map if is_newest else None)

    def _check_batch(self, index: int, leaf: Leaf, next_ms: int) -> None:
        """Checks the leaf before: a batch has one time, and its last leaf, and no other, has the map's root."""
        if next_ms < leaf.sequenced_ms:
            self._fault(index + 1, leaf, "its sequenced_ms is before that of the previous leaf")
        elif next_ms == leaf.sequenced_ms and leaf.map_root is not None:
            self._fault(index, leaf, "it has a map_root, but is not the last leaf of its batch")
        elif next_ms > leaf.sequenced_ms and leaf.map_root is None:
            self._fault(index, leaf, "it ends a batch, but has no map_root")

    def _check_transaction(self, index: int, leaf: Leaf) -> None:
        if self._following and (leaf.operation != TRANSACTION or leaf.following != self._following - 1):
            self._fault(index, leaf, "it interrupts the leaves of a transaction")
        self._following = leaf.following
        if self._following and leaf.map_root is not None:
            self._fault(index, leaf, "its batch ends in the middle of a transaction")

    def _check_table(self, index: int, leaf: Leaf) -> None:
        """Checks the leaf against its table's previous one."""
        table = self._tables.get(leaf.table_uuid) or self._table_before(leaf)
        if leaf.sequence != table.sequence + 1:
            what = f"its sequence is {leaf.sequence}, but that of its table's previous leaf is {table.sequence}"
            self._fault(index, leaf, what)
        if not leaf.is_snapshot or leaf.operation in SNAPSHOT_OPERATIONS:
            self._check_reference(index, leaf, table.main)
        else:
            self._fault(index, leaf, f"it has the operation {leaf.operation!r:.40}, which does not exist")
        self._check_state(index, leaf, table)
        if leaf.ref == MAIN and leaf.operation != "drop":
            table.main = leaf.snapshot_id
        table.sequence = leaf.sequence
        self._tables[leaf.table_uuid] = table

    def _check_reference(self, index: int, leaf: Leaf, main: int | None) -> None:
        if leaf.ref is not None and is_like_main(leaf.ref):
            self._fault(index, leaf, f"its reference {leaf.ref!r} is not main, but looks like it")
        if leaf.ref != MAIN:
            of_main = not leaf.is_snapshot and leaf.operation not in _OF_REFERENCES | _OF_ANY_BRANCH
            if of_main or (leaf.ref is None and not leaf.is_snapshot):
                self._fault(index, leaf, f"its operation is {leaf.operation}, but its reference is {leaf.ref!r}")
            return
        if leaf.operation in _OF_REFERENCES:
            self._fault(index, leaf, f"its operation is {leaf.operation}, but its reference is main")
        if leaf.parent_id != main:
            self._fault(index, leaf, f"its parent_id is {leaf.parent_id}, but main was at {main}")
        if leaf.operation in _OF_TABLE:
            stated = None if leaf.operation == "drop" else main
            if leaf.snapshot_id != stated:
                what = f"it has the operation {leaf.operation}, but moves main from {main} to {leaf.snapshot_id}"
                self._fault(index, leaf, what)

    def _check_state(self, index: int, leaf: Leaf, table: _Table) -> None:
        """Checks what the leaf states of main's rows: without changes they are those of the leaf before."""
        stated = (leaf.state_digest, leaf.state_root)
        if not leaf.states_rows:
            if (*stated, leaf.state_missing) != (None, None, None):
                self._fault(index, leaf, "it states the rows of main, but is not about them")
            return
        before, table.state = table.state, (leaf.schema_sha256, *stated)
        unchanged = not leaf.moves_rows or (leaf.changes_count == 0 and leaf.attested == ATTESTED_BY_LAKE)
        if before is None or not unchanged or before[0] != leaf.schema_sha256:
            return
        for name, old, new in zip(("state_digest", "state_root"), before[1:], stated, strict=True):
            if old is not None and new is not None and old != new:
                self._fault(index, leaf, f"it changes no row, but its {name} is not that of the leaf before")

    def _table_before(self, leaf: Leaf) -> _Table:
        """The table before its first leaf here: new, or dropped before `start` and now under a name again."""
        if self._start and leaf.sequence:
            stored = self._db.get(store_keys.table(leaf.table_uuid, leaf.sequence - 1))
            index = self._start if stored is None else store_keys.unpack(stored)[0]
            if index < self._start and (data := self._db.get(store_keys.leaf(index))) is not None:
                try:
                    return _Table(leaf.sequence - 1, Leaf.decode(data).parent_id)
                except Unverified:  # the run that verified it would have reported it
                    pass
        return _Table(-1, None)

    def _check_map(self, index: int, leaf: Leaf, map_root: str) -> None:
        after = self._map.with_changes(self._changes)
        if after.root != map_root:
            self._fault(index, leaf, f"its map_root is not that of the map after its batch, {after.root}")
        self._rows.expect(list(after.map.new_nodes(self._map.map)), index)
        self._map = after
        self._changes = TableChanges(after)

    def _fault(self, index: int, leaf: Leaf, what: str) -> None:
        self._faults.add(Fault(row_name(store_keys.leaf(index)), what, index, leaf.table))
