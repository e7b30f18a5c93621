"""Erases rows from every kept snapshot of a table, and leaves its history verifiable. The complete flow is `erase`.

1. Main's own rows are deleted by an ordinary commit, so that consumers of the change feed learn of it.
2. One commit puts snapshots without the rows in the place of those that had them. It names the erasure's record.
3. The sequencer appends the `erase` leaf, which covers the record.
4. Deep verification of the table must find no fault. Until here, nothing is lost.
5. The old objects are deleted, with all versions, and what else holds the rows.

A crash at any step: run it again. An erasure that was committed and not finished is finished first, by its record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from catalog.changes import key_digests
from catalog.core import s3_layout
from catalog.core.aws_errors import translate_errors
from catalog.core.errors import Conflict, Denied, Invalid, NotFound, Unavailable, Unverified
from catalog.erasure.commitments import Commitments
from catalog.erasure.keys import typed_keys, with_ids
from catalog.erasure.landed_files import LandedFiles
from catalog.erasure.purge import ObjectVersion, Purge
from catalog.iceberg import TRANSACTION_PREFIX, CommitIO, ReplaceSnapshotsUpdate
from catalog.tables import (
    SALT_COLUMN,
    Delta,
    FilterMatcher,
    History,
    HistoryRewriter,
    KeyMatcher,
    Matcher,
    RewrittenHistory,
    Tables,
    TableVersion,
    check_rows,
    table_key,
)
from catalog.timeline import (
    ERASURE_PROPERTY,
    HOLD_PROPERTY,
    KEYS_SUFFIX,
    MAX_REASON,
    Erasure,
    ErasureRecords,
    Erasures,
    Leaf,
    MetadataFile,
    Replaced,
    Timeline,
    Verifier,
    erased_keys_key,
    erasure_key,
)

MAX_BYTES = 2 << 30
"""Data files in all kept snapshots: all of them are read, several times."""
PATIENCE_S = 60.0
ORPHAN_AGE = timedelta(hours=1)
"""Younger objects that nothing refers to may belong to a commit that is being made."""
_POLL_S = 0.2


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
    """Vector tables that were removed: refresh them."""
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
        that could not be verified without the rows; Unverified, before anything is deleted, if it does not verify.
        """
        if not reason.strip() or len(reason) > MAX_REASON:
            raise Invalid(f"give a reason of 1 to {MAX_REASON} characters: it stays in the record", subject=table)
        if bool(keys) == (where is not None):
            raise Invalid("give either keys or a filter", subject=table)
        version = self.tables.table_store.load(table)
        self._check(version)
        self._sequenced(table)
        self._finish(version)
        result = ErasureResult(table)
        matcher, key_rows = self._selected(version, keys, where, result)
        self._delete_from_main(version, matcher, key_rows)
        self.step("deleted")
        self._sequenced(table)
        erasure = self._replace(table, matcher, reason, accept_guessable, result)
        self.step("replaced")
        version = self.tables.table_store.load(table)
        if erasure is not None:
            result.erasure, result.index = erasure.id, self._sequenced(table)[-1][0]
        self.step("sequenced")
        result.purged += self._finish(version)
        self._purge_others(version, key_rows, result)
        return result

    def _check(self, version: TableVersion) -> None:
        name = version.name
        if version.properties.get(HOLD_PROPERTY):
            raise Denied(
                f"{name} is under a legal hold ({version.properties[HOLD_PROPERTY]}): nothing of it is erased until an "
                f"admin removes the property {HOLD_PROPERTY}",
                subject=name,
            )
        if any(ref.startswith(TRANSACTION_PREFIX) for ref in version.metadata.refs):
            raise Conflict(f"a transaction holds {name}: run it again when the transaction has ended", subject=name)
        if clones := [ref for ref in version.metadata.refs if ref.startswith("clone-")]:
            raise Conflict(
                f"{name} has a clone, which reads its files ({clones[0]}): drop the clone with --purge first",
                subject=name,
            )

    def _selected(
        self, version: TableVersion, keys: Sequence[Mapping[str, Any]], where: str | None, result: ErasureResult
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
        history = self._history(version, CommitIO(self.tables.table_store.io))
        positions = history.positions(matcher)
        if not positions:
            return matcher, None
        key_rows = history.rows(positions, key).group_by(list(key)).aggregate([]).select(list(key))
        return KeyMatcher(version, key_rows, key), key_rows

    def _history(self, version: TableVersion, io: CommitIO) -> History:
        history = History.read(version, io)
        if history.bytes > self.max_bytes:
            raise Invalid(
                f"{version.name} has {history.bytes} bytes in the files of its kept snapshots, over the limit of "
                f"{self.max_bytes}: expire old snapshots first, or run the command with a higher --max-gb on a machine "
                "near the bucket",
                subject=version.name,
            )
        return history

    def _delete_from_main(self, version: TableVersion, matcher: Matcher, key_rows: pa.Table | None) -> None:
        if version.head() is None:
            return
        if key_rows is not None:
            self.tables.delete(version.name, keys=key_rows)
        elif isinstance(matcher, FilterMatcher):
            self.tables.delete(version.name, matcher.expression)

    def _replace(
        self, table: str, matcher: Matcher, reason: str, accept_guessable: bool, result: ErasureResult
    ) -> Erasure | None:
        """The commit that replaces snapshots; None if no row was found."""
        committed: list[Erasure] = []

        def attempt(version: TableVersion, io: CommitIO) -> Any:
            committed.clear()
            self._check(version)
            chain = self._chain(version)
            history = self._history(version, io)
            positions = history.positions(matcher)
            if not positions:
                return (), None, Delta()
            self._check_salts(history, positions, accept_guessable, result)
            rewritten = HistoryRewriter(history, positions).run()
            erasure = self._record(version, io, chain, rewritten, reason)
            io.send(f"s3://{self.bucket}/{erasure_key(version.uuid, erasure.id)}", erasure.encode())
            if key := table_key(version):
                digests = key_digests(with_ids(history.rows(positions, key), version, key), key)
                distinct = sorted({digest.tobytes() for digest in digests})
                io.send(f"s3://{self.bucket}/{erased_keys_key(version.uuid, erasure.id)}", b"".join(distinct))
            committed.append(erasure)
            result.rows, result.replaced = sum(map(len, positions.values())), len(erasure.objects)
            self.step("written")
            named = SetPropertiesUpdate(updates={ERASURE_PROPERTY: erasure.id})
            return [ReplaceSnapshotsUpdate(snapshots=list(rewritten.snapshots)), named], None, Delta()

        self.tables.committer.commit(table, attempt, branch=None)
        return committed[0] if committed else None

    def _check_salts(
        self, history: History, positions: Mapping[str, Any], accept_guessable: bool, result: ErasureResult
    ) -> None:
        """Counts the rows without a salt: digests of them stay in the timeline, and confirm a right guess."""
        if SALT_COLUMN in history.version.schema.column_names:
            result.unsalted = history.rows(positions, [SALT_COLUMN])[SALT_COLUMN].null_count
        else:
            result.unsalted = sum(map(len, positions.values()))
        if result.unsalted and not accept_guessable:
            raise Invalid(
                f"{result.unsalted} of the rows of {history.version.name} have no salt (a column {SALT_COLUMN}), so "
                "whoever guesses such a row completely can confirm it from digests that stay in the timeline. Erase "
                "them with --accept-guessable if that is acceptable; create tables with that column (fixed[16]) to "
                "avoid it",
                subject=history.version.name,
            )

    def _record(
        self,
        version: TableVersion,
        io: CommitIO,
        chain: Sequence[tuple[int, Leaf]],
        rewritten: RewrittenHistory,
        reason: str,
    ) -> Erasure:
        io.wait()
        after = version.metadata.model_copy(
            update={
                "snapshots": [
                    {each.snapshot_id: each for each in rewritten.snapshots}.get(old.snapshot_id, old)
                    for old in version.metadata.snapshots
                ]
            }
        )
        store = self.tables.table_store
        before_table = store.table(version)
        after_table = Table(before_table.name(), after, version.location, store.io, store.catalog)
        schemas = MetadataFile.read(version.location, store.io).schemas
        commitments = Commitments(
            before_table,
            after_table,
            chain,
            self._earlier(version.uuid, chain),
            {digest: schema_id for schema_id, digest in schemas.items()},
            rewritten.positions,
        )
        commitments.check_coverage(each.snapshot_id for each in rewritten.snapshots)
        changes, rows = tuple(commitments.changes()), tuple(commitments.rows())
        return Erasure(uuid4().hex, version.uuid, reason, self._objects(io, rewritten), changes, rows)

    def _objects(self, io: CommitIO, rewritten: RewrittenHistory) -> tuple[Replaced, ...]:
        written, objects = {each.path: each for each in io.wait()}, list[Replaced]()
        for old, new in rewritten.objects.items():
            data = io.store.get(old)
            put = (None, None, None) if new is None else (new, written[new].length, written[new].sha256)
            objects.append(Replaced(old, len(data), sha256(data).hexdigest(), *put))
        return tuple(objects)

    def _earlier(self, uuid: str, chain: Sequence[tuple[int, Leaf]]) -> Erasures:
        records = ErasureRecords(self.s3, self.bucket)
        earlier = Erasures.load(chain, [(records.location(uuid, each.id), each) for each in records.list(uuid)])
        if earlier.faults:
            raise Unverified(f"an earlier erasure does not verify: {earlier.faults[0]}")
        return earlier

    def _chain(self, version: TableVersion) -> list[tuple[int, Leaf]]:
        """The table's leaves; Unavailable if the timeline does not have the table's last commit yet."""
        try:
            chain = list(self.timeline().commits_since(version.name))
        except NotFound:
            chain = []
        file = MetadataFile.read(version.location, self.tables.table_store.io)
        if not chain or chain[-1][1].metadata_sha256 != file.sha256 or chain[-1][1].table_uuid != version.uuid:
            raise Unavailable(
                f"the timeline does not have the last commit of {version.name} yet: run the command again in a minute",
                subject=version.name,
            )
        return chain

    def _sequenced(self, table: str) -> list[tuple[int, Leaf]]:
        """Waits until the timeline has the table's last commit. Returns the table's leaves."""
        deadline = time.monotonic() + self.patience_s
        while True:
            version = self.tables.table_store.load(table)
            try:
                return self._chain(version)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)

    def _finish(self, version: TableVersion) -> int:
        """Deletes the old objects of the table's last erasure, if that is not done. Returns how many versions."""
        id_ = version.properties.get(ERASURE_PROPERTY)
        if id_ is None:
            return 0
        purge, done = Purge(self.s3, self.bucket), f"{erasure_key(version.uuid, id_)}.done"
        if any(not each.is_marker for each in purge.versions(done)):
            return 0
        erasure = ErasureRecords(self.s3, self.bucket).load(version.uuid, id_)
        faults = self.verifier().verify_table(version.name)
        if faults:
            raise Unverified(
                f"without the erased rows, {version.name} does not verify, so nothing was deleted: {faults[0]}",
                subject=version.name,
            )
        self.step("verified")
        store, deleted = self.tables.table_store.io.store, 0
        for entry in erasure.objects:
            deleted += purge.objects([self._key(entry.path)])
            store.forget(entry.path)
        self.step("purged")
        location = self._key(version.metadata.location).rstrip("/") + "/"
        deleted += purge.below(location, lambda each: not each.is_latest or each.is_marker)
        # Also those of attempts that failed.
        deleted += purge.below(erasure_key(version.uuid, ""), lambda each: each.key.endswith(KEYS_SUFFIX))
        with translate_errors(done):
            self.s3.put_object(Bucket=self.bucket, Key=done, Body=b"{}", ContentType="application/json")
        self.step("done")
        return deleted

    def _purge_others(self, version: TableVersion, key_rows: pa.Table | None, result: ErasureResult) -> None:
        """What else may hold the rows: files that nothing refers to, landed files, results, vector tables."""
        purge = Purge(self.s3, self.bucket)
        result.purged += self._purge_orphans(version, purge, result)
        result.purged += purge.below(s3_layout.RESULTS)
        keys = [] if key_rows is None else key_rows.to_pylist()
        hint = schema_to_pyarrow(version.schema, include_field_ids=False)
        deleted, unknown = LandedFiles(purge).erase(version.name, keys, hint)
        result.purged += deleted
        result.remains += [f"{path}: look into it, and delete it if it has the rows" for path in unknown]
        for name in self._vector_tables(version.name):
            result.purged += purge.below(f"{s3_layout.VECTORS}{name}.lance/")
            result.purged += purge.objects([f"{s3_layout.VECTORS}{name}.json"])
            result.vectors.append(name)

    def _purge_orphans(self, version: TableVersion, purge: Purge, result: ErasureResult) -> int:
        """Data files, manifests and lists of commits that failed. The newest are kept, and named."""
        history = History.read(version, CommitIO(self.tables.table_store.io))
        live = {snapshot.manifest_list for snapshot in version.metadata.snapshots}
        live |= {*history.entries, *history.data, *history.deletes}
        keys = {self._key(path) for path in live}
        location = self._key(version.metadata.location).rstrip("/") + "/"
        before = datetime.now(UTC) - ORPHAN_AGE

        def is_orphan(each: ObjectVersion) -> bool:
            return each.key not in keys and each.key.endswith((".parquet", ".avro", ".orc", ".puffin"))

        orphans = [each for each in purge.versions(location) if is_orphan(each)]
        young = [each for each in orphans if each.modified > before]
        result.remains += [
            f"s3://{self.bucket}/{each.key}: nothing refers to it, but it may belong to a commit that is being made: "
            "run the command again in an hour"
            for each in young
        ]
        return purge.delete(each for each in orphans if each not in young)

    def _vector_tables(self, table: str) -> list[str]:
        prefix = f"{s3_layout.VECTORS}{table}."
        keys = {each.key for each in Purge(self.s3, self.bucket).versions(prefix)}
        names = {key.removeprefix(s3_layout.VECTORS).split("/")[0] for key in keys}
        return sorted({name.removesuffix(".json").removesuffix(".lance") for name in names})

    def _key(self, path: str) -> str:
        return path.removeprefix(f"s3://{self.bucket}/")
