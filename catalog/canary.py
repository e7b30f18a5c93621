"""The read canary: asks a lake every kind of read and proof that its callers rely on, and says which one fails.

A lake can break for its readers while every writer and every check of the stored objects is well: the reads themselves
have to be made. Each run opens the lake anew, since a cache would answer for what is broken behind it. Only reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from pyiceberg.table.snapshots import Snapshot

from catalog.changes import ExpectedRows, verify_feed
from catalog.core.errors import LakeError, Unavailable, Unverified, as_lake_error
from catalog.core.point_in_time import TableSequence
from catalog.core.settings import Settings
from catalog.iceberg import listed_tables
from catalog.lake import Lake, open_lake
from catalog.merkle.proof import verify as verify_proof
from catalog.timeline import MAIN, AsOf, Leaf

TABLES_A_RUN = 3
"""The table of the newest leaf, and others at random."""
MAX_CHANGES = 10_000
"""A commit with more changes is not read as a feed: a run costs the same however large the commits are."""
MAX_VERIFIED_BYTES = 16 << 20
"""A larger table is not read with verification, which hashes whole files."""
SEQUENCED_WITHIN_MS = 10 * 60 * 1000
RESERVE_S = 10.0
Ask = Callable[[], object]
"""Makes one read, and raises if it fails."""


@dataclass(frozen=True)
class Read:
    """One read that was asked. `error` is None if it was answered; `table` is None for reads of the timeline."""

    name: str
    table: str | None
    ms: float
    error: LakeError | None = None

    def as_dict(self) -> dict[str, Any]:
        error = None if self.error is None else self.error.as_dict()
        return {"read": self.name, "table": self.table, "ms": round(self.ms, 1), "error": error}


@dataclass(frozen=True)
class Survey:
    """The reads of one run. `left_out`: how many were not asked because the time was over."""

    reads: tuple[Read, ...]
    left_out: int = 0

    @property
    def failed(self) -> list[Read]:
        return [read for read in self.reads if read.error is not None]


def survey(settings: Settings, now_ms: int, seconds: float) -> Survey:
    """Asks every kind of read, of the timeline and of a few tables, for at most about `seconds`.

    Never raises for a read that fails. About forty requests for each table and a second of CPU.
    """
    with closing(open_lake(settings)) as lake:
        return _Survey(lake, now_ms, time.monotonic() + seconds - RESERVE_S).run()


@dataclass
class _Survey:
    lake: Lake
    now_ms: int
    until: float
    reads: list[Read] = field(default_factory=list)
    left_out: int = 0

    @cached_property
    def _random(self) -> Random:
        return Random(self.now_ms)  # noqa: S311 - a choice of tables, not a secret

    def run(self) -> Survey:
        tables = list[str]()
        self._ask("tables", None, lambda: tables.extend(self._chosen_tables()))
        if self._is_published():
            for name, read in self._of_timeline():
                self._ask(name, None, read)
        for table in tables:
            for name, read in _TableReads(self.lake, table, self.now_ms).all():
                self._ask(name, table, read)
        self._ask("search", None, self._search)
        return Survey(tuple(self.reads), self.left_out)

    def _ask(self, name: str, table: str | None, read: Ask) -> None:
        began = time.monotonic()
        if began > self.until:
            self.left_out += 1
            return
        error = None
        try:
            read()
        except Exception as failure:
            error = as_lake_error(failure)
        self.reads.append(Read(name, table, (time.monotonic() - began) * 1000, error))

    def _is_published(self) -> bool:
        """An empty lake has no timeline yet: then there is nothing to read in it, and nothing is wrong."""
        published = list[bool]()
        self._ask("checkpoint", None, lambda: published.append(self.lake.timeline_if_any() is not None))
        return published == [True]

    def _chosen_tables(self) -> Iterable[str]:
        names = sorted(listed_tables(self.lake.iceberg))
        others = self._random.sample(names, min(TABLES_A_RUN, len(names)))
        timeline = self.lake.timeline_if_any()
        if timeline is not None:
            newest = timeline.commit(timeline.head().checkpoint.size - 1).table
            others = [newest] * (newest in names) + others
        return list(dict.fromkeys(others))[:TABLES_A_RUN]

    def _of_timeline(self) -> list[tuple[str, Ask]]:
        timeline, origin = self.lake.timeline, self.lake.settings.origin

        def prove_newest() -> None:
            head = timeline.published_head()
            index = head.checkpoint.size - 1
            entry = timeline.source.entry(index, head.checkpoint.size)
            verify_proof(timeline.proof(index, head), entry, timeline.keys(), origin=origin)

        def extend() -> None:
            size = timeline.published_head().checkpoint.size
            timeline.consistency(timeline.source.last_batch_end(size // 2, size) + 1, size)

        return [("proof", prove_newest), ("consistency", extend)]

    def _search(self) -> None:
        """A vector table at random, by its words and by its vectors."""
        ids = sorted(self.lake.vectors.list())
        if ids:
            self.lake.vectors.search(self._random.choice(ids), "lake", mode="hybrid", k=1)


class _TableReads:
    """Every kind of read of one table."""

    def __init__(self, lake: Lake, table: str, now_ms: int) -> None:
        self._lake, self._table, self._now_ms = lake, table, now_ms
        from catalog.query import Queries  # loads the engine: not when the function starts

        self._queries = Queries(lake.tables, lambda: lake.timeline, lake.attestations)  # without a history to write
        quoted = ".".join(f'"{part}"' for part in table.split("."))
        self._sql = f"SELECT * FROM {quoted} LIMIT 1"  # noqa: S608 - a name of the catalog

    def all(self) -> list[tuple[str, Ask]]:
        reads: list[tuple[str, Ask]] = [
            ("describe", lambda: self._lake.tables.describe(self._table)),
            ("rows", lambda: self._lake.tables.scan(self._table, limit=1)),
            ("query fresh", lambda: self._query(fresh=True)),
            ("sequenced", self._sequenced),
        ]
        if self._lake.timeline_if_any() is None:
            return reads
        return [
            *reads,
            ("as-of proof", lambda: self._as_of),
            ("query", lambda: self._query() if self._has_rows else None),
            ("query as of", lambda: self._query(as_of=self._as_of.index) if self._has_rows else None),
            ("query verified", self._verified),
            ("commits", lambda: self._newest_commit),
            ("changes", self._changes),
            ("row proof", self._row_proof),
        ]

    @cached_property
    def _as_of(self) -> AsOf:
        """What the timeline says of the table now, verified as a stranger would."""
        timeline = self._lake.timeline
        head = timeline.published_head()
        index = head.checkpoint.size - 1
        as_of = timeline.prove_as_of(self._table, index=index, head=head)
        as_of.verify(
            timeline.keys(), self._lake.settings.origin, table=self._table, index=index, checkpoint=head.checkpoint
        )
        return as_of

    @property
    def _has_rows(self) -> bool:
        return self._as_of.snapshot_id is not None

    def _query(self, **options: Any) -> Any:
        return self._queries.run(self._sql, **options).table()

    def _verified(self) -> None:
        if self._has_rows and self._lake.tables.describe(self._table).bytes <= MAX_VERIFIED_BYTES:
            self._query(verify=True)

    def _sequenced(self) -> None:
        snapshot: Snapshot | None = self._lake.tables.load(self._table).current_snapshot()
        if snapshot is None or self._now_ms - snapshot.timestamp_ms < SEQUENCED_WITHIN_MS:
            return
        if self._lake.timeline_if_any() is None or self._as_of.snapshot_id != snapshot.snapshot_id:
            raise Unavailable(
                f"the newest snapshot of {self._table} is not in the timeline after {SEQUENCED_WITHIN_MS // 60_000} "
                "minutes: see the sequencer's log",
                subject=self._table,
            )

    @cached_property
    def _newest_commit(self) -> tuple[int, Leaf] | None:
        """The table's newest leaf of main; None if the table is not in the timeline."""
        last = self._as_of.last_sequence
        leaves = self._lake.timeline.commits_since(self._table, -1 if last is None else last - 1)
        return next(((index, leaf) for index, leaf in leaves if leaf.ref == MAIN), None)

    def _changes(self) -> None:
        if self._newest_commit is None:
            return
        _, leaf = self._newest_commit
        if leaf.changes_count is None or leaf.changes_count > MAX_CHANGES:
            return
        since, until = leaf.sequence - 1, leaf.sequence
        feed = self._lake.changes(
            self._table, None if since < 0 else TableSequence(since), TableSequence(until), table_uuid=leaf.table_uuid
        )
        verify_feed(
            feed,
            self._lake.timeline.keys(),
            table=self._table,
            table_uuid=leaf.table_uuid,
            since=since if since >= 0 else None,
            until=until,
            origin=self._lake.settings.origin,
            demand="writer",
        )

    def _row_proof(self) -> None:
        stated = self._as_of.stated
        if stated is None or stated.state_root is None:
            return
        key = self._lake.tables.describe(self._table).key
        rows = self._lake.tables.scan(self._table, columns=key, as_of=f"snapshot:{stated.snapshot_id}", limit=1)
        for row in rows.to_pylist():
            proof = self._lake.prove_row(self._table, row, self._as_of.index)
            expected = ExpectedRows(self._table, [row], index=self._as_of.index)
            found = proof.verify_all(self._lake.timeline.keys(), self._lake.settings.origin, expected)
            if found.rows[0].digest is None:
                raise Unverified(f"a row of {self._table} is proven to be missing: {row}", subject=self._table)
