"""One write, start to end: load, plan, write objects, compare-and-swap; and again from the start if another won.

Never writes twice: a lost answer is resolved by looking at the table, and a token that the caller gave stands in
the snapshot's summary, where every later attempt with the same token finds it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import TableUpdate

from catalog.errors import Conflict, Invalid
from catalog.refusals import explained
from catalog.tables.deltas import Delta, noted, produce
from catalog.tables.fileio import CommitIO, Written
from catalog.tables.manifests import ManifestReader
from catalog.tables.versions import Catalogue, Lost, Version
from catalog.tables.writes import Planner

logger = logging.getLogger(__name__)

CommitHook = Callable[[Table, Snapshot | None, Sequence[Written]], None]
"""Called after each successful commit: the table as committed, the snapshot the commit added (None if it only
moved references or changed metadata), and every data file, delete file, manifest and manifest list it wrote. The
commit stands whatever the hook does; what it raises is logged."""
Plan = Callable[[Planner], Delta]
Tell = Callable[[Version, Snapshot | None, Sequence[Written]], None]

TOKEN, TOKEN_ROWS = "strandline.token", "strandline.token-rows"
MODE_USED, MODE_REASON = "strandline.mode-used", "strandline.mode-reason"
READS = "strandline.reads"
TRANSACTION_PREFIX = "tx-"
RECENT = 10


@dataclass(frozen=True)
class Receipt:
    """What a write did. The same token gives the same receipt for as long as its snapshot is kept.

    `snapshot_id` is None only for a write that changed nothing on an empty table. `rows` were given or, in a
    delete, deleted; `matched` existed before. `replayed`: an earlier call with this token did the work.
    """

    table: str
    snapshot_id: int | None
    sequence: int
    rows: int
    token: str
    mode: str
    reason: str
    matched: int = 0
    replayed: bool = False


@dataclass(frozen=True)
class Retry:
    """How often a write that lost its race is planned again, and how long it waits: full jitter, doubling."""

    attempts: int = 25
    base_s: float = 0.02
    cap_s: float = 1.0

    def waits(self) -> Iterator[float]:
        for attempt in range(self.attempts):
            yield random.uniform(0, min(self.cap_s, self.base_s * 2**attempt))  # noqa: S311 - not a secret


class Committer:
    """Commits to tables, one at a time per table in this process, so that only other processes are raced."""

    def __init__(self, catalogue: Catalogue, hook: CommitHook | None = None, retry: Retry | None = None) -> None:
        self.catalogue = catalogue
        self.manifests = ManifestReader()
        self.retry = retry or Retry()
        self.settle: Callable[[Version, str], None] = lambda version, holder: None
        """Finishes or ends transactions that hold a table; set by `transaction`, called before main moves."""
        self._hook = hook
        self._locks: dict[str, threading.RLock] = {}
        self._reads: dict[str, int] = {}
        self._guard = threading.Lock()

    def write(
        self,
        name: str,
        plan: Plan,
        *,
        tokens: Mapping[str, int] | None = None,
        insist: bool = False,
        branch: str = MAIN_BRANCH,
        properties: Mapping[str, str] | None = None,
        snapshot_id: int | None = None,
        tell: Tell | None = None,
    ) -> tuple[Version, Snapshot | None, Delta]:
        """Plans and commits until it lands; Conflict when it still loses after the last attempt.

        `tokens`, with their row counts, go into the summary. An empty delta commits nothing, unless callers
        `insist` that theirs be kept or the snapshot's id is promised. `tell` is told of the commit instead of
        the hook, if nobody else may see it yet.
        """

        def attempt(version: Version, io: CommitIO) -> tuple[Sequence[TableUpdate], Snapshot | None, Delta]:
            reads = self._reads_per_write(version)
            delta = plan(Planner(version, io, self.manifests, branch, reads))
            if delta.is_empty and not (insist and tokens) and snapshot_id is None:
                return (), version.head(branch), delta
            noted = {MODE_USED: delta.mode, MODE_REASON: delta.reason, READS: str(self._reads.get(name, 0))}
            noted |= _tokens(tokens) | dict(properties or {})
            named = delta.named({key: value for key, value in noted.items() if value})
            snapshot, updates = produce(version, named, io, self.manifests, branch=branch, snapshot_id=snapshot_id)
            return updates, snapshot, delta

        found = self.commit(name, attempt, holder=branch, tell=tell)
        with self._guard:
            self._reads.pop(name, None)
        return found

    def commit(
        self,
        name: str,
        attempt: Callable[[Version, CommitIO], tuple[Sequence[TableUpdate], Snapshot | None, Delta]],
        *,
        holder: str | None = MAIN_BRANCH,
        tell: Tell | None = None,
    ) -> tuple[Version, Snapshot | None, Delta]:
        """The loop under every change of a table: `attempt` gives the updates for the version it is shown.

        No updates: nothing is committed. Whatever an attempt wrote is deleted if it certainly came to nothing.
        A transaction's branch keeps everybody but its `holder` from moving main; None: main does not move.
        """
        doubtful: list[tuple[Lost, Snapshot | None, Delta, CommitIO]] = []
        with self._lock(name):
            for wait in self.retry.waits():
                version = self.catalogue.load(name)
                if holder is not None and any(ref != holder for ref in transactions_on(version)):
                    self.settle(version, holder)
                    version = self.catalogue.load(name)
                for lost, snapshot, delta, io in doubtful:
                    # Its request was still under way when we looked before: it must not be made twice.
                    if lost.landed_in(version):
                        return self._done(version, snapshot, delta, io, tell)
                io = CommitIO(self.catalogue.io)
                try:
                    with explained(name):
                        updates, snapshot, delta = attempt(version, io)
                    if not updates:
                        io.discard()
                        return version, snapshot, delta
                    committed = self.catalogue.commit(version, updates, io)
                except Lost as lost:
                    if lost.certain:
                        io.discard()
                    else:
                        doubtful.append((lost, snapshot, delta, io))
                    logger.info("another commit was first", extra={"table": name, "certain": lost.certain})
                    time.sleep(wait)
                    continue
                except BaseException:
                    if not io.published:
                        io.discard()
                    raise
                return self._done(committed, snapshot, delta, io, tell)
        raise Conflict(
            f"{name}: {self.retry.attempts} attempts to commit lost against other writers: try again, or write "
            "to it from fewer places at once",
            subject=name,
        )

    def saw_read(self, name: str) -> None:
        with self._guard:
            self._reads[name] = self._reads.get(name, 0) + 1

    def announce(self, version: Version, snapshot: Snapshot | None, written: Sequence[Written]) -> None:
        """Tells the hook. What it raises is only logged: the lake's sweep finds the commit later anyway."""
        if self._hook is None:
            return
        try:
            self._hook(self.catalogue.table(version), snapshot, written)
        except Exception:
            logger.exception("the commit hook failed", extra={"table": version.name})

    def _done(
        self, version: Version, snapshot: Snapshot | None, delta: Delta, io: CommitIO, tell: Tell | None
    ) -> tuple[Version, Snapshot | None, Delta]:
        written = [w for w in io.settle() if not w.path.endswith(".metadata.json")]
        added = snapshot is not None and any(w.path == snapshot.manifest_list for w in written)
        (tell or self.announce)(version, snapshot if added else None, written)
        return version, snapshot, delta

    def _reads_per_write(self, version: Version) -> float:
        """Reads between writes, from the last snapshots' summaries and this process's own count."""
        head = version.head()
        recent = [s for s, _ in zip(ancestors_of(head, version.metadata), range(RECENT), strict=False)]
        counts = [int(noted(s, READS) or 0) for s in recent]
        return (sum(counts) + self._reads.get(version.name, 0)) / (len(counts) + 1)

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(name, threading.RLock())
        with lock:
            yield


def transactions_on(version: Version) -> list[str]:
    """The branches of transactions that are not finished on the table: while there is one, main must not move."""
    return [ref for ref in version.metadata.refs if ref.startswith(TRANSACTION_PREFIX)]


def new_token() -> str:
    return uuid4().hex


def check_token(token: str) -> str:
    if not token or len(token) > 128 or any(c.isspace() for c in token):
        raise Invalid(f"{token!r} is no token: 1 to 128 characters without spaces")
    return token


def receipt_of(version: Version, tokens: Iterable[str]) -> dict[str, Receipt]:
    """The receipts of those tokens that some snapshot of the table carries, rolled back or not."""
    wanted, found = set(tokens), {}
    for snapshot in reversed(version.metadata.snapshots) if wanted else ():
        carried = noted(snapshot, TOKEN).split()
        for token in wanted.intersection(carried):
            rows = noted(snapshot, TOKEN_ROWS).split()[carried.index(token)]
            found[token] = replace(make_receipt(version, snapshot, token, int(rows)), replayed=True)
    return found


def make_receipt(
    version: Version, snapshot: Snapshot | None, token: str, rows: int, delta: Delta | None = None
) -> Receipt:
    return Receipt(
        table=version.name,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        sequence=(snapshot.sequence_number or 0) if snapshot else 0,
        rows=rows,
        token=token,
        mode=delta.mode if delta else noted(snapshot, MODE_USED),
        reason=delta.reason if delta else noted(snapshot, MODE_REASON),
        matched=delta.matched if delta else 0,
    )


def _tokens(tokens: Mapping[str, int] | None) -> dict[str, str]:
    if not tokens:
        return {}
    return {TOKEN: " ".join(tokens), TOKEN_ROWS: " ".join(str(rows) for rows in tokens.values())}
