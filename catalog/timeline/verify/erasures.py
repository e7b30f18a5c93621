"""What a table's `erase` leaves permit: objects in the place of others, and changes and rows that are not shown.

An erasure counts only if its record is the one that an `erase` leaf of the table covers, and permits something only
about the leaves before that one. It never permits a row to be another one: what is left, and the commitments in the
record, must give the roots that the leaves state (objects.py). Reads only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from catalog.timeline.log.erasure import ErasedRow, Erasure, Replaced
from catalog.timeline.log.leaf import ERASE, Leaf
from catalog.timeline.verify.faults import Fault


@dataclass(frozen=True, slots=True)
class Replacement:
    """The attested object in whose place another one stands, by one erasure or several. `index`: of the last leaf."""

    path: str
    length: int
    sha256: str
    new_length: int
    new_sha256: str
    index: int


@dataclass(frozen=True, slots=True)
class Erased:
    """One erasure, for the report: the index of its leaf, what it concerned, and why.

    `rows`: how many rows of main's states. `changes`: how many in all commits; each row that ever was has one.
    """

    index: int
    table: str
    rows: int
    changes: int
    objects: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.rows} rows of {self.table}, with {self.changes} changes, were erased by leaf {self.index}: "
            f"{self.reason}"
        )


@dataclass
class Erasures:
    """The erasures of one table that its leaves cover. `faults`: records that do not fit their leaves."""

    erased: list[Erased] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _replacements: dict[str, Replacement] = field(default_factory=dict)
    _gone: dict[str, int] = field(default_factory=dict)
    _put: set[str] = field(default_factory=set)
    _changes: dict[int, dict[int, bytes]] = field(default_factory=dict)
    _rows: list[tuple[bytes, int, int]] = field(default_factory=list)

    @classmethod
    def load(cls, chain: Sequence[tuple[int, Leaf]], records: Iterable[tuple[str, Erasure]]) -> Erasures:
        """`chain`: all leaves of the table, oldest first; `records`: the records that are stored, with their paths."""
        by_root = {(record.content_root, record.content_count): (path, record) for path, record in records}
        erasures, covered = cls(), set[tuple[str | None, int]]()
        for index, leaf in chain:
            key = (leaf.content_root, leaf.content_count)
            # A writer can name an earlier erasure in the table's properties again: the leaf permits nothing more.
            if leaf.operation != ERASE or key in covered:
                continue
            covered.add(key)
            found = by_root.get((leaf.content_root or "", leaf.content_count))
            if found is None:
                what = "its erasure has no record, or another one: nothing that was erased can be told from damage"
                erasures.faults.append(Fault(f"leaf {index}", what, index, leaf.table))
                continue
            erasures._add(index, leaf, *found)
        return erasures

    def replacement(self, path: str) -> Replacement | None:
        """The attested object in whose place the object at `path` stands; None if it stands for itself."""
        return self._replacements.get(path)

    def is_gone(self, path: str) -> bool:
        """Whether an erasure put another object in the place of this attested one, or none."""
        return path in self._gone

    def changes(self, sequence: int) -> dict[int, bytes]:
        """Position -> leaf hash of the changes of a leaf that are not shown any more."""
        return self._changes.get(sequence, {})

    def rows(self, sequence: int) -> list[bytes]:
        """The digests of rows that main had after a leaf and that are not shown any more."""
        return [digest for digest, first, last in self._rows if first <= sequence <= last]

    def _add(self, index: int, leaf: Leaf, path: str, erasure: Erasure) -> None:
        if what := self._contradiction(leaf, erasure):
            self.faults.append(Fault(path, what, index, leaf.table))
            return
        for entry in erasure.objects:
            self._replace(index, entry)
        for change in erasure.changes:
            self._changes.setdefault(change.sequence, {})[change.position] = bytes.fromhex(change.hash)
        self._rows += [(bytes.fromhex(row.digest), row.first, row.last) for row in erasure.rows]
        counts = len(erasure.changes), len(erasure.objects)
        self.erased.append(Erased(index, leaf.table, _count_rows(erasure.rows), *counts, erasure.reason))

    def _contradiction(self, leaf: Leaf, erasure: Erasure) -> str | None:
        if erasure.table_uuid != leaf.table_uuid:
            return "it is the record of another table's erasure"
        if any(change.sequence >= leaf.sequence for change in erasure.changes) or any(
            not row.first <= row.last < leaf.sequence for row in erasure.rows
        ):
            return "it erases what was committed after it"
        if any(change.position in self.changes(change.sequence) for change in erasure.changes):
            return "it erases a change that was erased before"
        if any(self.is_gone(entry.path) for entry in erasure.objects):
            return "it replaces an object that was replaced before"
        paths = {entry.path for entry in erasure.objects}
        put = [entry.new_path for entry in erasure.objects if entry.new_path is not None]
        if any(path in paths or path in self._put or self.is_gone(path) for path in put):
            return "it puts an object where another one was"
        return None

    def _replace(self, index: int, entry: Replaced) -> None:
        first = self._replacements.pop(entry.path, None)
        if first is not None and (first.new_length, first.new_sha256) == (entry.length, entry.sha256):
            path, length, digest = first.path, first.length, first.sha256
        else:
            path, length, digest = entry.path, entry.length, entry.sha256
        self._gone[entry.path] = index
        if entry.new_path is not None and entry.new_length is not None and entry.new_sha256 is not None:
            self._put.add(entry.new_path)
            self._replacements[entry.new_path] = Replacement(
                path, length, digest, entry.new_length, entry.new_sha256, index
            )


def _count_rows(rows: Sequence[ErasedRow]) -> int:
    """How many rows the lines are of: lines of one digest are of one row, unless main had it twice at a time."""
    moves = sorted(move for row in rows for move in ((row.digest, row.first, 1), (row.digest, row.last + 1, -1)))
    most, now = Counter[str](), Counter[str]()
    for digest, _, step in moves:
        now[digest] += step
        most[digest] = max(most[digest], now[digest])
    return most.total()
