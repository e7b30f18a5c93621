"""Erases rows from every kept snapshot of a table, and leaves its history verifiable. The complete flow is `erase`.

1. What cannot be erased is refused. Nothing is written before that is known.
2. Main's own rows are deleted by an ordinary commit, so that consumers of the change feed learn of it.
3. One commit puts snapshots without the rows in the place of those that had them. It names the erasure's record.
4. The sequencer appends the `erase` leaf, which covers the record.
5. Deep verification of the table must find no fault. Until here, nothing is lost.
6. The old objects are deleted, with all versions, and what else holds the rows.

A crash at any step: run it again. Erasures that were committed and not completed are completed first, by their records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalog.core.errors import Invalid, Unverified
from catalog.core.sequencer_queue import SequencerQueue
from catalog.erasure.completion import Completion
from catalog.erasure.keys import typed_keys
from catalog.erasure.leftovers import Leftovers
from catalog.erasure.preconditions import Preconditions
from catalog.erasure.purge import Purge
from catalog.erasure.replacement import RowsOfMain, Selection, SnapshotReplacer
from catalog.erasure.sequenced_leaves import Leaves, SequencedLeaves
from catalog.iceberg import CommitIO
from catalog.tables import FilterMatcher, KeyMatcher, Matcher, Tables, TableVersion, check_rows, table_key
from catalog.timeline import ERASE, MAX_REASON, Erasure, ErasureRecords, Timeline, Verifier

MAX_BYTES = 2 << 30
"""Data files in all kept snapshots: all of them are read, several times."""
PATIENCE_S = 60.0
_ATTEMPTS = 5
"""How often rows are deleted from main that others write at the same time."""


@dataclass
class ErasureResult:
    """What an erasure did. `remains`: places that may still hold the rows, with what to do."""

    table: str
    erasure: str | None = None
    index: int | None = None
    """The index of the `erase` leaf; None if no row was found."""
    rows: int = 0
    replaced: int = 0
    purged: int = 0
    unsalted: int = 0
    """Rows without a salt: whoever guesses all of such a row can still confirm it from digests."""
    vectors: list[str] = field(default_factory=list)
    """Vector tables that were removed; `remains` says how to make them again."""
    remains: list[str] = field(default_factory=list)


@dataclass
class Eraser:
    """Erases rows of one lake's tables. `step` is called after each step, by its name."""

    tables: Tables
    timeline: Callable[[], Timeline]
    verifier: Callable[[], Verifier]
    s3: Any
    bucket: str
    max_bytes: int = MAX_BYTES
    patience_s: float = PATIENCE_S
    step: Callable[[str], None] = lambda name: None
    queue: SequencerQueue | None = None
    """To tell the sequencer that a vector table was removed."""

    def erase(
        self,
        table: str,
        *,
        reason: str,
        keys: Sequence[Mapping[str, Any]] = (),
        where: str | None = None,
        accept_guessable: bool = False,
    ) -> ErasureResult:
        """Erases the rows of these keys, or of every key that had a row for which the filter was true.

        In a table without a key, the rows for which the filter is true. Denied under a legal hold; Invalid without a
        reason, over the limit of bytes, or for rows without a salt, unless `accept_guessable`; Conflict for a history
        that could not be verified without the rows, or files that another table may read; Unverified, before anything
        is deleted, if the table does not verify.
        """
        if not reason.strip() or len(reason) > MAX_REASON:
            raise Invalid(f"give a reason of 1 to {MAX_REASON} characters: it stays in the record", subject=table)
        if bool(keys) == (where is not None):
            raise Invalid("give either keys or a filter", subject=table)
        version = self.tables.table_store.load(table)
        preconditions = Preconditions(self.tables, self.bucket)
        preconditions.check(version)
        preconditions.check_others(version)
        completion, result = self._completion(), ErasureResult(table)
        result.purged += completion.run(table, self._sequenced(table))
        version = self.tables.table_store.load(table)
        matcher, key_rows = self._matcher(version, keys, where)
        committed = self._commit(version, matcher, key_rows, reason, accept_guessable)
        self.step("replaced")
        leaves = self._sequenced(table)
        if committed is not None:
            erasure, selection = committed
            result.erasure, result.index = erasure.id, _index_of(erasure, leaves)
            result.rows, result.unsalted, result.replaced = selection.rows, selection.unsalted, len(erasure.objects)
        self.step("sequenced")
        result.purged += completion.run(table, leaves)
        deleted = Leftovers(self.tables, completion.purge, self.queue).delete(
            table, [] if key_rows is None else key_rows.to_pylist()
        )
        result.purged += deleted.versions
        result.vectors, result.remains = deleted.vectors, [*_partition_paths(committed), *deleted.remains]
        return result

    def _matcher(
        self, version: TableVersion, keys: Sequence[Mapping[str, Any]], where: str | None
    ) -> tuple[Matcher, pa.Table | None]:
        """What finds the rows in a file; and the keys themselves, for a table with a key."""
        key = table_key(version)
        if keys and not key:
            raise Invalid(f"{version.name} has no key: erase by a filter", subject=version.name)
        if keys:
            wrong = [each for each in keys if set(each) != set(key)]
            if wrong:
                raise Invalid(f"the key of {version.name} is ({', '.join(key)}), not ({', '.join(wrong[0])})")
            key_rows = check_rows(version.schema.select(*key), typed_keys(version, key, keys), table=version.name)
            return KeyMatcher(version, key_rows, key), key_rows
        assert where is not None
        matcher = FilterMatcher(version, where)
        if not key:
            return matcher, None
        history = self._replacer().history(version, CommitIO(self.tables.table_store.io))
        positions = history.positions(matcher)
        if not positions:
            return matcher, None
        key_rows = history.rows(positions, key).group_by(list(key)).aggregate([]).select(list(key))
        return KeyMatcher(version, key_rows, key), key_rows

    def _commit(
        self,
        version: TableVersion,
        matcher: Matcher,
        key_rows: pa.Table | None,
        reason: str,
        accept_guessable: bool,
    ) -> tuple[Erasure, Selection] | None:
        """Deletes the rows from main, and replaces the snapshots. Both again, if somebody wrote such rows between."""
        replacer = self._replacer()
        replacer.preview(version, matcher, accept_guessable)
        for attempt in range(1, _ATTEMPTS + 1):
            self._delete_from_main(version, matcher, key_rows)
            self.step("deleted")
            self._sequenced(version.name)
            try:
                return replacer.commit(version.name, matcher, reason, accept_guessable)
            except RowsOfMain:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _delete_from_main(self, version: TableVersion, matcher: Matcher, key_rows: pa.Table | None) -> None:
        if version.head() is None:
            return
        if key_rows is not None:
            self.tables.delete(version.name, keys=key_rows)
        elif isinstance(matcher, FilterMatcher):
            self.tables.delete(version.name, matcher.expression)

    def _sequenced(self, table: str) -> Leaves:
        return SequencedLeaves(self.tables, self.timeline).wait(table, self.patience_s)

    def _replacer(self) -> SnapshotReplacer:
        return SnapshotReplacer(
            self.tables,
            SequencedLeaves(self.tables, self.timeline),
            Preconditions(self.tables, self.bucket),
            ErasureRecords(self.s3, self.bucket),
            self.max_bytes,
            lambda name: self.step(name),
        )

    def _completion(self) -> Completion:
        records, purge = ErasureRecords(self.s3, self.bucket), Purge(self.s3, self.bucket)
        return Completion(self.tables, self.verifier, records, purge, lambda name: self.step(name))


def _index_of(erasure: Erasure, leaves: Leaves) -> int:
    covered = (erasure.content_root, erasure.content_count)
    for index, leaf in reversed(leaves):
        if leaf.operation == ERASE and (leaf.content_root, leaf.content_count) == covered:
            return index
    raise Unverified(
        f"the timeline has no leaf for the erasure {erasure.id}, so nothing was deleted: was its record changed?"
    )


def _partition_paths(committed: tuple[Erasure, Selection] | None) -> list[str]:
    """Paths with values of partitions (`day=2026-01-01/`), as Spark writes them: attestations keep the paths."""
    paths = () if committed is None else committed[1].positions
    named = [path for path in paths if any("=" in segment for segment in path.split("/")[3:-1])]
    what = "it is deleted, but its path, which has values of the rows, stays in the attestations and in the record"
    return [f"{path}: {what}" for path in named]
