"""Multi-table transactions: the writes to several tables become visible together, or not at all.

Writes are staged on a branch `tx-<id>` of each table. One object in S3, the transaction record, decides: it says
committed or aborted, and only its first write succeeds (If-None-Match). Then each table's main moves to the branch's
head, by this writer or by the next process that meets the branch. While a table has such a branch its main does not
move, so what was staged is what becomes visible.

A table that the transaction read has a branch too, with a snapshot that changes nothing if it only read it: so what was
read is still the table's state when the record decides, and transactions are serializable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from uuid import uuid4

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import DataScan
from pyiceberg.table.snapshots import Snapshot

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import Conflict, Invalid, LakeError
from catalog.iceberg import PARTICIPANTS, TRANSACTION_ID, TRANSACTION_PREFIX, WrittenObject
from catalog.tables.addresses import AddressedChange, StaleRead
from catalog.tables.commit_tokens import find_receipts
from catalog.tables.committer import (
    Committer,
    Notify,
    Plan,
    Receipt,
    check_token,
    make_receipt,
)
from catalog.tables.delta import Delta
from catalog.tables.glue_store import TableVersion
from catalog.tables.planner import WritePlanner
from catalog.tables.row_validation import Rows
from catalog.tables.transaction_record import ABORTED, COMMITTED, TransactionRecord, Transactions
from catalog.tables.transaction_resolution import abort_branch, commit_branch
from catalog.tables.write_requests import (
    WriteRequest,
    addressed_request,
    delete_request,
    insert_request,
    upsert_request,
)

ATTEMPTS = 5
ScanVersion = Callable[[TableVersion, str | BooleanExpression | None, Sequence[str] | None, int | None], DataScan]
"""The scan of a table at a version's current snapshot: filter, columns, limit."""


@dataclass
class _Staged:
    """One operation's snapshot on its branch, and what the commit hook gets once the snapshot is on main."""

    written: Sequence[WrittenObject] = ()
    snapshot: Snapshot | None = None
    receipt: Receipt | None = None

    def note(self, version: TableVersion, snapshot: Snapshot | None, written: Sequence[WrittenObject]) -> None:
        self.snapshot, self.written = snapshot, written


class Transaction:
    """Collects writes. Leaving the `with` block commits all of them, an exception none. Not thread-safe.

    Nothing is written before the commit: the rows stay in memory until then. `read` shows a table as it was when the
    transaction first read it, and the commit is a Conflict if it has changed since. With a token the writes happen
    once, however often the transaction is repeated with it within a week.
    """

    def __init__(
        self, transactions: Transactions, committer: Committer, scan: ScanVersion, token: str | None = None
    ) -> None:
        self._transactions, self._committer, self._requests = transactions, committer, list[WriteRequest]()
        self._table_store, self._scan = committer.table_store, scan
        self._token = None if token is None else check_token(token)
        self._read: dict[str, TableVersion] = {}
        self.id: str | None = None
        self.receipts: list[Receipt] = []

    def read(
        self,
        name: str,
        *,
        where: str | BooleanExpression | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The table's rows, for each read of this transaction at the same snapshot: that of the first one.

        Invalid after a write to the table: what it will be is known only when the transaction commits.
        """
        if self.receipts:
            raise Invalid("the transaction is already committed: begin another")
        if any(request.table == name for request in self._requests):
            raise Invalid(f"{name}: the transaction has written to it: read first, then write", subject=name)
        if name not in self._read:
            self._read[name] = self._committer.settled(name)
        with translate_aws_errors(name):
            return self._scan(self._read[name], where, columns, limit).to_arrow()

    def hold(self, name: str, snapshot_id: int | None) -> None:
        """Counts the table as read at this snapshot, by a query outside the transaction. StaleRead if it has moved on,
        now or at the commit."""
        version = self._read.get(name) or self._committer.settled(name)
        if version.metadata.current_snapshot_id != snapshot_id:
            raise StaleRead(f"{name} was changed after the transaction had read it: run it again", subject=name)
        self._read[name] = version

    def insert(self, name: str, rows: Rows) -> None:
        self._add(insert_request(self._table_store, name, rows))

    def upsert(self, name: str, rows: Rows, key: Sequence[str] | None = None) -> None:
        self._add(upsert_request(self._table_store, name, rows, key))

    def delete(self, name: str, where: str | BooleanExpression | None = None, *, keys: Rows = None) -> None:
        self._add(delete_request(self._table_store, name, where, keys))

    def replace_addressed(
        self, name: str, base_snapshot_id: int | None, changes: Sequence[AddressedChange], inserted: Rows = None
    ) -> None:
        self._add(addressed_request(self._table_store, name, base_snapshot_id, changes, inserted))

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()

    def commit(self) -> list[Receipt]:
        """Stages the writes, writes the record, and moves each main. Conflict if other writers abort every attempt, or
        have changed a table since it was read.

        A crash before the record is written leaves branches that nobody reads and that the next writer aborts; a
        crash after it leaves a committed transaction, which the next writer finishes.
        """
        if self.receipts:
            return self.receipts
        if not self._requests:
            # Nothing moved between its first read and now, so all reads are of the moment of the last first read.
            for name, read in self._read.items():
                check_unchanged(read, self._committer.settled(name))
            return []
        for _ in range(ATTEMPTS):
            attempt = _Attempt(self._transactions, self._committer, self._requests, self._read, self._token)
            if attempt.run():
                self.id, self.receipts = attempt.id, attempt.receipts
                return self.receipts
        tables = ", ".join(sorted({request.table for request in self._requests}))
        raise Conflict(f"the transaction on {tables} was aborted by other writers {ATTEMPTS} times: try again")

    def _add(self, request: WriteRequest) -> None:
        if self.receipts:
            raise Invalid("the transaction is already committed: begin another")
        self._requests.append(request)


class _Replayed(Exception):
    """An earlier transaction with the same token has committed."""


def check_unchanged(read: TableVersion, current: TableVersion) -> None:
    """StaleRead, a Conflict, if the table has another snapshot, or is another table, than when it was read."""
    then, now = read.metadata, current.metadata
    if (then.table_uuid, then.current_snapshot_id) != (now.table_uuid, now.current_snapshot_id):
        raise StaleRead(
            f"{read.name} was changed by another writer after the transaction had read it: run the transaction again",
            subject=read.name,
        )


class _Attempt:
    """One attempt at a transaction, with its own id. `read`: the tables that it read, as they were."""

    def __init__(
        self,
        transactions: Transactions,
        committer: Committer,
        requests: Sequence[WriteRequest],
        read: Mapping[str, TableVersion],
        token: str | None,
    ) -> None:
        self.id = uuid4().hex
        self.receipts: list[Receipt] = []
        self._transactions, self._committer = transactions, committer
        self._branch = TRANSACTION_PREFIX + self.id
        written = {request.table for request in requests}
        self._writes, self._read, self._token = len(requests), read, token
        self._requests = [
            *requests,
            *(WriteRequest(name, lambda _: Delta(), 0) for name in read if name not in written),
        ]
        # In the order of their names, so that two transactions on the same tables cannot deadlock.
        self._tables = sorted({request.table for request in self._requests})
        self._ids = {name: self._new_id(name) for name in self._tables}
        self._staged: dict[int, _Staged] = {}

    def run(self) -> bool:
        """Returns False if another process aborted it."""
        participants = [[name, str(self._ids[name])] for name in self._tables]
        record = self._transactions.record(self.id)
        try:
            for name in self._tables:
                self._stage(name, participants)
        except _Replayed:
            self._abort(record)
            self.receipts = self._earlier_receipts()
            return True
        except BaseException:
            self._abort(record)
            raise
        with translate_aws_errors(record.path):
            decided = record.decide(COMMITTED, participants)
        if decided != COMMITTED:
            self._abort_branches()
            return False
        for name in self._tables:
            commit_branch(self._committer, name, self._branch, self._announcement(name))
        self.receipts = [receipt for number in range(self._writes) if (receipt := self._staged[number].receipt)]
        return True

    def _earlier_receipts(self) -> list[Receipt]:
        """What the first transaction with the token did. It has committed to one table, so it will to all."""
        receipts = []
        for number, request in enumerate(self._requests[: self._writes]):
            token = self._write_token(number)
            version = self._committer.settled(request.table)
            found = find_receipts(version, [token], self._committer.table_store.io)
            if token not in found:
                raise Conflict(
                    f"the token {self._token!r} was used for a transaction that did not make this write to "
                    f"{request.table}: send a new token with a new transaction",
                    subject=request.table,
                )
            receipts.append(found[token])
        return receipts

    def _write_token(self, number: int) -> str:
        return f"{self._token}/{number}"

    def _stage(self, name: str, participants: Sequence[Sequence[str]]) -> None:
        properties = {TRANSACTION_ID: self.id, PARTICIPANTS: json.dumps(participants)}
        requests = [(number, request) for number, request in enumerate(self._requests) if request.table == name]
        for number, request in requests:
            staged, token = _Staged(), self.id if self._token is None else self._write_token(number)
            self._staged[number] = staged
            tokens: dict[str, int] = {}
            version, snapshot, delta = self._committer.write(
                name,
                self._guarded(request, number, tokens, first=number == requests[0][0]),
                tokens=tokens,
                branch=self._branch,
                properties=properties,
                # Every operation adds a snapshot, even one that changes no row: PARTICIPANTS names the last one's id.
                snapshot_id=self._ids[name] if number == requests[-1][0] else self._new_id(name),
                notify=staged.note,
            )
            rows = delta.matched if request.rows is None else request.rows
            staged.receipt = make_receipt(version, snapshot, token, rows, delta)

    def _guarded(self, request: WriteRequest, number: int, tokens: dict[str, int], *, first: bool) -> Plan:
        """The first operation on a table begins the branch, where the table is as it was read. Later ones extend it. If
        another process has removed it, they must not create it again. `tokens` gets the operation's own."""

        def plan(planner: WritePlanner) -> Delta:
            tokens.clear()
            name, has_branch = request.table, self._branch in planner.version.metadata.refs
            if not first and not has_branch:
                raise Conflict(f"the transaction was aborted while it wrote to {name}: try again")
            if first and not has_branch:
                self._check_first(planner, number)
            delta = request.plan(planner)
            if self._token is not None:
                tokens[self._write_token(number)] = delta.matched if request.rows is None else request.rows
            return delta

        return plan

    def _check_first(self, planner: WritePlanner, number: int) -> None:
        token, version = self._write_token(number), planner.version
        if self._token is not None and find_receipts(version, [token], planner.io):
            raise _Replayed
        if version.name in self._read:
            check_unchanged(self._read[version.name], version)

    def _announcement(self, name: str) -> Notify:
        def notify(version: TableVersion, snapshot: Snapshot | None, written: Sequence[WrittenObject]) -> None:
            for number, staged in self._staged.items():
                if self._requests[number].table == name:
                    self._committer.announce(version, staged.snapshot, staged.written)

        return notify

    def _abort(self, record: TransactionRecord) -> None:
        """Best effort, while another error propagates: the next writer of a table resolves what is left."""
        with suppress(LakeError, ClientError, BotoCoreError):
            if record.decide(ABORTED) == ABORTED:
                self._abort_branches()

    def _abort_branches(self) -> None:
        for name in self._tables:
            abort_branch(self._committer, name, self._branch)

    def _new_id(self, name: str) -> int:
        return self._committer.table_store.cached(name).metadata.new_snapshot_id()
