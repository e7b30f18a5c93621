"""The database's indexes against the leaves: each leaf is found where it should be, and nothing else is.

Memory: 16 bytes per leaf and a few hundred per table. A verification that goes on from an earlier one looks
only the new leaves up, and needs nothing per old one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from secrets import token_bytes
from typing import Any, TypeVar
from uuid import UUID

from catalog.timeline import keys
from catalog.timeline.faults import Fault, Findings
from catalog.timeline.head import Head
from catalog.timeline.leaf import REFERENCE_OPERATIONS, TRANSACTION
from catalog.timeline.moves import TableState
from catalog.timeline.store import Database

LOOKED_UP = 1000
T = TypeVar("T", int, bytes)


class Pointers:
    """One index whose rows point to leaves. Told which row each leaf should have, then compared with all."""

    def __init__(self, db: Database, prefix: bytes, start: int, findings: Findings) -> None:
        self._db = db
        self._prefix = prefix
        self._start = start
        self._findings = findings
        # Per leaf a tag of the key that should point to it, 0 for none. Secret, so that nobody can make two
        # keys of one tag beforehand.
        self._secret = token_bytes(16)
        self._tags = array("Q")
        self._pending = list[tuple[bytes, int]]()

    def expect(self, index: int, key: bytes | None) -> None:
        """Leaves come in order; `key` should point to this one, if there is one."""
        if not self._start:
            self._tags.append(0 if key is None else self._tag(key))
        elif key is not None:
            self._pending.append((key, index))
            if len(self._pending) == LOOKED_UP:
                self._look_up()

    def finish(self) -> None:
        """Compares. From the beginning: one scan of the index; else what is left is looked up."""
        if self._start:
            self._look_up()
            return
        size = len(self._tags)
        for key, value in self._db.scan(self._prefix, keys.after(self._prefix)):
            index = keys.unpack(value)[0] if len(value) == 8 else -1
            if index >= size:  # newer than the checkpoint in question; if it is not, its leaf goes without
                continue
            if index < 0 or self._tags[index] not in (0, self._tag(key)):
                self._fault(key, "it points to a leaf that is not the one it is named after", index)
            elif self._tags[index] == 0:
                self._fault(key, "it points to a leaf that has, or should have, no such row", index)
            else:
                self._tags[index] = 0
        for index, tag in enumerate(self._tags):
            if tag:
                self._fault(self._prefix, "no row points to the leaf", index)

    def _look_up(self) -> None:
        found = self._db.get_many([key for key, _ in self._pending])
        for (key, index), value in zip(self._pending, found, strict=True):
            if value != keys.pack(index):
                self._fault(key, "it does not point to the leaf it is named after", index)
        self._pending.clear()

    def _tag(self, key: bytes) -> int:
        return hash(self._secret + key) & 0xFFFF_FFFF_FFFF_FFFF or 1

    def _fault(self, key: bytes, what: str, index: int) -> None:
        self._findings.add(Fault(row_name(key), what, max(index, 0)))


class Indexes:
    """All indexes, fed with the leaves in order. `size`: of the tree whose leaves they are."""

    def __init__(self, db: Database, start: int, size: int, findings: Findings) -> None:
        self._db = db
        self._start = start
        self._size = size
        self._findings = findings
        self._tables = Pointers(db, b"table/", start, findings)
        self._snapshots = Pointers(db, b"id/", start, findings)
        self._uuids = dict[str, UUID]()  # parsing one takes as long as all else about a leaf
        self._last = dict[str, tuple[int, dict[str, Any]]]()
        self._bearers = dict[str, set[str]]()
        self._ends = array("Q")  # the size after each batch
        self._times = array("Q")
        self._ms = 0
        self._following = 0  # leaves of a transaction that must come next

    def add(self, index: int, leaf: dict[str, Any]) -> None:
        uuid, number, ms = leaf["table_uuid"], leaf["sequence"], leaf["sequenced_ms"]
        parsed = self._uuids.get(uuid) or self._uuids.setdefault(uuid, UUID(uuid))
        self._tables.expect(index, keys.table(parsed, number))
        added = leaf["operation"] not in REFERENCE_OPERATIONS and leaf["snapshot_id"] is not None
        self._snapshots.expect(index, keys.snapshot(int(leaf["snapshot_id"]), parsed) if added else None)
        before = self._last[uuid][1]["sequence"] if uuid in self._last else self._number_before(uuid, number)
        if number != before + 1:
            self._fault(leaf, index, f"it is number {number} of its table, but comes after number {before}")
        if ms != self._ms:
            if ms < self._ms:
                self._fault(leaf, index, "it was sequenced before the leaf in front of it")
            self._end_batch(index)
            self._ms = ms
        following = leaf["content_count"] if leaf["operation"] == TRANSACTION else 0
        if self._following and (leaf["operation"] != TRANSACTION or following != self._following - 1):
            self._fault(leaf, index, "it stands among the leaves of a transaction, but is not the one to come")
        self._following = following
        self._last[uuid] = (index, leaf)
        self._bearers.setdefault(leaf["table"], set()).add(uuid)

    def finish(self, signed: array[int]) -> None:
        """Compares with everything the database has. `signed`: the sizes there is a checkpoint of."""
        self._end_batch(self._size)
        self._tables.finish()
        self._snapshots.finish()
        self._check_batches(signed)
        self._check_tables()
        now = Head.decode(self._db.get(keys.HEAD)).size
        for key, value in self._db.scan(b"name/", keys.after(b"name/")):
            if len(value) != 8 or keys.unpack(value)[0] >= now:
                self._findings.add(Fault(row_name(key), "it names an index that is not there"))

    def _end_batch(self, size: int) -> None:
        if size > self._start and self._ms:
            self._ends.append(size)
            self._times.append(self._ms)

    def _number_before(self, uuid: str, number: int) -> int:
        """The number the table's last leaf before these has; -1 if this is its first."""
        if not self._start or number == 0:
            return -1
        stored = self._db.get(keys.table(uuid, number - 1))
        return number - 1 if stored is not None and keys.unpack(stored)[0] < self._start else -1

    def _check_batches(self, signed: array[int]) -> None:
        """Each batch has one row in `time/` and one checkpoint: their sizes are the batches' ends."""
        for size, ended in _differences(self._ends, signed):
            what = "a batch ends here, but there is no checkpoint" if ended else "no batch ends here"
            self._findings.add(Fault(row_name(keys.checkpoint(size)), what, size - 1))
        if self._start and not self._times:
            return
        first = self._times[0] if self._times else 0
        expected = (keys.time(ms, size - 1) for ms, size in zip(self._times, self._ends, strict=True))
        for row, ended in _differences(expected, self._time_rows(first)):
            what = "a batch ended then, but there is no such row" if ended else "no batch ended then"
            self._findings.add(Fault(row_name(row), what, keys.number_at_end(row)))

    def _time_rows(self, first: int) -> Iterator[bytes]:
        since = keys.time(first) if self._start else b"time/"
        rows = (key for key, _ in self._db.scan(since, keys.after(b"time/")))
        return (key for key in rows if keys.number_at_end(key) < self._size)

    def _check_tables(self) -> None:
        """What the sequencer remembers of each table is what the table's last leaf says."""
        moved_on = Head.decode(self._db.get(keys.HEAD)).size > self._size
        for uuid, (index, leaf) in self._last.items():
            stored = self._db.get(keys.state(uuid))
            known = uuid in keys.unpack_uuids(self._db.get(keys.uuids(leaf["table"])) or b"")
            if stored is None and not known:
                continue  # leaves that were given, not found in a catalog
            state = None if stored is None else TableState.decode(stored)
            if state is not None and state.sequence > leaf["sequence"] + 1 and moved_on:
                continue
            says = (leaf["sequence"] + 1, leaf["table"], leaf["metadata_sha256"], leaf["operation"] == "drop")
            if state is None or says != (state.sequence, state.name, state.metadata_sha256, state.dropped):
                what = "it is missing" if state is None else "it is not what the table's last leaf says"
                self._findings.add(Fault(row_name(keys.state(uuid)), what, index, leaf["table"]))
            if not known:
                row = row_name(keys.uuids(leaf["table"]))
                self._findings.add(Fault(row, "it does not list the table", index, leaf["table"]))

    def _fault(self, leaf: dict[str, Any], index: int, what: str) -> None:
        self._findings.add(Fault(row_name(keys.leaf(index)), what, index, leaf["table"]))


def _differences(wanted: Iterable[T], found: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """What only one of two ascending sequences has, and whether that is the wanted one."""
    left, right = iter(wanted), iter(found)
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
    r"""How a fault names a row of the database: as keys.py writes it, with numbers as people do.

    >>> row_name(keys.leaf(258)), row_name(keys.HEAD), row_name(keys.time(1, 47))
    ('slatedb:leaf/258', 'slatedb:head', 'slatedb:time/1/47')
    """
    prefix, _, rest = key.partition(b"/")
    kind = prefix.decode(errors="replace")
    widths = _WIDTHS.get(kind)
    if widths is None or len(rest) != sum(widths) + len(widths) - 1:
        return "slatedb:" + key.decode(errors="replace")
    parts, at = list[str](), 0
    for width in widths:
        part, at = rest[at : at + width], at + width + 1
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
