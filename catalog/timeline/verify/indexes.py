"""Compares the database's indexes with the leaves: each leaf must have its rows, and there must be no others.

Memory: 16 bytes per leaf and a few hundred per table. A verification that continues from an earlier one looks up only
the new leaves, and needs no memory for the old ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from secrets import token_bytes
from typing import TypeVar
from uuid import UUID

from catalog.timeline.log import store_keys
from catalog.timeline.log.head import Head
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.store import Store
from catalog.timeline.sequencer.table_state import TableState
from catalog.timeline.verify.faults import Fault, FaultCollector

LOOKUP_BATCH = 1000
T = TypeVar("T", int, bytes)


class Pointers:
    """One index whose rows point to leaves. `expect` gets the row of each leaf; `finish` compares them."""

    def __init__(self, db: Store, prefix: bytes, start: int, faults: FaultCollector) -> None:
        self._db = db
        self._prefix = prefix
        self._start = start
        self._faults = faults
        # Per leaf, a keyed hash of the key that should point to it; 0 for none. The secret prevents prepared
        # collisions.
        self._secret = token_bytes(16)
        self._tags = array("Q")
        self._pending = list[tuple[bytes, int]]()

    def expect(self, index: int, key: bytes | None) -> None:
        """Call it for each leaf in order. `key`: the row that should point to the leaf; None if there is none."""
        if not self._start:
            self._tags.append(0 if key is None else self._tag(key))
        elif key is not None:
            self._pending.append((key, index))
            if len(self._pending) == LOOKUP_BATCH:
                self._look_up()

    def finish(self) -> None:
        """Compares: from the first leaf on, with one scan of the index; otherwise by looking up the rows."""
        if self._start:
            self._look_up()
            return
        size = len(self._tags)
        for key, value in self._db.scan(self._prefix, store_keys.after(self._prefix)):
            index = store_keys.unpack(value)[0] if len(value) == 8 else -1
            if index >= size:  # newer than the checkpoint; if it is not, the leaf it should point to has no row
                continue
            if index < 0 or self._tags[index] not in (0, self._tag(key)):
                self._fault(key, "it points to another leaf than its key names", index)
            elif self._tags[index] == 0:
                self._fault(key, "it points to a leaf that has another row already, or should have none", index)
            else:
                self._tags[index] = 0
        for index, tag in enumerate(self._tags):
            if tag:
                self._fault(self._prefix, "no row points to the leaf", index)

    def _look_up(self) -> None:
        values = self._db.get_many([key for key, _ in self._pending])
        for (key, index), value in zip(self._pending, values, strict=True):
            if value != store_keys.pack(index):
                self._fault(key, "it does not point to the leaf that its key names", index)
        self._pending.clear()

    def _tag(self, key: bytes) -> int:
        return hash(self._secret + key) & 0xFFFF_FFFF_FFFF_FFFF or 1

    def _fault(self, key: bytes, what: str, index: int) -> None:
        self._faults.add(Fault(row_name(key), what, max(index, 0)))


class Indexes:
    """All indexes. `add` gets the leaves in order, `finish` compares. `size`: of the tree of these leaves."""

    def __init__(self, db: Store, start: int, size: int, faults: FaultCollector) -> None:
        self._db = db
        self._start = start
        self._size = size
        self._faults = faults
        self._tables = Pointers(db, b"table/", start, faults)
        self._snapshots = Pointers(db, b"id/", start, faults)
        self._uuids = dict[str, UUID]()  # cached: parsing a uuid takes as long as everything else about a leaf
        self._last = dict[str, tuple[int, Leaf]]()  # table uuid -> its last (index, leaf)
        self._ends = array("Q")  # the size after each batch
        self._times = array("Q")
        self._ms = 0

    def add(self, index: int, leaf: Leaf) -> None:
        uuid = leaf.table_uuid
        parsed = self._uuids.get(uuid) or self._uuids.setdefault(uuid, UUID(uuid))
        self._tables.expect(index, store_keys.table(parsed, leaf.sequence))
        added = leaf.snapshot_id if leaf.is_snapshot else None
        self._snapshots.expect(index, None if added is None else store_keys.snapshot(added, parsed))
        if leaf.sequenced_ms != self._ms:
            self._end_batch(index)
            self._ms = leaf.sequenced_ms
        self._last[uuid] = (index, leaf)

    def finish(self, signed: array[int]) -> None:
        """Compares the indexes with the database. `signed`: the sizes of all stored checkpoints."""
        self._end_batch(self._size)
        self._tables.finish()
        self._snapshots.finish()
        self._check_batches(signed)
        self._check_tables()
        now = Head.decode(self._db.get(store_keys.HEAD)).size
        for key, value in self._db.scan(b"name/", store_keys.after(b"name/")):
            if len(value) != 8 or store_keys.unpack(value)[0] >= now:
                self._faults.add(Fault(row_name(key), "it names an index that does not exist"))

    def _end_batch(self, size: int) -> None:
        if size > self._start and self._ms:
            self._ends.append(size)
            self._times.append(self._ms)

    def _check_batches(self, signed: array[int]) -> None:
        """Each batch has one row in `time/` and one checkpoint, of the size at its end."""
        for size, ended in _differences(self._ends, signed):
            what = "a batch ends at this size, but there is no checkpoint" if ended else "no batch ends at this size"
            self._faults.add(Fault(row_name(store_keys.checkpoint(size)), what, size - 1))
        if self._start and not self._times:
            return
        first = self._times[0] if self._times else 0
        expected = (store_keys.time(ms, size - 1) for ms, size in zip(self._times, self._ends, strict=True))
        for row, ended in _differences(expected, self._time_rows(first)):
            what = "it is missing, but a batch ended then" if ended else "no batch ended then"
            self._faults.add(Fault(row_name(row), what, store_keys.number_at_end(row)))

    def _time_rows(self, first: int) -> Iterator[bytes]:
        since = store_keys.time(first) if self._start else b"time/"
        rows = (key for key, _ in self._db.scan(since, store_keys.after(b"time/")))
        return (key for key in rows if store_keys.number_at_end(key) < self._size)

    def _check_tables(self) -> None:
        """The stored state of each table must be that of the table's last leaf."""
        has_grown = Head.decode(self._db.get(store_keys.HEAD)).size > self._size
        for uuid, (index, leaf) in self._last.items():
            stored = self._db.get(store_keys.state(uuid))
            listed = uuid in store_keys.unpack_uuids(self._db.get(store_keys.uuids(leaf.table)) or b"")
            if stored is None and not listed:
                continue  # leaves from Sequencer.append, which stores no state
            state = None if stored is None else TableState.decode(stored)
            if state is not None and state.sequence > leaf.sequence + 1 and has_grown:
                continue
            expected = (leaf.sequence + 1, leaf.table, leaf.metadata_sha256, leaf.operation == "drop")
            if state is None or expected != (state.sequence, state.name, state.metadata_sha256, state.dropped):
                what = "it is missing" if state is None else "it is not the state after the table's last leaf"
                self._faults.add(Fault(row_name(store_keys.state(uuid)), what, index, leaf.table))
            if not listed:
                row = row_name(store_keys.uuids(leaf.table))
                self._faults.add(Fault(row, "it does not list the table", index, leaf.table))


def _differences(expected: Iterable[T], actual: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """The values that only one of two ascending sequences has, each with whether that is the expected one."""
    left, right = iter(expected), iter(actual)
    a, b = next(left, None), next(right, None)
    while a is not None or b is not None:
        if a == b:
            a, b = next(left, None), next(right, None)
        elif b is None or (a is not None and a < b):
            assert a is not None
            yield a, True
            a = next(left, None)
        else:
            yield b, False
            b = next(right, None)


def row_name(key: bytes) -> str:
    r"""The name of a database row in a fault: its key as in store_keys.py, with decimal numbers.

    >>> row_name(store_keys.leaf(258)), row_name(store_keys.HEAD), row_name(store_keys.time(1, 47))
    ('slatedb:leaf/258', 'slatedb:head', 'slatedb:time/1/47')
    """
    prefix, _, fields = key.partition(b"/")
    kind = prefix.decode(errors="replace")
    if kind in ("map", "mapnode"):
        return f"slatedb:{kind}/{fields.hex()}"
    widths = _WIDTHS.get(kind)
    if widths is None or len(fields) != sum(widths) + len(widths) - 1:
        return "slatedb:" + key.decode(errors="replace")
    parts, at = list[str](), 0
    for width in widths:
        part, at = fields[at : at + width], at + width + 1
        parts.append(str(UUID(bytes=part)) if width == 16 else str(int.from_bytes(part, "big")))
    return f"slatedb:{kind}/{'/'.join(parts)}"


_WIDTHS = {
    "leaf": (8,),
    "node": (1, 8),
    "checkpoint": (8,),
    "table": (16, 8),
    "state": (16,),
    "time": (8, 8),
    "id": (8, 16),
}
