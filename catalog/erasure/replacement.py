"""The commit of an erasure: snapshots without the rows in the place of those that had them, and the record of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from catalog.changes import key_digests
from catalog.core.errors import Conflict, Invalid, Unverified
from catalog.erasure.commitments import Commitments, check_coverage, rows_of_main
from catalog.erasure.keys import with_ids
from catalog.erasure.preconditions import Preconditions
from catalog.erasure.sequenced_leaves import SequencedLeaves
from catalog.iceberg import CommitIO, Positions, ReplaceSnapshotsUpdate
from catalog.tables import (
    SALT_COLUMN,
    Delta,
    History,
    HistoryRewriter,
    Matcher,
    RewrittenHistory,
    Tables,
    TableVersion,
    table_key,
)
from catalog.timeline import (
    ERASURE_PROPERTY,
    Erasure,
    ErasureRecords,
    Erasures,
    Leaf,
    MetadataFile,
    Replaced,
    erased_keys_key,
    erasure_key,
)


class RowsOfMain(Conflict):
    """Main has rows that are to be erased: written after they were deleted. They must be deleted first."""


@dataclass(frozen=True)
class Selection:
    """The rows that go, by data file. `unsalted`: how many of them have no salt."""

    history: History
    positions: Mapping[str, Positions]
    unsalted: int

    @property
    def rows(self) -> int:
        return sum(map(len, self.positions.values()))


@dataclass(frozen=True)
class SnapshotReplacer:
    """`max_bytes`: of data files in all kept snapshots. `step` is called when the new objects are written."""

    tables: Tables
    leaves: SequencedLeaves
    preconditions: Preconditions
    records: ErasureRecords
    max_bytes: int
    step: Callable[[str], None]

    def history(self, version: TableVersion, io: CommitIO) -> History:
        """Invalid over the limit of bytes, or for files from which rows cannot be taken."""
        history = History.read(version, io)
        if history.bytes > self.max_bytes:
            raise Invalid(
                f"{version.name} has {history.bytes} bytes in the files of its kept snapshots, over the limit of "
                f"{self.max_bytes}: expire old snapshots first, or run the command with a higher --max-gb on a machine "
                "near the bucket",
                subject=version.name,
            )
        return history

    def preview(self, version: TableVersion, matcher: Matcher, accept_guessable: bool) -> Selection:
        """What would be erased. Raises what `commit` would, as far as it can be told before. Writes nothing."""
        selection = self._select(version, CommitIO(self.tables.table_store.io), matcher, accept_guessable)
        if selection.positions:
            replaced = HistoryRewriter(selection.history, selection.positions).check()
            check_coverage(version.metadata, self.leaves.of(version), replaced)
        return selection

    def commit(
        self, table: str, matcher: Matcher, reason: str, accept_guessable: bool
    ) -> tuple[Erasure, Selection] | None:
        """The record that was committed, and its rows; None if no row was found. RowsOfMain if main has one."""
        committed: list[tuple[Erasure, Selection]] = []

        def attempt(version: TableVersion, io: CommitIO) -> Any:
            committed.clear()
            self.preconditions.check(version)
            leaves = self.leaves.of(version)
            selection = self._select(version, io, matcher, accept_guessable)
            if not selection.positions:
                return (), None, Delta()
            if count := rows_of_main(self.tables.table_store.table(version), selection.positions):
                raise RowsOfMain(
                    f"{count} of the rows were written to {table} while they were erased: run the command again",
                    subject=table,
                )
            rewritten = HistoryRewriter(selection.history, selection.positions).run()
            erasure = self._record(version, io, leaves, rewritten, reason)
            self._send(version, io, selection, erasure)
            committed.append((erasure, selection))
            self.step("written")
            named = SetPropertiesUpdate(updates={ERASURE_PROPERTY: erasure.id})
            return [ReplaceSnapshotsUpdate(snapshots=list(rewritten.snapshots)), named], None, Delta()

        self.tables.committer.commit(table, attempt, branch=None)
        return committed[0] if committed else None

    def _select(self, version: TableVersion, io: CommitIO, matcher: Matcher, accept_guessable: bool) -> Selection:
        history = self.history(version, io)
        positions = history.positions(matcher)
        if not positions:
            return Selection(history, positions, 0)
        if SALT_COLUMN in version.schema.column_names:
            unsalted = history.rows(positions, [SALT_COLUMN])[SALT_COLUMN].null_count
        else:
            unsalted = sum(map(len, positions.values()))
        if unsalted and not accept_guessable:
            raise Invalid(
                f"{unsalted} of the rows of {version.name} have no salt (a column {SALT_COLUMN}), so whoever guesses "
                "such a row completely can confirm it from digests that stay in the timeline. Erase them with "
                "--accept-guessable if that is acceptable; create tables with that column (fixed[16]) to avoid it",
                subject=version.name,
            )
        return Selection(history, positions, unsalted)

    def _send(self, version: TableVersion, io: CommitIO, selection: Selection, erasure: Erasure) -> None:
        """Writes the record, and the key digests of its rows, by which the sequencer finds pages to delete."""
        bucket = self.records.bucket
        io.send(f"s3://{bucket}/{erasure_key(version.uuid, erasure.id)}", erasure.encode())
        if key := table_key(version):
            rows = selection.history.rows(selection.positions, key)
            distinct = sorted({digest.tobytes() for digest in key_digests(with_ids(rows, version, key), key)})
            io.send(f"s3://{bucket}/{erased_keys_key(version.uuid, erasure.id)}", b"".join(distinct))

    def _record(
        self,
        version: TableVersion,
        io: CommitIO,
        leaves: Sequence[tuple[int, Leaf]],
        rewritten: RewrittenHistory,
        reason: str,
    ) -> Erasure:
        io.wait()
        new = {each.snapshot_id: each for each in rewritten.snapshots}
        snapshots = [new.get(old.snapshot_id, old) for old in version.metadata.snapshots]
        after = version.metadata.model_copy(update={"snapshots": snapshots})
        store = self.tables.table_store
        before_table = store.table(version)
        schemas = MetadataFile.read(version.location, store.io).schemas
        commitments = Commitments(
            before_table,
            Table(before_table.name(), after, version.location, store.io, store.catalog),
            leaves,
            self._earlier(version.uuid, leaves),
            {digest: schema_id for schema_id, digest in schemas.items()},
            rewritten.positions,
        )
        check_coverage(version.metadata, leaves, new)
        changes, rows = tuple(commitments.changes()), tuple(commitments.rows())
        return Erasure(uuid4().hex, version.uuid, reason, replaced_objects(io, rewritten), changes, rows)

    def _earlier(self, uuid: str, leaves: Sequence[tuple[int, Leaf]]) -> Erasures:
        stored = [(self.records.location(uuid, each.id), each) for each in self.records.list(uuid)]
        earlier = Erasures.load(leaves, stored)
        if earlier.faults:
            raise Unverified(f"an earlier erasure does not verify: {earlier.faults[0]}")
        return earlier


def replaced_objects(io: CommitIO, rewritten: RewrittenHistory) -> tuple[Replaced, ...]:
    """Each replaced object with the one in its place: reads the old ones."""
    written, objects = {each.path: each for each in io.wait()}, list[Replaced]()
    for old, new in rewritten.objects.items():
        data = io.store.get(old)
        put = (None, None, None) if new is None else (new, written[new].length, written[new].sha256)
        objects.append(Replaced(old, len(data), sha256(data).hexdigest(), *put))
    return tuple(objects)
