"""Change sets: the row changes of one commit, complete or in part, with the evidence that verifies them.

Values only. A complete change set is enough to compute its root; a page, a key range or a selection carries the hashes
that lead from its records to the same root. verifier.py verifies them, serialization.py writes and reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.changes import hashing, type_tags
from catalog.changes.digest import check_key, row_digests
from catalog.changes.pairing import pair, survivors
from catalog.changes.projection import project
from catalog.changes.records import change_hashes, key_columns, leaf_hashes, records, side
from catalog.core.errors import Invalid
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import split_note
from catalog.merkle.proof import read as read_proof
from catalog.merkle.tree import batch_proof

KeyValue: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CommitHeader:
    """Identifies the commit. `parent_id` is the snapshot that it is compared with, `index` its index in the timeline.

    `sequence` is its number among the leaves of its table, which have no gaps.
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
    """The commit's leaf, as the timeline holds it, and its inclusion proof as a proof file (c2sp.org/tlog-proof@v1).

    `passed`: leaf and proof of each of the table's leaves since the previous change set; they change no rows (a tag,
    for example). With them, a feed shows that it leaves out no commit. All proofs are against one checkpoint.
    `consistency`: an older size, and the proof that the checkpoint's tree extends the tree of that size; for a receiver
    who holds the checkpoint of that size, from the change set before or from an earlier feed.
    """

    leaf: bytes
    proof: bytes
    passed: tuple[tuple[bytes, bytes], ...] = ()
    consistency: tuple[int, tuple[bytes, ...]] | None = None

    @property
    def checkpoint_size(self) -> int:
        """The size that the proof's checkpoint states. Nothing is verified; ProofError if it cannot be read."""
        return Checkpoint.parse(split_note(read_proof(self.proof).checkpoint)[0]).size


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `low` to `high`, both inclusive; None is no bound. A bound may have only the first key columns.

    Values are as `key_values` returns them: times and dates are integers.

    >>> ("DE", 7) in KeyRange(("DE",), ("DE",)), ("FR", 1) in KeyRange(("DE",), ("DE",))
    (True, False)
    """

    low: KeyValue | None = None
    high: KeyValue | None = None

    def __contains__(self, key: KeyValue) -> bool:
        return not self.is_before(key) and not self.is_after(key)

    def is_before(self, key: KeyValue) -> bool:
        """Whether the key is below the range."""
        return self.low is not None and rank(key[: len(self.low)]) < rank(self.low)

    def is_after(self, key: KeyValue) -> bool:
        return self.high is not None and rank(key[: len(self.high)]) > rank(self.high)


def rank(key: KeyValue) -> tuple[tuple[bool, Any], ...]:
    """A sort key that orders keys as records are ordered: NULL first."""
    return tuple((value is not None, value if value is not None else 0) for value in key)


@dataclass(frozen=True, eq=False, slots=True)
class Neighbour:
    """The change next to a key range: its record, and its key, which shows that it is outside the range."""

    record: bytes
    key: pa.Table


@dataclass(frozen=True, eq=False, slots=True)
class PartialProof:
    """The indices of the included changes among the commit's, and the batch proof that leads from them to the root.

    With `keys`, the part claims to have *all* changes of these keys. The neighbours on both sides prove it, and their
    indices are among `indices`. None on a side means that the range reaches the first or the last change.
    """

    indices: tuple[int, ...]
    proof: tuple[bytes, ...]
    keys: KeyRange | None = None
    left: Neighbour | None = None
    right: Neighbour | None = None


@dataclass(frozen=True, eq=False)
class ChangeSet:
    """The changes of one commit, in canonical order (see records.py), or a part of them.

    `changes` has the columns `op`, `before`, `after`. `root` and `count` are those of the complete change set, also in
    a part: the leaf's changes_root and changes_count. `schema_json` is the table's Iceberg schema in canonical JSON:
    digests identify columns by id, so the column names are proven by the leaf's schema_sha256 over this JSON.
    """

    commit: CommitHeader
    schema: pa.Schema
    key: tuple[str, ...]
    changes: pa.Table
    root: bytes
    count: int
    part: PartialProof | None = None
    schema_json: bytes | None = None
    evidence: Evidence | None = None

    @classmethod
    def of(cls, commit: CommitHeader, schema: pa.Schema, key: Sequence[str], changes: pa.Table) -> ChangeSet:
        """The complete change set of a commit. Costs the digests of its rows and one hash per change."""
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
        """The changes at these indices. Proves each of them, but not that no other change matches a filter."""
        positions = sorted(set(indices))
        return replace(self, changes=self._complete().take(pa.array(positions, pa.int64())), part=self._part(positions))

    def where(self, condition: pc.Expression) -> ChangeSet:
        """The changes that meet a condition on `op`, `before` and `after`. See `select` for what it proves."""
        numbered = self._complete().append_column("index", pa.array(np.arange(len(self))))
        positions: list[Any] = numbered.filter(condition).column("index").to_pylist()
        return self.select(positions)

    def pages(self, size: int) -> Iterator[ChangeSet]:
        """The changes in pages of `size`, each with its own proof."""
        if size < 1:
            raise Invalid(f"a page of a change feed has at least one change, not {size}")
        self._complete()
        for start in range(0, len(self), size):
            yield self.select(range(start, min(start + size, len(self))))

    def between(self, low: KeyValue | None = None, high: KeyValue | None = None) -> ChangeSet:
        """All changes of the keys in a range, with a proof that none is missing. Needs a table with a key."""
        if not self.key:
            raise Invalid(f"table {self.commit.table} has no key, so its changes have no key range: use select")
        keys = key_values(key_columns(self._complete(), self.key))
        key_range = KeyRange(self._bound(low), self._bound(high))
        start = sum(key_range.is_before(key) for key in keys)
        end = max(start, len(keys) - sum(key_range.is_after(key) for key in keys))
        left = self._neighbour(start - 1) if start > 0 else None
        right = self._neighbour(end) if end < len(keys) else None
        part = self._part(range(start - (left is not None), end + (right is not None)))
        return replace(
            self,
            changes=self.changes.slice(start, end - start),
            part=replace(part, keys=key_range, left=left, right=right),
        )

    def with_evidence(
        self,
        leaf: bytes,
        proof: bytes,
        index: int,
        passed: Sequence[tuple[bytes, bytes]] = (),
        consistency: tuple[int, tuple[bytes, ...]] | None = None,
    ) -> ChangeSet:
        """The change set with its index and leaf in the timeline, so that the public key is enough to verify it."""
        evidence = Evidence(leaf, proof, tuple(passed), consistency)
        return replace(self, commit=replace(self.commit, index=index), evidence=evidence)

    def _complete(self) -> pa.Table:
        """The changes of a complete change set; Invalid for a part, which lacks the hashes for another proof."""
        if self.part is not None:
            raise Invalid("a part of a change set cannot be divided again: take parts from the complete change set")
        return self.changes

    def _part(self, indices: Sequence[int]) -> PartialProof:
        _, levels = self._tree
        if not indices:
            return PartialProof((), ())
        if not 0 <= indices[0] <= indices[-1] < self.count:
            raise Invalid(
                f"indices {indices[0]} to {indices[-1]} are out of range: the commit has {self.count} changes"
            )
        return PartialProof(tuple(indices), tuple(batch_proof(indices, self.count, levels.read_hashes)))

    def _bound(self, values: KeyValue | None) -> KeyValue | None:
        """A bound as `key_values` returns it, from any values that Arrow converts to the key columns' types."""
        if values is None:
            return None
        fields = [self.schema.field(name) for name in self.key][: len(values)]
        try:
            columns = [pa.array([value], field.type) for value, field in zip(values, fields, strict=True)]
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise Invalid(f"{values} is not a bound for the key {', '.join(self.key)}: {error}") from None
        return key_values(pa.Table.from_arrays(columns, schema=pa.schema(fields)))[0]

    def _neighbour(self, index: int) -> Neighbour:
        block, _ = self._tree
        return Neighbour(block[index].tobytes(), key_columns(self.changes.slice(index, 1), self.key))


def key_values(keys: pa.Table) -> list[KeyValue]:
    """Key columns as one tuple per row, with times and dates as integers."""
    columns = [column.cast(type_tags.plain(column.type)).to_pylist() for column in keys.columns]
    return list(zip(*columns, strict=True))


def collapse(sets: Iterable[ChangeSet]) -> pa.Table:
    """The net changes of consecutive complete change sets, under the last one's schema and key, in canonical order.

    A row that was inserted and later deleted is not in it; many updates of a key become one. Memory: all changes.
    """
    change_sets = list(sets)
    if not change_sets:
        raise Invalid("no change sets to collapse: their net change has no schema")
    last = change_sets[-1]
    removed, added = (
        pa.concat_tables([project(side(changes.changes, name), last.schema) for changes in change_sets])
        for name in ("before", "after")
    )
    removed_only, added_only = survivors(row_digests(removed), row_digests(added))
    return pair(removed.filter(pa.array(removed_only)), added.filter(pa.array(added_only)), last.key, last.schema)
