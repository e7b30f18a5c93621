"""`Tables`: one interface for every operation on Iceberg tables over Glue. Each method says what it costs.

Names are `<database>.<table>`. Reads never write, and writes never read data they do not have to.
"""

from __future__ import annotations

from builtins import list as List  # noqa: N812 - `list` is one of the operations
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import DataScan, Table
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import Invalid
from catalog.refusals import explained
from catalog.tables.clones import clone_table, drop_clone_or_table
from catalog.tables.commits import (
    CommitHook,
    Committer,
    Receipt,
    Retry,
    check_token,
    make_receipt,
    new_token,
    receipt_of,
)
from catalog.tables.compaction import BUDGET_BYTES, plan_compaction
from catalog.tables.creation import create_table, list_tables
from catalog.tables.deltas import Delta
from catalog.tables.describe import Description, describe_table
from catalog.tables.evolve import Change, alter_table
from catalog.tables.expiry import Expired, expire_snapshots
from catalog.tables.history import AsOf, find_snapshot, name_snapshot, past, roll_back, unname_snapshot
from catalog.tables.inserts import Inserts
from catalog.tables.matching import parse_filter
from catalog.tables.modes import Mode
from catalog.tables.requests import Request, delete_request, upsert_request
from catalog.tables.rows import Rows
from catalog.tables.transaction import PATIENCE_S, Transaction, Transactions
from catalog.tables.versions import Catalogue
from catalog.tables.writes import Planner


class Tables:
    """The lake's tables. Safe to share between threads; processes need nothing but the catalog in common.

    `hook` is called after every commit (see CommitHook). `records` is where transactions are decided; default:
    `transactions/` beside the warehouse. `patience_s`: how long a transaction may hold a table before another
    writer aborts it.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        hook: CommitHook | None = None,
        retry: Retry | None = None,
        records: str | None = None,
        patience_s: float = PATIENCE_S,
        unproven: Callable[[str, Snapshot], bool] = lambda name, snapshot: False,
    ) -> None:
        """`unproven`: whether a table's snapshot still waits to be proven. Such a one never expires."""
        if not isinstance(catalog, GlueCatalog):
            raise Invalid(f"the tables stand on Glue's compare-and-swap, which {type(catalog).__name__} does not have")
        self.catalogue = Catalogue(catalog)
        self.committer = Committer(self.catalogue, hook, retry)
        self._unproven = unproven
        self._inserts = Inserts(self.committer)
        place = records or f"{catalog.properties.get('warehouse', '').rstrip('/').rpartition('/')[0]}/transactions"
        self._transactions = Transactions(self.committer, place, patience_s)

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
    ) -> Table:
        """Creates a table. `schema`: Iceberg, Arrow, or {name: type}; key columns become required.

        `partition`: `region`, `day(ts)`, `bucket(16, id)`, …; `sort`: `ts desc`. Conflict if it exists.
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
        return self._write(upsert_request(self.catalogue, name, rows, key), token)

    def delete(
        self,
        name: str,
        where: str | BooleanExpression | None = None,
        *,
        keys: Rows = None,
        token: str | None = None,
    ) -> Receipt:
        """Deletes the rows a filter is true for, or those with the given `keys` of the table's own key.

        Files whose statistics decide are dropped or skipped unread. Commits nothing if nothing matches.
        """
        return self._write(delete_request(self.catalogue, name, where, keys), token)

    def compact(self, name: str, *, budget_bytes: int = BUDGET_BYTES) -> Receipt:
        """Merges pending deletes and small files, reading at most the budget. Changes no row."""
        return self._write(Request(name, lambda planner: plan_compaction(planner, budget_bytes), 0), None)

    def scan(
        self,
        name: str,
        *,
        where: str | BooleanExpression | None = None,
        columns: Sequence[str] | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows, as Arrow. `as_of` a snapshot id, a time (ms or datetime) or a name reads with its schema."""
        with explained(name):
            return self.plan_scan(name, where=where, columns=columns, as_of=as_of, limit=limit).to_arrow()

    def plan_scan(
        self,
        name: str,
        *,
        where: str | BooleanExpression | None = None,
        columns: Sequence[str] | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
    ) -> DataScan:
        """The scan, not yet run: for planners that want its files, and for readers batch by batch."""
        version = self.catalogue.load(name)
        metadata, snapshot = version.metadata, None  # none: the current one, with the current schema
        if as_of is not None:
            snapshot = find_snapshot(version, as_of)
            schema_id = metadata.current_schema_id if snapshot.schema_id is None else snapshot.schema_id
            metadata = metadata.model_copy(update={"current_schema_id": schema_id})
        names = [field.name for field in metadata.schema().fields]
        for column in columns or ():
            if column.split(".")[0] not in names:
                raise Invalid(f"{name}: there is no column {column!r}; there are {', '.join(names)}", subject=name)
        self.committer.saw_read(name)
        return DataScan(
            table_metadata=metadata,
            io=self.catalogue.io,
            row_filter=AlwaysTrue() if where is None else parse_filter(where, name),
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
    ) -> None:
        """Changes the table's shape, all or nothing, in one commit of metadata. None removes a property."""
        alter_table(
            self.committer,
            name,
            Change(add or {}, drop, rename or {}, promote or {}, partition, sort, key, mode, properties or {}),
        )

    def snapshot(self, name: str, tag: str, *, as_of: AsOf | None = None) -> Snapshot:
        """Names a snapshot, by default the current one. It never expires while it has the name."""
        return name_snapshot(self.committer, name, tag, as_of)

    def drop_snapshot(self, name: str, tag: str) -> None:
        """Takes a name away; the snapshot itself stays until it expires."""
        unname_snapshot(self.committer, name, tag)

    def rollback(self, name: str, to: AsOf) -> Snapshot:
        """Makes an earlier state current again, in one commit. Nothing is deleted, so it can be taken back."""
        return roll_back(self.committer, name, to)

    def expire(
        self,
        name: str,
        *,
        older_than: int | datetime,
        retain_last: int = 1,
        keep: Callable[[Snapshot], bool] = lambda snapshot: False,
    ) -> Expired:
        """Forgets snapshots older than a time and deletes the files only they need. Always stay: named ones, those
        that the timeline does not have yet, and what `keep` is true for; the last two with the one before them."""
        cutoff = int(older_than.timestamp() * 1000) if isinstance(older_than, datetime) else older_than
        return expire_snapshots(self.committer, name, cutoff, retain_last, lambda s: keep(s) or self._unproven(name, s))

    def clone(self, name: str, target: str, *, as_of: AsOf | None = None) -> Table:
        """A new table with the rows of a snapshot, without copying them; the source keeps that snapshot."""
        return self.catalogue.table(clone_table(self.committer, name, target, as_of))

    def drop(self, name: str, *, purge: bool = False) -> None:
        """Takes the table from the catalog; with `purge`, deletes its files too. Conflict while clones need them."""
        drop_clone_or_table(self.committer, name, purge=purge)

    def list(self, database: str | None = None) -> List[str]:
        """The names of all Iceberg tables, or of one database's."""
        return list_tables(self.catalogue.catalog, database)

    def describe(self, name: str) -> Description:
        """Shape, size, freshness and column statistics, from metadata alone: one GET per unseen manifest."""
        with explained(name):
            return describe_table(self.catalogue.load(name), self.catalogue.io, self.committer.manifests)

    def history(self, name: str) -> List[Snapshot]:
        """Main's snapshots, newest first."""
        return past(self.catalogue.load(name))

    def load(self, name: str) -> Table:
        """The table as pyiceberg has it."""
        return self.catalogue.table(self.catalogue.load(name))

    def transaction(self) -> Transaction:
        """`with tables.transaction() as tx:` writes to several tables, all of them or none."""
        return Transaction(self._transactions)

    def recover(self, names: Sequence[str] | None = None) -> List[str]:
        """Ends the transactions of crashed writers, on all tables or those named; what was ended."""
        return self._transactions.recover(self.list() if names is None else names)

    def forget_transactions(self, older_than_ms: int, held: Sequence[str] = ()) -> int:
        """Deletes the records of transactions that ended before; how many. `held`: tables that one may still hold."""
        return self._transactions.forget(older_than_ms, held)

    def _write(self, request: Request, token: str | None) -> Receipt:
        name, rows = request.table, request.rows
        used = new_token() if token is None else check_token(token)
        tokens: dict[str, int] = {}
        replayed: dict[str, Receipt] = {}

        def once(planner: Planner) -> Delta:
            tokens.clear()
            replayed.update(receipt_of(planner.version, [] if token is None else [used]))
            if replayed:
                return Delta()
            delta = request.plan(planner)
            tokens[used] = delta.matched if rows is None else rows
            return delta

        version, snapshot, delta = self.committer.write(name, once, tokens=tokens, insist=token is not None)
        return replayed.get(used) or make_receipt(version, snapshot, used, tokens[used], delta)
