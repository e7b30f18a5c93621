"""One write, start to end: load, plan, write objects, compare-and-swap; and from the start again if another writer won.

Does not commit twice: after a lost response it reads the table to learn whether the commit succeeded, and a caller's
token is in the snapshot's summary, where later attempts with the same token find it. `commit_tokens` has the tokens of
expired snapshots.
"""

from __future__ import annotations

import logging
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

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.core.retries import Retry
from catalog.iceberg import TRANSACTION_PREFIX, CommitIO, ManifestReader, WrittenObject
from catalog.tables.delta import Delta, build_snapshot, summary_value
from catalog.tables.glue_store import CommitLost, GlueTableStore, TableVersion
from catalog.tables.planner import WritePlanner

logger = logging.getLogger(__name__)

CommitHook = Callable[[Table, Snapshot | None, Sequence[WrittenObject]], None]
"""Called after each successful commit: the table as committed, the snapshot the commit added (None if it only
moved references or changed metadata), and every data file, delete file, manifest and manifest list it wrote. The
commit is final: an exception of the hook is logged and dropped."""
Plan = Callable[[WritePlanner], Delta]
AttemptResult = tuple[Sequence[TableUpdate], Snapshot | None, Delta]
"""The updates of one attempt at a commit, the snapshot that is current after them, and its delta."""
Attempt = Callable[[TableVersion, CommitIO], AttemptResult]
Notify = Callable[[TableVersion, Snapshot | None, Sequence[WrittenObject]], None]
ResolveTransactions = Callable[["Committer", str, Sequence[str]], None]
"""Commits or aborts the transactions that hold a table, given the table's name and their branches on it."""

COMMIT_TOKEN, TOKEN_ROWS = "strandline.token", "strandline.token-rows"
MODE_USED, MODE_REASON = "strandline.mode-used", "strandline.mode-reason"
READS = "strandline.reads"
# How many transactions, one after the other, a writer waits for.
RESOLUTIONS = 10
# How many snapshots the reads per write are averaged over.
RECENT_SNAPSHOTS = 10


@dataclass(frozen=True)
class Receipt:
    """What a write did. The same token gives the same receipt while its snapshot exists, and for a week at least.

    `snapshot_id` is None only for a write that changed nothing on an empty table. `rows`: rows written or, for a
    delete, deleted; `matched`: rows that existed before. `replayed`: an earlier call with this token did the work.
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


class Committer:
    """Commits to tables, one commit at a time per table in this process: only other processes compete."""

    def __init__(
        self,
        table_store: GlueTableStore,
        on_commit: CommitHook | None = None,
        retry: Retry | None = None,
        *,
        resolve_transactions: ResolveTransactions | None = None,
    ) -> None:
        """`resolve_transactions` is called before main moves on a table that transactions hold."""
        self.table_store = table_store
        self.manifests = ManifestReader()
        self.retry = retry or Retry()
        self._on_commit, self._resolve_transactions = on_commit, resolve_transactions
        self._locks: dict[str, threading.RLock] = {}
        self._reads: dict[str, int] = {}
        self._guard = threading.Lock()

    def write(
        self,
        name: str,
        plan: Plan,
        *,
        tokens: Mapping[str, int] | None = None,
        commit_empty: bool = False,
        branch: str = MAIN_BRANCH,
        properties: Mapping[str, str] | None = None,
        snapshot_id: int | None = None,
        notify: Notify | None = None,
    ) -> tuple[TableVersion, Snapshot | None, Delta]:
        """Plans and commits until an attempt succeeds; Conflict if the last one fails too.

        `tokens`, with their row counts, go into the summary. An empty delta commits nothing, unless `snapshot_id` is
        given, or `commit_empty` is set and there are tokens to record. `notify` is called instead of the commit hook,
        for a commit that must not be announced yet.
        """

        def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
            reads = self._reads_per_write(version)
            delta = plan(WritePlanner(version, io, self.manifests, branch, reads))
            if delta.is_empty and not (commit_empty and tokens) and snapshot_id is None:
                return (), version.head(branch), delta
            summary = {MODE_USED: delta.mode, MODE_REASON: delta.reason, READS: str(self._reads.get(name, 0))}
            summary |= _token_properties(tokens) | dict(properties or {})
            described = delta.with_properties({key: value for key, value in summary.items() if value})
            snapshot, updates = build_snapshot(
                version, described, io, self.manifests, branch=branch, snapshot_id=snapshot_id
            )
            return updates, snapshot, delta

        committed = self.commit(name, attempt, branch=branch, notify=notify)
        with self._guard:
            self._reads.pop(name, None)
        return committed

    def commit(
        self,
        name: str,
        attempt: Attempt,
        *,
        branch: str | None = MAIN_BRANCH,
        notify: Notify | None = None,
    ) -> tuple[TableVersion, Snapshot | None, Delta]:
        """The loop under every change of a table: `attempt` gives the updates for the version it gets.

        Without updates nothing is committed. The objects of an attempt that certainly failed are deleted. While other
        transactions than that of `branch` hold the table, they are resolved first; None: they are left alone.
        """
        uncertain: list[tuple[CommitLost, Snapshot | None, Delta, CommitIO]] = []
        with self._lock(name):
            for wait in self.retry.waits():
                version = self.table_store.load(name)
                if branch is not None:
                    version = self._without_transactions(version, branch)
                for lost, snapshot, delta, io in uncertain:
                    # Its request was still under way when the table was read before: it must not be repeated.
                    if lost.is_in(version):
                        return self._finish(version, snapshot, delta, io, notify)
                io = CommitIO(self.table_store.io)
                try:
                    with translate_aws_errors(name):
                        updates, snapshot, delta = attempt(version, io)
                    if not updates:
                        io.discard()
                        return version, snapshot, delta
                    committed = self.table_store.commit(version, updates, io)
                except CommitLost as lost:
                    if lost.certain:
                        io.discard()
                    else:
                        uncertain.append((lost, snapshot, delta, io))
                    logger.info("another commit was first", extra={"table": name, "certain": lost.certain})
                    time.sleep(wait)
                    continue
                except FileNotFoundError as missing:
                    io.discard()
                    self._check_outdated(version, missing)
                    continue
                except BaseException:
                    if not io.published:
                        io.discard()
                    raise
                return self._finish(committed, snapshot, delta, io, notify)
        raise Conflict(
            f"{name}: {self.retry.attempts} attempts to commit lost against other writers: try again, or write "
            "to it from fewer places at once",
            subject=name,
        )

    def _check_outdated(self, version: TableVersion, missing: FileNotFoundError) -> None:
        """Returns if the table has changed since the version was loaded: expiry then deleted the file that is missing.
        Raises NotFound if it has not: the table itself lacks the file."""
        if self.table_store.load(version.name).location == version.location:
            raise NotFound(
                f"{version.name}: its current metadata refers to {missing}, which does not exist: roll it back to an "
                "earlier snapshot",
                subject=version.name,
            ) from missing
        logger.info("a file expired while a commit was planned", extra={"table": version.name, "file": str(missing)})

    def settled(self, name: str) -> TableVersion:
        """The table as it is, after the transactions that hold it are resolved."""
        return self._without_transactions(self.table_store.load(name), MAIN_BRANCH)

    def _without_transactions(self, version: TableVersion, branch: str) -> TableVersion:
        """The table after the transactions on it are resolved, all but that of `branch`."""
        for _ in range(RESOLUTIONS):
            others = [ref for ref in transaction_branches(version) if ref != branch]
            if not others or self._resolve_transactions is None:
                return version
            self._resolve_transactions(self, version.name, others)
            version = self.table_store.load(version.name)  # another transaction may hold it by now
        raise Conflict(
            f"{version.name}: {RESOLUTIONS} transactions one after the other held the table: try again",
            subject=version.name,
        )

    def count_read(self, name: str) -> None:
        with self._guard:
            self._reads[name] = self._reads.get(name, 0) + 1

    def announce(self, version: TableVersion, snapshot: Snapshot | None, written: Sequence[WrittenObject]) -> None:
        """Calls the commit hook. Its exception is logged and dropped: the sweep finds the commit later."""
        if self._on_commit is None:
            return
        try:
            self._on_commit(self.table_store.table(version), snapshot, written)
        except Exception:
            logger.exception("the commit hook failed", extra={"table": version.name})

    def _finish(
        self, version: TableVersion, snapshot: Snapshot | None, delta: Delta, io: CommitIO, notify: Notify | None
    ) -> tuple[TableVersion, Snapshot | None, Delta]:
        written = [w for w in io.wait() if not w.path.endswith(".metadata.json")]
        added = snapshot is not None and any(w.path == snapshot.manifest_list for w in written)
        (notify or self.announce)(version, snapshot if added else None, written)
        return version, snapshot, delta

    def _reads_per_write(self, version: TableVersion) -> float:
        """Reads between two writes: the mean over the last snapshots' summaries and this process's own count."""
        head = version.head()
        recent = [s for s, _ in zip(ancestors_of(head, version.metadata), range(RECENT_SNAPSHOTS), strict=False)]
        counts = [int(summary_value(s, READS) or 0) for s in recent]
        return (sum(counts) + self._reads.get(version.name, 0)) / (len(counts) + 1)

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(name, threading.RLock())
        with lock:
            yield


class WrittenFiles:
    """The data files of a write's last attempt. If its commit is lost, the next attempt uses the same files, so that a
    large write does not starve among small ones."""

    def __init__(self) -> None:
        self._last: tuple[object, Delta, CommitIO] | None = None

    def reuse(self, planner: WritePlanner, rows: object) -> Delta | None:
        """The last attempt's delta, whose files now count as this one's; None if its rows or layout were others."""
        if self._last is None or self._last[0] != _layout(planner, rows):
            return None
        _, delta, earlier = self._last
        paths = {file.file_path for file in delta.added}
        planner.io.inherit([written for written in earlier.wait() if written.path in paths])
        return delta

    def keep(self, planner: WritePlanner, rows: object, delta: Delta) -> None:
        """Keeps the files for the next attempt, in case this one's commit is lost. `rows` are compared by `==`."""
        planner.io.keep(file.file_path for file in delta.added)
        self._last = (_layout(planner, rows), delta, planner.io)


def _layout(planner: WritePlanner, rows: object) -> object:
    metadata = planner.version.metadata
    return metadata.current_schema_id, metadata.default_spec_id, metadata.default_sort_order_id, rows


def transaction_branches(version: TableVersion) -> list[str]:
    """The branches of transactions that are not resolved on the table. While there is one, main must not move."""
    return [ref for ref in version.metadata.refs if ref.startswith(TRANSACTION_PREFIX)]


def new_token() -> str:
    return uuid4().hex


def check_token(token: str) -> str:
    if not token or len(token) > 128 or any(c.isspace() for c in token):
        raise Invalid(f"{token!r} is not a token: give 1 to 128 characters without spaces")
    return token


def receipt_of(version: TableVersion, tokens: Iterable[str]) -> dict[str, Receipt]:
    """The receipts of those tokens that a snapshot of the table has in its summary, rolled back or not."""
    requested, receipts = set(tokens), {}
    for snapshot in reversed(version.metadata.snapshots) if requested else ():
        committed = summary_value(snapshot, COMMIT_TOKEN).split()
        for token in requested.intersection(committed):
            rows = summary_value(snapshot, TOKEN_ROWS).split()[committed.index(token)]
            receipts[token] = replace(make_receipt(version, snapshot, token, int(rows)), replayed=True)
    return receipts


def make_receipt(
    version: TableVersion, snapshot: Snapshot | None, token: str, rows: int, delta: Delta | None = None
) -> Receipt:
    return Receipt(
        table=version.name,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        sequence=(snapshot.sequence_number or 0) if snapshot else 0,
        rows=rows,
        token=token,
        mode=delta.mode if delta else summary_value(snapshot, MODE_USED),
        reason=delta.reason if delta else summary_value(snapshot, MODE_REASON),
        matched=delta.matched if delta else 0,
    )


def _token_properties(tokens: Mapping[str, int] | None) -> dict[str, str]:
    if not tokens:
        return {}
    return {COMMIT_TOKEN: " ".join(tokens), TOKEN_ROWS: " ".join(str(rows) for rows in tokens.values())}
