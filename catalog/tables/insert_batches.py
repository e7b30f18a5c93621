"""Insert batches: inserts that wait for the same table in this process share one Iceberg commit (group commit).

No caller waits for others to arrive: the first commits at once, and those that arrive meanwhile form the next batch.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field, replace

import pyarrow as pa

from catalog.core.errors import Invalid
from catalog.tables.commit_tokens import find_receipts
from catalog.tables.committer import Committer, Receipt, WrittenFiles, make_receipt, new_token
from catalog.tables.delta import Delta
from catalog.tables.glue_store import TableVersion
from catalog.tables.planner import WritePlanner
from catalog.tables.row_validation import Rows, check_rows
from catalog.tables.write_requests import validate

BATCH_BYTES = 128 << 20
BATCH_INSERTS = 1000


@dataclass(eq=False)
class _Insert:
    """One caller's insert, waiting for its batch. `shape`: the schema that `rows` were checked against."""

    rows: pa.Table
    shape: tuple[str, int]
    token: str | None
    done: threading.Event = field(default_factory=threading.Event)
    receipt: Receipt | None = None
    error: BaseException | None = None


class _Queue:
    def __init__(self) -> None:
        self.waiting: deque[_Insert] = deque()
        self.lock = threading.Lock()
        self.turn = threading.Lock()

    def take(self) -> list[_Insert]:
        """The next batch: as many inserts as fit one commit, all checked against the same schema."""
        batch: list[_Insert] = []
        size = 0
        with self.lock:
            while self.waiting and len(batch) < BATCH_INSERTS and (not batch or size < BATCH_BYTES):
                if batch and self.waiting[0].shape != batch[0].shape:
                    break
                batch.append(self.waiting.popleft())
                size += batch[-1].rows.nbytes
        return batch


class InsertBatches:
    """Inserts with group commit. Each caller gets its own receipt; the inserts of a batch share a snapshot."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._queues: dict[str, _Queue] = {}
        self._guard = threading.Lock()

    def insert(self, name: str, rows: Rows, token: str | None) -> Receipt:
        valid, version = validate(self._committer.table_store, name, rows)
        insert = _Insert(valid, version.shape, token)
        with self._guard:
            queue = self._queues.setdefault(name, _Queue())
        with queue.lock:
            queue.waiting.append(insert)
        while not insert.done.is_set():
            with queue.turn:
                # The caller that gets the turn commits for all that wait: most find their insert done by then.
                if not insert.done.is_set():
                    _Batch(self._committer, name, queue.take()).commit()
        if insert.error is not None:
            raise insert.error
        assert insert.receipt is not None
        return insert.receipt


class _Batch:
    """The inserts of one commit."""

    def __init__(self, committer: Committer, name: str, inserts: list[_Insert]) -> None:
        self._committer, self._name, self._inserts = committer, name, inserts
        self._batch_token = new_token()
        self._tokens: dict[str, int] = {}
        self._replayed: dict[str, Receipt] = {}
        self._fresh: list[_Insert] = []
        self._written = WrittenFiles()

    def commit(self) -> None:
        try:
            has_tokens = any(insert.token for insert in self._inserts)
            version, snapshot, delta = self._committer.write(
                self._name, self._plan, tokens=self._tokens, commit_empty=has_tokens
            )
            for insert in self._inserts:
                token = insert.token or self._batch_token
                receipt = make_receipt(version, snapshot, token, insert.rows.num_rows, delta)
                insert.receipt = self._replayed.get(token) or replace(receipt, replayed=insert not in self._fresh)
        except BaseException as error:
            for insert in self._inserts:
                insert.error = insert.error or error
        finally:
            for insert in self._inserts:
                insert.done.set()

    def _plan(self, planner: WritePlanner) -> Delta:
        """Runs in every attempt: another process may have committed a token, or changed the schema."""
        version = planner.version
        self._replayed = find_receipts(version, [i.token for i in self._inserts if i.token], planner.io)
        self._fresh = [
            i for i in _one_per_token(self._inserts) if i.token not in self._replayed and self._fits(i, version)
        ]
        self._tokens.clear()
        for insert in self._fresh:
            token = insert.token or self._batch_token
            self._tokens[token] = self._tokens.get(token, 0) + insert.rows.num_rows
        rows = [insert.rows for insert in self._fresh if insert.rows.num_rows]
        if not rows:
            return Delta(mode="append")
        delta = self._written.reuse(planner, self._fresh) or planner.insert(pa.concat_tables(rows))
        self._written.keep(planner, self._fresh, delta)
        return delta

    def _fits(self, insert: _Insert, version: TableVersion) -> bool:
        if insert.shape == version.shape:
            return True
        try:
            insert.rows = check_rows(version.schema, insert.rows, table=self._name)
            insert.shape = version.shape
        except Invalid as error:  # of this insert alone: the others of the batch are committed
            insert.error = error
        return insert.error is None


def _one_per_token(inserts: list[_Insert]) -> list[_Insert]:
    """Without repeated tokens: the same request twice in one batch is still one request."""
    tokens: set[str | None] = set()
    distinct = []
    for insert in inserts:
        if insert.token is None or insert.token not in tokens:
            distinct.append(insert)
            tokens.add(insert.token)
    return distinct
