"""`Tables`: one interface for every operation on Iceberg tables over Glue. Each method says what it costs.

Names are `<database>.<table>`. Reads never write, and writes never read data they do not have to.
"""

from __future__ import annotations

from builtins import list as List  # noqa: N812 - `list` is one of the operations
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import DataScan, Table
from pyiceberg.table.snapshots import Snapshot

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import Invalid
from catalog.core.point_in_time import PointInTime, PointLike, point_in_time
from catalog.core.retries import Retry
from catalog.tables.addresses import AddressedChange
from catalog.tables.clone import Drop, clone_table, finish_drop, plan_drop
from catalog.tables.commit_tokens import find_receipts
from catalog.tables.committer import (
    CommitHook,
    Committer,
    Receipt,
    check_token,
    make_receipt,
    new_token,
)
from catalog.tables.compaction import BUDGET_BYTES, plan_compaction
from catalog.tables.creation import create_table, list_tables
from catalog.tables.delta import Delta
from catalog.tables.describe import Description, describe_table
from catalog.tables.evolution import TableChange, alter_table
from catalog.tables.expiry import Expired, expire_snapshots
from catalog.tables.filters import sql_filter
from catalog.tables.glue_store import GlueTableStore, TableVersion
from catalog.tables.insert_batches import InsertBatches
from catalog.tables.legal_hold import HOLD_PROPERTY, lift_hold, set_hold
from catalog.tables.planner import WritePlanner
from catalog.tables.row_validation import Rows
from catalog.tables.snapshots import SnapshotAt, find_snapshot, name_snapshot, roll_back, unname_snapshot
from catalog.tables.snapshots import history as snapshot_history
from catalog.tables.transaction_record import PATIENCE_S, Transactions
from catalog.tables.transactions import Transaction
from catalog.tables.write_modes import Mode
from catalog.tables.write_requests import WriteRequest, addressed_request, delete_request, upsert_request


class Tables:
    """The lake's tables. Safe to share between threads; processes share nothing but the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        on_commit: CommitHook | None = None,
        retry: Retry | None = None,
        records: str | None = None,
        patience_s: float = PATIENCE_S,
        awaits_leaf: Callable[[str, Snapshot], bool] = lambda name, snapshot: False,
        snapshot_at: SnapshotAt | None = None,
    ) -> None:
        """`on_commit` is called after every commit (see CommitHook). `records`: the prefix of transaction records; by
        default `transactions/` beside the warehouse. `patience_s`: how long a transaction may hold a table before
        another writer aborts it. `awaits_leaf`: whether a snapshot has no leaf yet; such a snapshot never expires.
        `snapshot_at`: finds a table's snapshot in the timeline; None when there is no timeline.
        """
        if not isinstance(catalog, GlueCatalog):
            raise Invalid(f"tables need Glue's compare-and-swap, which {type(catalog).__name__} does not have")
        self.table_store = GlueTableStore(catalog)
        records = records or f"{catalog.properties.get('warehouse', '').rstrip('/').rpartition('/')[0]}/transactions"
        self._transactions = Transactions(self.table_store.io.store, records, patience_s)
        self.committer = Committer(self.table_store, on_commit, retry, resolve_transactions=self._transactions.resolve)
        self._awaits_leaf, self._snapshot_at = awaits_leaf, snapshot_at
        self._inserts = InsertBatches(self.committer)

    def create(
        self,
        name: str,
        schema: Any,
        *,
        mode: Mode = "cow",
        key: Sequence[str] = (),
        partition: Sequence[str] = (),
        sort: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        uuid: UUID | None = None,
    ) -> Table:
        """Creates a table. `schema`: Iceberg, Arrow, or {name: type}; key columns become required.

        `partition`: `region`, `day(ts)`, `bucket(16, id)`, …; `sort`: `ts desc`. Conflict if it exists; a table that
        exists with this `uuid` was created by an earlier call, and is returned as it is.
        """
        return create_table(
            self.committer,
            name,
            schema,
            mode=mode,
            key=key,
            partition=partition,
            sort=sort,
            properties=properties,
            uuid=uuid,
        )

    def insert(self, name: str, rows: Rows, *, token: str | None = None) -> Receipt:
        """Appends rows. Six requests, shared with all inserts of this process that wait for the same table.

        Rows are not compared with those in the table: `upsert` does that.
        """
        return self._inserts.insert(name, rows, check_token(token) if token is not None else None)

    def upsert(self, name: str, rows: Rows, key: Sequence[str] | None = None, *, token: str | None = None) -> Receipt:
        """Inserts rows, replacing those with the same key, in one snapshot. Default key: the table's own.

        Reads the key columns of files whose statistics may hold a key, and in copy-on-write the files that do.
        """
        return self._write(upsert_request(self.table_store, name, rows, key), token)

    def delete(
        self,
        name: str,
        where: str | BooleanExpression | None = None,
        *,
        keys: Rows = None,
        token: str | None = None,
    ) -> Receipt:
        """Deletes the rows that a filter is true for, or those with one of the `keys` of the table's own key.

        A file is dropped or skipped without being read if its statistics decide. Commits nothing if no row matches.
        """
        return self._write(delete_request(self.table_store, name, where, keys), token)

    def replace_addressed(
        self,
        name: str,
        base_snapshot_id: int | None,
        changes: Sequence[AddressedChange],
        inserted: Rows = None,
        *,
        token: str | None = None,
    ) -> Receipt:
        """Deletes rows at addresses in a snapshot, updates columns of others, and inserts rows, in one commit.

        StaleRead, a Conflict, if another commit has come in between: the caller finds the rows again.
        """
        return self._write(addressed_request(self.table_store, name, base_snapshot_id, changes, inserted), token)

    def receipts(self, name: str, tokens: Sequence[str]) -> dict[str, Receipt]:
        """The receipts of those tokens that were committed to the table within a week."""
        return find_receipts(self.committer.settled(name), tokens, self.table_store.io)

    def compact(self, name: str, *, budget_bytes: int = BUDGET_BYTES) -> Receipt:
        """Merges pending deletes and small files, reading at most the budget. Changes no row."""
        return self._write(WriteRequest(name, lambda planner: plan_compaction(planner, budget_bytes), 0), None)

    def scan(
        self,
        name: str,
        *,
        where: str | BooleanExpression | None = None,
        columns: Sequence[str] | None = None,
        as_of: PointLike | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows as Arrow; with `as_of`, those at a point in time, under the schema of its snapshot."""
        with translate_aws_errors(name):
            return self.plan_scan(name, where=where, columns=columns, as_of=as_of, limit=limit).to_arrow()

    def plan_scan(
        self,
        name: str,
        *,
        where: str | BooleanExpression | None = None,
        columns: Sequence[str] | None = None,
        as_of: PointLike | None = None,
        limit: int | None = None,
    ) -> DataScan:
        """The scan, not yet run: for callers that plan with its files, or read it batch by batch."""
        return self._scan_version(self.table_store.load(name), where, columns, limit, as_of)

    def _scan_version(
        self,
        version: TableVersion,
        where: str | BooleanExpression | None,
        columns: Sequence[str] | None,
        limit: int | None,
        as_of: PointLike | None = None,
    ) -> DataScan:
        name, metadata = version.name, version.metadata
        snapshot = None  # None: the current snapshot, under the current schema
        if as_of is not None:
            snapshot = find_snapshot(version, point_in_time(as_of), self._snapshot_at)
            schema_id = metadata.current_schema_id if snapshot.schema_id is None else snapshot.schema_id
            metadata = metadata.model_copy(update={"current_schema_id": schema_id})
        names = [field.name for field in metadata.schema().fields]
        known = set(metadata.schema().column_names)
        for column in columns or ():
            if column not in known:
                raise Invalid(f"{name}: there is no column {column!r}; it has {', '.join(names)}", subject=name)
        self.committer.count_read(name)
        return DataScan(
            table_metadata=metadata,
            io=self.table_store.io,
            row_filter=AlwaysTrue() if where is None else sql_filter(where, metadata.schema(), name),
            selected_fields=tuple(columns) if columns is not None else ("*",),
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            limit=limit,
        )

    def alter(
        self,
        name: str,
        *,
        add: Mapping[str, Any] | None = None,
        drop: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        promote: Mapping[str, Any] | None = None,
        partition: Sequence[str] | None = None,
        sort: Sequence[str] | None = None,
        key: Sequence[str] | None = None,
        mode: Mode | None = None,
        properties: Mapping[str, str | None] | None = None,
        token: str | None = None,
    ) -> None:
        """Changes schema, partitioning, sort order, key, mode and properties in one commit of metadata, all or nothing.

        A property of None is removed. A token that was committed before changes nothing, whatever happened since.
        """
        alter_table(
            self.committer,
            name,
            TableChange(add or {}, drop, rename or {}, promote or {}, partition, sort, key, mode, properties or {}),
            None if token is None else check_token(token),
        )

    def snapshot(self, name: str, tag: str, *, as_of: PointLike | None = None) -> Snapshot:
        """Names a snapshot, by default the current one. It never expires while it has the name."""
        return name_snapshot(self.committer, name, tag, _point(as_of), self._snapshot_at)

    def drop_snapshot(self, name: str, tag: str) -> None:
        """Removes a name; the snapshot itself stays until it expires."""
        unname_snapshot(self.committer, name, tag)

    def rollback(self, name: str, to: PointLike) -> Snapshot:
        """Makes an earlier snapshot current again, in one commit. Deletes nothing, so it can be rolled back too."""
        return roll_back(self.committer, name, point_in_time(to), self._snapshot_at)

    def expire(
        self,
        name: str,
        *,
        older_than: int | datetime,
        retain_last: int = 1,
        keep: Callable[[Snapshot], bool] = lambda snapshot: False,
    ) -> Expired:
        """Expires snapshots older than a time and deletes the files only they use. Never expires named snapshots,
        those without a leaf in the timeline, and those `keep` is true for, nor the parents of the last two."""
        cutoff = int(older_than.timestamp() * 1000) if isinstance(older_than, datetime) else older_than
        return expire_snapshots(
            self.committer, name, cutoff, retain_last, lambda s: keep(s) or self._awaits_leaf(name, s)
        )

    def hold(self, name: str, reason: str) -> None:
        """Puts the table under a legal hold: no erasure, expiry or drop until it is lifted."""
        set_hold(self.committer, name, reason)

    def lift_hold(self, name: str) -> str | None:
        """Lifts a legal hold. Returns its reason; None if there was none."""
        return lift_hold(self.committer, name)

    def holds(self) -> dict[str, str]:
        """Table -> reason of each legal hold. One GetTable and one GET for each table."""
        versions = [self.table_store.load(name) for name in self.list()]
        return {each.name: each.properties[HOLD_PROPERTY] for each in versions if each.properties.get(HOLD_PROPERTY)}

    def clone(self, name: str, target: str, *, as_of: PointLike | None = None) -> Table:
        """A new table with the rows of a snapshot, without copying files; the source keeps that snapshot."""
        return self.table_store.table(clone_table(self.committer, name, target, _point(as_of), self._snapshot_at))

    def drop(self, name: str, *, purge: bool = False) -> None:
        """Removes the table from the catalog; with `purge`, deletes its files too. Conflict while clones read them."""
        self.finish_drop(self.plan_drop(name), purge=purge)

    def plan_drop(self, name: str) -> Drop:
        """What `finish_drop` needs, even after the table has left the catalog. NotFound if there is no table."""
        return plan_drop(self.committer, name)

    def finish_drop(self, drop: Drop, *, purge: bool = False) -> None:
        """Drops the table if it still has the planned uuid, and deletes what an earlier, crashed call left of it."""
        finish_drop(self.committer, drop, purge=purge)

    def list(self, database: str | None = None) -> List[str]:
        """The names of all Iceberg tables, or of one database's."""
        return list_tables(self.table_store.catalog, database)

    def describe(self, name: str) -> Description:
        """Schema, size, freshness and column statistics, from metadata alone: one GET per manifest not read before."""
        with translate_aws_errors(name):
            return describe_table(self.table_store.load(name), self.table_store.io, self.committer.manifests)

    def history(self, name: str) -> List[Snapshot]:
        """Main's snapshots, newest first."""
        return snapshot_history(self.table_store.load(name))

    def find_snapshot(self, name: str, as_of: PointLike) -> Snapshot:
        """The table's snapshot at a point in time. NotFound if it had none then, or if it expired."""
        return find_snapshot(self.table_store.load(name), point_in_time(as_of), self._snapshot_at)

    def load(self, name: str) -> Table:
        """The table as pyiceberg's own Table."""
        return self.table_store.table(self.table_store.load(name))

    def transaction(self, token: str | None = None) -> Transaction:
        """`with tables.transaction() as tx:` reads and writes several tables: all writes or none, and Conflict if a
        table that `tx.read` read has changed since. With a token, once."""
        return Transaction(self._transactions, self.committer, self._scan_version, token)

    def recover(self, names: Sequence[str] | None = None) -> List[str]:
        """Resolves the transactions of crashed writers on the named tables, or on all; returns their branches."""
        return self._transactions.recover(self.committer, self.list() if names is None else names)

    def forget_transactions(self, older_than_ms: int, held: Sequence[str] = ()) -> int:
        """Deletes the records of transactions before a time; returns how many. `held`: tables with a branch left."""
        return self._transactions.forget(self.table_store, older_than_ms, held)

    def _write(self, request: WriteRequest, token: str | None) -> Receipt:
        name, rows = request.table, request.rows
        used_token = new_token() if token is None else check_token(token)
        tokens: dict[str, int] = {}
        replayed: dict[str, Receipt] = {}

        def plan(planner: WritePlanner) -> Delta:
            tokens.clear()
            replayed.update(find_receipts(planner.version, [] if token is None else [used_token], planner.io))
            if replayed:
                return Delta()
            delta = request.plan(planner)
            tokens[used_token] = delta.matched if rows is None else rows
            return delta

        version, snapshot, delta = self.committer.write(name, plan, tokens=tokens, commit_empty=token is not None)
        return replayed.get(used_token) or make_receipt(version, snapshot, used_token, tokens[used_token], delta)


def _point(as_of: PointLike | None) -> PointInTime | None:
    return None if as_of is None else point_in_time(as_of)
