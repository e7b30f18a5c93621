"""Change sets: what one commit did to a table's rows, whole or in part, with what it takes to check that.

Values only. A whole change set rebuilds its root; a page, a key range or a selection carries the hashes that
lead from its records to the same root. Checking is in verifier.py, storing and sending in wire.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.changes import hashing, tags
from catalog.changes.digest import check_key, row_digests
from catalog.changes.pairing import pair, survivors
from catalog.changes.projection import project
from catalog.changes.records import change_hashes, key_columns, leaf_hashes, records, side
from catalog.errors import Invalid
from catalog.merkle.tree import batch_proof

KeyValue: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Which commit it was. `parent_id` is the snapshot it is compared with, `index` its place in the timeline.

    `sequence` is its number among the leaves of its table, which has no gaps.
    """

    table: str
    table_uuid: str
    snapshot_id: int
    parent_id: int | None
    committed_ms: int
    index: int | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The commit's leaf, as the timeline holds it, and the proof file (c2sp.org/tlog-proof@v1) that it does.

    `passed`: the same of the table's leaves since the change set before, which change no rows (tags, say): so that
    a feed shows that no commit was left out between.
    """

    leaf: bytes
    proof: bytes
    passed: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `low` to `high`, both included; None is no bound. A bound may give the first columns only.

    Values are as `key_values` gives them: times and dates are integers.

    >>> ("DE", 7) in KeyRange(("DE",), ("DE",)), ("FR", 1) in KeyRange(("DE",), ("DE",))
    (True, False)
    """

    low: KeyValue | None = None
    high: KeyValue | None = None

    def __contains__(self, key: KeyValue) -> bool:
        return not self.is_before(key) and not self.is_after(key)

    def is_before(self, key: KeyValue) -> bool:
        """Whether the key stands before the range."""
        return self.low is not None and rank(key[: len(self.low)]) < rank(self.low)

    def is_after(self, key: KeyValue) -> bool:
        return self.high is not None and rank(key[: len(self.high)]) > rank(self.high)


def rank(key: KeyValue) -> tuple[tuple[bool, Any], ...]:
    """A key as something Python orders as the records are ordered: NULL first."""
    return tuple((value is not None, value if value is not None else 0) for value in key)


@dataclass(frozen=True, eq=False, slots=True)
class Neighbour:
    """The change next to a key range: its record, and its key, which shows that it is outside."""

    record: bytes
    key: pa.Table


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """Which of the commit's changes are shown: their places, and the hashes that the others contribute to the
    root.

    With `keys`, the part claims to be *all* changes of these keys; the neighbours on both sides are its
    witnesses, and their places are among the indices. None on a side says that the range reaches the first or
    the last change.
    """

    indices: tuple[int, ...]
    proof: tuple[bytes, ...]
    keys: KeyRange | None = None
    left: Neighbour | None = None
    right: Neighbour | None = None


@dataclass(frozen=True, eq=False)
class ChangeSet:
    """The changes of one commit, in canonical order (see records.py), or a part of them.

    `changes` has the columns `op`, `before`, `after`. `root` and `count` are of the whole, also in a part; in
    the timeline they are the leaf's changes_root and changes_count. `schema_json` is the table's Iceberg
    schema in canonical JSON: digests know columns by id, the leaf's schema_sha256 over this is what vouches
    for the names.
    """

    commit: Commit
    schema: pa.Schema
    key: tuple[str, ...]
    changes: pa.Table
    root: bytes
    count: int
    part: Part | None = None
    schema_json: bytes | None = None
    evidence: Evidence | None = None

    @classmethod
    def of(cls, commit: Commit, schema: pa.Schema, key: Sequence[str], changes: pa.Table) -> ChangeSet:
        """The whole change set of a commit. Costs the digests of its rows and one hash per change."""
        check_key(schema, key)
        leaves = change_hashes(changes, key)
        return cls(commit, schema, tuple(key), changes, hashing.root(leaves), len(changes))

    def __len__(self) -> int:
        return len(self.changes)

    @cached_property
    def _tree(self) -> tuple[hashing.Hashes, hashing.Levels]:
        block = records(self.changes, self.key)
        return block, hashing.Levels(leaf_hashes(block))

    def select(self, indices: Iterable[int]) -> ChangeSet:
        """Only the changes at these places. Proves each of them, not that no other would have matched a filter."""
        chosen = sorted(set(indices))
        return replace(self, changes=self._whole().take(pa.array(chosen, pa.int64())), part=self._part(chosen))

    def where(self, condition: pc.Expression) -> ChangeSet:
        """Only the changes that meet a condition on `op`, `before` and `after`. See `select` for what it proves."""
        numbered = self._whole().append_column("place", pa.array(np.arange(len(self))))
        found: list[Any] = numbered.filter(condition).column("place").to_pylist()
        return self.select(found)

    def pages(self, size: int) -> Iterator[ChangeSet]:
        """The changes in pages, each with its own proof; together they are the whole."""
        if size < 1:
            raise Invalid(f"a page of a change feed has at least one change, not {size}")
        self._whole()
        for start in range(0, len(self), size):
            yield self.select(range(start, min(start + size, len(self))))

    def between(self, low: KeyValue | None = None, high: KeyValue | None = None) -> ChangeSet:
        """All changes of the keys in a range, and a proof that it is all of them. Needs a table with a key."""
        if not self.key:
            raise Invalid(f"table {self.commit.table} has no key, so its changes have no key range: use select")
        keys, wanted = (
            key_values(key_columns(self._whole(), self.key)),
            KeyRange(self._bound(low), self._bound(high)),
        )
        start = sum(wanted.is_before(key) for key in keys)
        end = max(start, len(keys) - sum(wanted.is_after(key) for key in keys))
        left = self._neighbour(start - 1) if start > 0 else None
        right = self._neighbour(end) if end < len(keys) else None
        shown = self._part(range(start - (left is not None), end + (right is not None)))
        return replace(
            self,
            changes=self.changes.slice(start, end - start),
            part=replace(shown, keys=wanted, left=left, right=right),
        )

    def with_evidence(
        self, leaf: bytes, proof: bytes, index: int, passed: Sequence[tuple[bytes, bytes]] = ()
    ) -> ChangeSet:
        """The same changes with their place in the timeline, so that the log's public key is enough to check them."""
        found = Evidence(leaf, proof, tuple(passed))
        return replace(self, commit=replace(self.commit, index=index), evidence=found)

    def _whole(self) -> pa.Table:
        if self.part is not None:
            raise Invalid("a part of a change set cannot be divided again: take parts from the whole one")
        return self.changes

    def _part(self, shown: Sequence[int]) -> Part:
        _, levels = self._tree
        if not shown:
            return Part((), ())
        if not 0 <= shown[0] <= shown[-1] < self.count:
            raise Invalid(f"the commit has {self.count} changes; there are none at {shown[0]} to {shown[-1]}")
        return Part(tuple(shown), tuple(batch_proof(shown, self.count, levels.read_hashes)))

    def _bound(self, values: KeyValue | None) -> KeyValue | None:
        """A bound as `key_values` would give it, from whatever Arrow takes for a value of the key's columns."""
        if values is None:
            return None
        fields = [self.schema.field(name) for name in self.key][: len(values)]
        try:
            columns = [pa.array([value], field.type) for value, field in zip(values, fields, strict=True)]
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise Invalid(f"{values} is no bound for the key {', '.join(self.key)}: {error}") from None
        return key_values(pa.Table.from_arrays(columns, schema=pa.schema(fields)))[0]

    def _neighbour(self, at: int) -> Neighbour:
        block, _ = self._tree
        return Neighbour(block[at].tobytes(), key_columns(self.changes.slice(at, 1), self.key))


def key_values(keys: pa.Table) -> list[KeyValue]:
    """Key columns as one tuple per row, with times and dates as integers."""
    columns = [column.cast(tags.plain(column.type)).to_pylist() for column in keys.columns]
    return list(zip(*columns, strict=True))


def collapse(sets: Iterable[ChangeSet]) -> pa.Table:
    """The net changes of consecutive whole change sets, under the last one's schema and key, in canonical
    order.

    What was inserted and later deleted is gone from it; many updates of a key are one. Holds all changes in
    memory.
    """
    every = list(sets)
    if not every:
        raise Invalid("the net of no change sets has no schema: there is nothing to collapse")
    last = every[-1]
    removed, added = (
        pa.concat_tables([project(side(one.changes, name), last.schema) for one in every])
        for name in ("before", "after")
    )
    gone, come = survivors(row_digests(removed), row_digests(added))
    return pair(removed.filter(pa.array(gone)), added.filter(pa.array(come)), last.key, last.schema)
