"""Multi-table transactions: all of several tables' writes, or none.

Writes are staged on a branch `tx-<id>` of each table. One object in S3, created if absent, decides: it says
committed or aborted, and whoever writes it first has the last word. Then each table's main is moved to its
branch's head, by the writer or by whoever comes next. While a table has such a branch its main stands still, so
what was staged is what becomes visible.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import Conflict, Invalid, LakeError
from catalog.refusals import explain, explained
from catalog.summary import PARTICIPANTS, TRANSACTION
from catalog.tables.commits import (
    TRANSACTION_PREFIX,
    Committer,
    Plan,
    Receipt,
    Tell,
    make_receipt,
    transactions_on,
)
from catalog.tables.deltas import Delta
from catalog.tables.fileio import Written
from catalog.tables.landing import finish, undo
from catalog.tables.objects import Store
from catalog.tables.requests import Request, delete_request, insert_request, upsert_request
from catalog.tables.rows import Rows
from catalog.tables.versions import Version
from catalog.tables.writes import Planner

FORMAT = "strandline/transaction@v1"
COMMITTED, ABORTED = "committed", "aborted"
# How long others wait for a transaction that does not decide, before they abort it.
PATIENCE_S = 10.0
ATTEMPTS = 5
_POLL_S = 0.05


@dataclass
class _Staged:
    """One operation's snapshot on its branch, and what the hook is told of it once it is visible."""

    written: Sequence[Written] = ()
    snapshot: Snapshot | None = None
    receipt: Receipt | None = None

    def tell(self, version: Version, snapshot: Snapshot | None, written: Sequence[Written]) -> None:
        self.snapshot, self.written = snapshot, written


class Record:
    """The object that decides a transaction. Created once, never changed."""

    def __init__(self, store: Store, folder: str, transaction: str) -> None:
        self._store, self.path = store, f"{folder.rstrip('/')}/{transaction}.json"
        self._id = transaction

    def read(self) -> str | None:
        """committed, aborted, or None while nobody has decided."""
        try:
            with explained(self.path):
                state: str = json.loads(self._store.get(self.path))["state"]
        except FileNotFoundError:
            return None
        return state

    def decide(self, state: str, participants: Sequence[Sequence[str]] = ()) -> str:
        """Decides, unless it is decided; what holds. Lost answers are resolved by reading: the first word stands."""
        content = {"format": FORMAT, "id": self._id, "state": state, "participants": participants}
        body = json.dumps(content, indent=1).encode()
        try:
            self._store.put(self.path, body, IfNoneMatch="*")
            return state
        except (ClientError, BotoCoreError) as error:
            found = self.read()
            if found is None:
                raise explain(error, self.path) from error
            return found


class Transactions:
    """Begins transactions, and ends those whose writers are gone."""

    def __init__(self, committer: Committer, records: str, patience_s: float = PATIENCE_S) -> None:
        self.committer = committer
        self._records, self._patience_s = records, patience_s
        self.committer.settle = self.settle

    def record(self, transaction: str) -> Record:
        return Record(self.committer.catalogue.io.store, self._records, transaction)

    def settle(self, version: Version, holder: str) -> None:
        """Ends every other transaction on the table: waits for its decision, and when patience is over, aborts it."""
        for branch in transactions_on(version):
            if branch != holder:
                self._end(version.name, branch)

    def recover(self, names: Sequence[str]) -> list[str]:
        """Finishes or undoes what crashed writers left on the tables; the branches that were ended."""
        ended = []
        for name in names:
            version = self.committer.catalogue.load(name)
            for branch in transactions_on(version):
                self._end(name, branch)
                ended.append(f"{name}@{branch}")
        return ended

    def forget(self, older_than_ms: int, held: Sequence[str]) -> int:
        """Deletes the records of transactions that ended long ago; how many. `held`: tables that may have a branch.

        A record must stay while a branch of its transaction does. All others were ended on every table, and the
        writer of one so old is gone: nobody will ask for it again. One LIST per thousand records.
        """
        living = {branch for name in held for branch in transactions_on(self.committer.catalogue.load(name))}
        store, place = self.committer.catalogue.io.store, urlsplit(self._records)
        bucket, folder = place.netloc, f"{place.path.strip('/')}/"
        old = list[str]()
        with explained(self._records):
            for page in store.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=folder):
                for found in page.get("Contents", ()):
                    identity = found["Key"].removeprefix(folder).removesuffix(".json")
                    ended = found["LastModified"].timestamp() * 1000 < older_than_ms
                    if ended and TRANSACTION_PREFIX + identity not in living:
                        old.append(f"s3://{bucket}/{found['Key']}")
            store.delete(old)
        return len(old)

    def _end(self, name: str, branch: str) -> None:
        record = self.record(branch.removeprefix(TRANSACTION_PREFIX))
        # By the writer's clock or, should that be ahead, by how long we have been waiting.
        until = time.monotonic() + self._patience_s
        while True:
            head = self.committer.catalogue.load(name).metadata.snapshot_by_name(branch)
            if head is None:
                return  # somebody else was quicker
            state = record.read()
            old = time.time() * 1000 - head.timestamp_ms > self._patience_s * 1000
            if state is None and (old or time.monotonic() >= until):
                state = record.decide(ABORTED)
            if state == COMMITTED:
                finish(self.committer, name, branch)
                return
            if state == ABORTED:
                undo(self.committer, name, branch)
                return
            time.sleep(_POLL_S)


class Transaction:
    """Collects writes; leaving the `with` block commits them all, an exception none. Not for several threads.

    Nothing is written before the commit, so the rows stay in memory until then, and reads do not see them.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions, self._requests = transactions, list[Request]()
        self._catalogue = transactions.committer.catalogue
        self.id: str | None = None
        self.receipts: list[Receipt] = []

    def insert(self, name: str, rows: Rows) -> None:
        self._add(insert_request(self._catalogue, name, rows))

    def upsert(self, name: str, rows: Rows, key: Sequence[str] | None = None) -> None:
        self._add(upsert_request(self._catalogue, name, rows, key))

    def delete(self, name: str, where: str | BooleanExpression | None = None, *, keys: Rows = None) -> None:
        self._add(delete_request(self._catalogue, name, where, keys))

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()

    def commit(self) -> list[Receipt]:
        """Stages, decides, and moves each main. Conflict if others abort it again and again.

        A crash before the record is written leaves branches that nobody reads, and that others undo; a crash
        after it leaves a committed transaction, which others finish.
        """
        if self.receipts or not self._requests:
            return self.receipts
        for _ in range(ATTEMPTS):
            attempt = _Attempt(self._transactions, self._requests)
            if attempt.run():
                self.id, self.receipts = attempt.id, attempt.receipts
                return self.receipts
        tables = ", ".join(sorted({request.table for request in self._requests}))
        raise Conflict(f"the transaction on {tables} was aborted by other writers {ATTEMPTS} times: try again")

    def _add(self, request: Request) -> None:
        if self.receipts:
            raise Invalid("the transaction is committed: begin another")
        self._requests.append(request)


class _Attempt:
    """One try at a transaction, with an id of its own."""

    def __init__(self, transactions: Transactions, requests: Sequence[Request]) -> None:
        self.id = uuid4().hex
        self.receipts: list[Receipt] = []
        self._all, self._committer = transactions, transactions.committer
        self._branch = TRANSACTION_PREFIX + self.id
        self._requests = requests
        # In the order of their names: two transactions on the same tables cannot wait for each other.
        self._tables = sorted({request.table for request in requests})
        self._ids = {name: self._new_id(name) for name in self._tables}
        self._staged: dict[int, _Staged] = {}

    def run(self) -> bool:
        """False if somebody aborted it first."""
        participants = [[name, str(self._ids[name])] for name in self._tables]
        record = self._all.record(self.id)
        try:
            for name in self._tables:
                self._stage(name, participants)
        except BaseException:
            self._give_up(record)
            raise
        with explained(record.path):
            decided = record.decide(COMMITTED, participants)
        if decided != COMMITTED:
            self._undo()
            return False
        for name in self._tables:
            finish(self._committer, name, self._branch, self._announce(name))
        self.receipts = [found for number in sorted(self._staged) if (found := self._staged[number].receipt)]
        return True

    def _stage(self, name: str, participants: Sequence[Sequence[str]]) -> None:
        properties = {TRANSACTION: self.id, PARTICIPANTS: json.dumps(participants)}
        mine = [(number, request) for number, request in enumerate(self._requests) if request.table == name]
        for number, request in mine:
            staged = self._staged[number] = _Staged()
            version, snapshot, delta = self._committer.write(
                name,
                self._guarded(request, first=number == mine[0][0]),
                branch=self._branch,
                properties=properties,
                # Each operation makes a snapshot, also one that changes nothing: the last one's id is promised.
                snapshot_id=self._ids[name] if number == mine[-1][0] else self._new_id(name),
                tell=staged.tell,
            )
            rows = delta.matched if request.rows is None else request.rows
            staged.receipt = make_receipt(version, snapshot, self.id, rows, delta)

    def _guarded(self, request: Request, *, first: bool) -> Plan:
        """Later operations build on the branch: if somebody aborted it meanwhile, they must not start it anew."""

        def plan(planner: Planner) -> Delta:
            if not first and self._branch not in planner.version.metadata.refs:
                raise Conflict(f"the transaction was aborted while it wrote to {request.table}: try again")
            return request.plan(planner)

        return plan

    def _announce(self, name: str) -> Tell:
        def tell(version: Version, snapshot: Snapshot | None, written: Sequence[Written]) -> None:
            for number, staged in self._staged.items():
                if self._requests[number].table == name:
                    self._committer.announce(version, staged.snapshot, staged.written)

        return tell

    def _give_up(self, record: Record) -> None:
        """Best effort, while an error is on its way up: what stays is undone by whoever meets it."""
        with suppress(LakeError, ClientError, BotoCoreError):
            if record.decide(ABORTED) == ABORTED:
                self._undo()

    def _undo(self) -> None:
        for name in self._tables:
            undo(self._committer, name, self._branch)

    def _new_id(self, name: str) -> int:
        return self._committer.catalogue.known(name).metadata.new_snapshot_id()
