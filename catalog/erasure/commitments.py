"""The commitments of an erasure: which changes and rows of which leaves are not shown any more.

They are what the history gives before and does not give after, so they are right whatever chose the rows. Reads only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.changes import RowReader, TouchedFile, attested_changes, between, change_hashes, live_rows, root_with
from catalog.changes import row_digests as digests_of
from catalog.core.errors import Conflict, Unverified
from catalog.iceberg import Positions
from catalog.timeline import ErasedChange, ErasedRow, Erasures, Leaf


@dataclass(frozen=True)
class Commitments:
    """`before` and `after`: the table with its old and with its new snapshots. `earlier`: erasures before this one.

    `chain`: the table's leaves. `schema_ids`: by the digest of the schema, as leaves state it.
    """

    before: Table
    after: Table
    chain: Sequence[tuple[int, Leaf]]
    earlier: Erasures
    schema_ids: Mapping[str, int]
    positions: Mapping[str, Positions]

    def changes(self) -> Iterator[ErasedChange]:
        """The changes that the files do not give any more, for every leaf whose changes can be computed."""
        for index, leaf in self.chain:
            old = self._between(leaf)
            if old is None:
                continue
            since, until, schema_id = old
            erased = self.earlier.changes(leaf.sequence)
            full = attested_changes(self.before, *old, leaf.changes_root, erased=erased)
            if root_with(full, erased) != leaf.changes_root:
                raise Unverified(
                    f"the changes of leaf {index} of {leaf.table} are not those that it states: nothing is erased from "
                    "a history that does not verify; see `strandline timeline verify --deep`",
                    subject=leaf.table,
                )
            new = [None if each is None else self.after.snapshot_by_id(each.snapshot_id) for each in (since, until)]
            assert new[1] is not None
            left = between(self.after, new[0], new[1], schema=self.before.schemas()[schema_id], key=full.key)
            places = [at for at in range(full.count + len(erased)) if at not in erased]
            all_hashes, left_hashes = (
                [bytes(hash_) for hash_ in change_hashes(each.changes, each.key)] for each in (full, left)
            )
            for at in _left_out(all_hashes, left_hashes, leaf):
                yield ErasedChange(leaf.sequence, places[at], all_hashes[at].hex())

    def rows(self) -> Iterator[ErasedRow]:
        """The rows that main had and does not have any more, with the leaves after which it had them."""
        open_: dict[str, list[int]] = {}
        previous = 0
        for _, leaf in self.chain:
            if not leaf.states_rows:
                continue
            counts = self._rows_after(leaf)
            for digest in {*open_, *counts}:
                starts = open_.setdefault(digest, [])
                starts += [leaf.sequence] * (counts[digest] - len(starts))
                while len(starts) > counts[digest]:
                    yield ErasedRow(digest, starts.pop(), previous)
            previous = leaf.sequence
        for digest, starts in open_.items():
            for first in starts:
                yield ErasedRow(digest, first, previous)

    def _between(self, leaf: Leaf) -> tuple[Snapshot | None, Snapshot, int] | None:
        until = None if leaf.snapshot_id is None else self.before.snapshot_by_id(leaf.snapshot_id)
        since = None if leaf.parent_id is None else self.before.snapshot_by_id(leaf.parent_id)
        schema_id = self.schema_ids.get(leaf.schema_sha256 or "")
        if leaf.changes_root is None or until is None or schema_id is None:
            return None
        return None if leaf.parent_id is not None and since is None else (since, until, schema_id)

    def _rows_after(self, leaf: Leaf) -> Counter[str]:
        """The digests of the rows that go, and that main had after the leaf; none if that cannot be told any more."""
        snapshot = None if leaf.snapshot_id is None else self.before.snapshot_by_id(leaf.snapshot_id)
        schema_id = self.schema_ids.get(leaf.schema_sha256 or "")
        counts = Counter[str]()
        if leaf.state_digest is None or snapshot is None or schema_id is None:
            return counts
        reader = RowReader(self.before, self.before.schemas()[schema_id])
        for source in live_rows(self.before, snapshot):
            gone = self.positions.get(source.file.file_path)
            if gone is None:
                continue
            alive = np.setdiff1d(gone, source.without, assume_unique=True)
            for rows in reader.read(TouchedFile(source.file, only=alive)) if len(alive) else ():
                counts.update(digest.tobytes().hex() for digest in digests_of(rows))
        return counts


def check_coverage(metadata: TableMetadata, chain: Sequence[tuple[int, Leaf]], replaced: Iterable[int]) -> None:
    """Conflict if a snapshot that gets new objects has neither changes nor a state that could be compared."""
    by_snapshot = {leaf.snapshot_id: (index, leaf) for index, leaf in chain if leaf.is_snapshot}
    kept = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for snapshot_id in replaced:
        if snapshot_id not in by_snapshot:
            raise Conflict(f"snapshot {snapshot_id} has no leaf yet: wait for the timeline, and run it again")
        index, leaf = by_snapshot[snapshot_id]
        counted = leaf.changes_root is not None and leaf.parent_id in {None, *kept}
        if not counted and not (leaf.states_rows and leaf.state_digest is not None):
            raise Conflict(
                f"commit {index} of {leaf.table} has neither a changes_root nor a state_digest that could still be "
                "compared, so an erasure from it could not be told from damage: expire its snapshot "
                f"({snapshot_id}) first, and run it again",
                subject=leaf.table,
            )


def rows_of_main(table: Table, positions: Mapping[str, Positions]) -> int:
    """How many of the rows at these positions main has now."""
    head = table.current_snapshot()
    files = live_rows(table, head) if head is not None else ()
    at = [(positions.get(source.file.file_path), source.without) for source in files]
    return sum(len(np.setdiff1d(gone, without, assume_unique=True)) for gone, without in at if gone is not None)


def _left_out(full: Sequence[bytes], left: Sequence[bytes], leaf: Leaf) -> list[int]:
    """The positions in `full` of what is not in `left`, which has the same order."""
    missing, at = list[int](), 0
    for position, hash_ in enumerate(full):
        if at < len(left) and left[at] == hash_:
            at += 1
        else:
            missing.append(position)
    if at != len(left):
        raise Conflict(
            f"without these rows, leaf {leaf.sequence} of {leaf.table} would show changes that were never made: erase "
            "by the table's key, so that all versions of a row go",
            subject=leaf.table,
        )
    return missing
