"""Group commit: inserts that wait for the same table in this process ride in one Iceberg commit.

Nobody waits for company: the first caller commits at once, and those who came meanwhile go together next.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field, replace

import pyarrow as pa

from catalog.errors import Invalid
from catalog.tables.commits import Committer, Receipt, make_receipt, new_token, receipt_of
from catalog.tables.deltas import Delta
from catalog.tables.fileio import CommitIO
from catalog.tables.requests import checked
from catalog.tables.rows import Rows, check_rows
from catalog.tables.versions import Version
from catalog.tables.writes import Planner

GROUP_BYTES = 128 << 20
GROUP_CALLERS = 1000


@dataclass(eq=False)
class _Waiting:
    rows: pa.Table
    shape: tuple[str, int]
    token: str | None
    done: threading.Event = field(default_factory=threading.Event)
    receipt: Receipt | None = None
    error: BaseException | None = None


class _Queue:
    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.lock = threading.Lock()
        self.turn = threading.Lock()

    def take(self) -> list[_Waiting]:
        """As many as fit one commit. The rows of one schema only: a caller checked against an older one is redone."""
        group: list[_Waiting] = []
        size = 0
        with self.lock:
            while self.waiting and len(group) < GROUP_CALLERS and (not group or size < GROUP_BYTES):
                if group and self.waiting[0].shape != group[0].shape:
                    break
                group.append(self.waiting.popleft())
                size += group[-1].rows.nbytes
        return group


class Inserts:
    """Inserts with group commit. Each caller gets its own receipt; all of a group share the snapshot."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._queues: dict[str, _Queue] = {}
        self._guard = threading.Lock()

    def insert(self, name: str, rows: Rows, token: str | None) -> Receipt:
        early, version = checked(self._committer.catalogue, name, rows)
        waiting = _Waiting(early, version.shape, token)
        with self._guard:
            queue = self._queues.setdefault(name, _Queue())
        with queue.lock:
            queue.waiting.append(waiting)
        while not waiting.done.is_set():
            with queue.turn:
                # Whoever gets the turn commits for all who wait; most find their own work done when they get it.
                if not waiting.done.is_set():
                    _Group(self._committer, name, queue.take()).commit()
        if waiting.error is not None:
            raise waiting.error
        assert waiting.receipt is not None
        return waiting.receipt


class _Group:
    """The inserts of one commit."""

    def __init__(self, committer: Committer, name: str, members: list[_Waiting]) -> None:
        self._committer, self._name, self._members = committer, name, members
        self._shared = new_token()
        self._tokens: dict[str, int] = {}
        self._replayed: dict[str, Receipt] = {}
        self._fresh: list[_Waiting] = []
        self._written: tuple[object, Delta, CommitIO] | None = None

    def commit(self) -> None:
        try:
            insist = any(member.token for member in self._members)
            version, snapshot, delta = self._committer.write(self._name, self._plan, tokens=self._tokens, insist=insist)
            for member in self._members:
                token = member.token or self._shared
                receipt = make_receipt(version, snapshot, token, member.rows.num_rows, delta)
                member.receipt = self._replayed.get(token) or replace(receipt, replayed=member not in self._fresh)
        except BaseException as error:
            for member in self._members:
                member.error = member.error or error
        finally:
            for member in self._members:
                member.done.set()

    def _plan(self, planner: Planner) -> Delta:
        """Decided anew in each attempt: another process may have committed a token, or changed the schema."""
        version = planner.version
        self._replayed = receipt_of(version, [member.token for member in self._members if member.token])
        self._fresh = [
            m for m in _one_per_token(self._members) if m.token not in self._replayed and self._fits(m, version)
        ]
        self._tokens.clear()
        for member in self._fresh:
            token = member.token or self._shared
            self._tokens[token] = self._tokens.get(token, 0) + member.rows.num_rows
        rows = [m.rows for m in self._fresh if m.rows.num_rows]
        if not rows:
            return Delta(mode="append")
        metadata = version.metadata
        shape = (
            metadata.current_schema_id,
            metadata.default_spec_id,
            metadata.default_sort_order_id,
            self._fresh,
        )
        if self._written is not None and self._written[0] == shape:
            # The data files of a lost attempt are as good as new: a large insert must not starve among small ones.
            _, delta, before = self._written
            paths = {file.file_path for file in delta.added}
            planner.io.inherit([written for written in before.settle() if written.path in paths])
        else:
            delta = planner.insert(pa.concat_tables(rows))
        planner.io.spare(file.file_path for file in delta.added)
        self._written = (shape, delta, planner.io)
        return delta

    def _fits(self, member: _Waiting, version: Version) -> bool:
        if member.shape == version.shape:
            return True
        try:
            member.rows = check_rows(version.schema, member.rows, table=self._name)
            member.shape = version.shape
        except Invalid as error:  # this caller's alone: the others are not to suffer for it
            member.error = error
        return member.error is None


def _one_per_token(members: list[_Waiting]) -> list[_Waiting]:
    """The same request twice in one group is still one request."""
    seen: set[str | None] = set()
    found = []
    for member in members:
        if member.token is None or member.token not in seen:
            found.append(member)
            seen.add(member.token)
    return found
