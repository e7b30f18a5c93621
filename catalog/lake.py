"""The lake: the one module that connects the parts. Opening a lake makes no request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes import (
    AUDIT_LIMIT,
    PATIENCE_S,
    ChangeSet,
    Demand,
    KeySet,
    Processing,
    RowProof,
    StateComputer,
    attestation_of,
    changes_of,
    prove_rows,
    recount,
    recount_rows,
    timeline_changes,
    with_rows,
)
from catalog.core import s3_layout
from catalog.core.aws_clock import AwsClock
from catalog.core.clients import client_for
from catalog.core.errors import Invalid, NotFound
from catalog.core.events import (
    AdvanceWatermark,
    EventBridgeBus,
    EventBus,
    NameIndex,
    NoEventBus,
    SequencerMessage,
    TableMoved,
    new_correlation_id,
)
from catalog.core.logs import correlation_id
from catalog.core.point_in_time import (
    FeedPositionLike,
    Moment,
    PointInTime,
    PointLike,
    TimelineIndex,
    point_in_time,
)
from catalog.core.sequencer_queue import SequencerQueue
from catalog.core.settings import Settings
from catalog.iceberg import ManifestReader, ObjectIO, WrittenObject, open_catalog
from catalog.merkle.note import VerifierKey
from catalog.tables import Tables, Transaction
from catalog.timeline import (
    CHECKPOINT_PATH,
    Attestations,
    Feeder,
    PublicLog,
    PublishedCheckpoint,
    Publisher,
    Sequencer,
    SequencerResult,
    StoredSource,
    StoreLocation,
    StoreReader,
    Timeline,
    Verifier,
    Watermark,
    signer_from,
    snapshot_at,
    validate_request,
)

if TYPE_CHECKING:
    from catalog.erasure import Eraser
    from catalog.query import Queries, SparkQueries
    from catalog.vectors import Vectors


TRANSACTIONS_KEPT_MS = 24 * 3600 * 1000
"""How long the record of a finished transaction is kept."""
PROCESS_POLL_MS = 200
"""How far behind the timeline the reader of a consumer may be, which waits for its own watermark."""


class Lake:
    """The parts of one lake, each created at first use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def client(self, service: str) -> Any:
        """An AWS client with timeouts and bounded retries: see catalog.core.clients."""
        return client_for(self.settings, service)

    @cached_property
    def s3(self) -> Any:
        return self.client("s3")

    @cached_property
    def iceberg(self) -> Catalog:
        """The tables' catalog. Its tables read objects without a HEAD request, and each metadata file once."""
        catalog = open_catalog(self.settings)
        catalog.properties["py-io-impl"] = f"{ObjectIO.__module__}.{ObjectIO.__qualname__}"
        return catalog

    @cached_property
    def tables(self) -> Tables:
        """Every operation on tables. Each commit is attested, and the sequencer is told of it."""
        records = f"s3://{self.settings.bucket}/{s3_layout.TRANSACTIONS}".rstrip("/")
        return Tables(
            cast(GlueCatalog, self.iceberg),
            on_commit=self._attest_and_notify,
            records=records,
            awaits_leaf=self._awaits_leaf,
            snapshot_at=self._snapshot_at,
        )

    @cached_property
    def attestations(self) -> Attestations:
        return Attestations(self.s3, self.settings.bucket)

    @cached_property
    def bus(self) -> EventBus:
        if self.settings.event_bus is None:
            return NoEventBus()
        return EventBridgeBus(self.client("events"), self.settings.event_bus)

    @cached_property
    def sequencer(self) -> Sequencer:
        """The timeline's writer. Only the sequencer's function may use it: two writers fence each other."""
        witnesses, manifests = self.settings.witnesses, ManifestReader()
        return Sequencer(
            StoreLocation.from_settings(self.settings),
            self.iceberg,
            Publisher(self.s3, self.settings.bucket, None if witnesses is None else Feeder.parse(witnesses)),
            self.attestations,
            signer_from(self.settings),
            self.bus,
            partial(changes_of, manifests=manifests, with_records=True),
            AwsClock(self.s3, self.settings.bucket, CHECKPOINT_PATH),
            compute_state=StateComputer(manifests=manifests),
        )

    @cached_property
    def _reader(self) -> StoreReader:
        return StoreReader.open(StoreLocation.from_settings(self.settings))

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline's reader. It follows the database with a delay of at most a second."""
        public = PublicLog(self.s3, self.settings.bucket)
        return Timeline(StoredSource(self._reader), self.settings.origin, public=public)

    def close(self) -> None:
        """Closes the timeline's reader, which otherwise polls the store until the process ends, and the sequencer."""
        for part in ("_reader", "sequencer"):
            if part in self.__dict__:
                getattr(self, part).close()

    def transaction(self, token: str | None = None) -> Transaction:
        """`with lake.transaction() as tx:` writes to several tables, all visible from one index on, or none. What
        `tx.read` read is unchanged when they are, or the commit is a Conflict. With a token, they are made once."""
        return self.tables.transaction(token)

    def changes(
        self,
        table: str,
        since: FeedPositionLike | None = None,
        until: FeedPositionLike | None = None,
        *,
        table_uuid: str | None = None,
        extends: int | None = None,
    ) -> Iterator[ChangeSet]:
        """The table's change sets after `since` up to `until`, oldest first, each with evidence from the timeline.

        `catalog.changes.verify` checks one offline with the timeline's public key; `verify_feed` checks that none is
        missing. `since` and `until` are points in time, or `TableSequence(n)` for the table's leaf of that sequence.
        For `table_uuid` and `extends`, costs and failures see catalog.changes.timeline_feed.
        """
        loaded = self.tables.load(table)
        return timeline_changes(self.timeline, loaded, since, until, table_uuid=table_uuid, extends=extends)

    def prove_row(
        self, table: str, key: Mapping[str, Any], at: PointLike | None = None, *, values: bool = True
    ) -> RowProof:
        """Proves that the table had a row of this key at a point in time, or had none; by default, as of now.

        `key`: key column -> value. `at`: an index of the timeline, or a time. `values`: whether it shows the row.
        See catalog.changes.row_prover for costs and failures.
        """
        return self.prove_answer(table, KeySet({column: [value] for column, value in key.items()}), at, values=values)

    def prove_answer(self, table: str, keys: KeySet, at: PointLike | None = None, *, values: bool = True) -> RowProof:
        """Proves which rows the table had of these keys at a point in time: those, and no others of them.

        Invalid for a set of keys that cannot be proven complete (catalog.changes.key_sets). Else as `prove_row`.
        """
        point = None if at is None else point_in_time(at)
        if point is not None and not isinstance(point, TimelineIndex | Moment):
            raise Invalid(f"{point} is neither an index nor a time: a row is proven at one of those")
        asked = keys.keys()
        proof = prove_rows(
            self.timeline,
            table,
            asked,
            index=point.index if isinstance(point, TimelineIndex) else None,
            time_ms=point.ms if isinstance(point, Moment) else None,
            ranged=keys.ranged,
        )
        return with_rows(proof, self.tables, table, asked) if values else proof

    def process(
        self,
        table: str,
        consumer: str,
        fn: Callable[[ChangeSet], object],
        *,
        reset: Callable[[Watermark], object] | None = None,
        keys: Sequence[VerifierKey] | None = None,
        verify: bool = True,
        demand: Demand = "lake",
        patience_s: float = PATIENCE_S,
    ) -> int:
        """Calls `fn` with every change set that the consumer has not processed, verified. Returns their number.

        `demand="writer"` also accepts commits that are too large for the lake to compute their changes, if their
        writer did. See catalog.changes.processing.
        """
        location = StoreLocation.from_settings(self.settings)
        with closing(StoreReader.open(location, PROCESS_POLL_MS)) as reader:
            timeline = Timeline(StoredSource(reader), self.settings.origin)
            processing = Processing(timeline, self.request, patience_s, keys, verify, demand)
            return processing.run(self.tables.load(table), consumer, fn, reset=reset)

    @cached_property
    def verifier(self) -> Verifier:
        """Verifies the timeline and, on request, every object of every table. Reads only."""
        return Verifier(
            self._reader,
            self.s3,
            self.settings.bucket,
            self.iceberg,
            self.settings.origin,
            recount=recount,
            recount_rows=recount_rows,
            compute_state=StateComputer(AUDIT_LIMIT),
        )

    @cached_property
    def eraser(self) -> Eraser:
        """Erases rows from a table's history. Its role may delete versions of objects."""
        from catalog.erasure import Eraser

        bucket, timeline = self.settings.bucket, lambda: self.timeline
        return Eraser(self.tables, timeline, lambda: self.verifier, self.s3, bucket, queue=self._queue)

    @cached_property
    def vectors(self) -> Vectors:
        """Vector, full-text and hybrid search over embedded text columns. Lance is imported at first use."""
        from catalog.vectors import Vectors  # an extra that most functions are deployed without

        return Vectors(
            self.settings,
            self.s3,
            self.tables,
            lambda: self.client("bedrock-runtime"),
            queue=self._queue,
            timeline=self.timeline_if_any,
        )

    def timeline_if_any(self) -> Timeline | None:
        """The timeline; None while nothing is published, which each call checks with one GET."""
        if "timeline" not in self.__dict__ and not self._published().note:
            return None
        return self.timeline

    def _published(self) -> PublishedCheckpoint:
        return Publisher(self.s3, self.settings.bucket).published()

    @cached_property
    def queries(self) -> Queries:
        """SQL over the tables, as of any cut of the timeline. The engine is imported at first use."""
        from catalog.query import EstimateHistory, Queries  # an extra that most functions are deployed without

        bucket = self.settings.bucket
        return Queries(
            self.tables,
            lambda: self.timeline,
            self.attestations,
            history=EstimateHistory(self.s3, bucket),
            spark_queries=self.spark_queries,
            ranking=lambda: self.vectors.ranking,
        )

    @cached_property
    def spark_queries(self) -> SparkQueries:
        """The queries that run as jobs on Spark. Without the engine."""
        from catalog.query import SparkJobRuns, SparkQueries

        runs = cache(lambda: SparkJobRuns(self.client("emr-serverless"), self.settings))
        return SparkQueries(self.s3, self.settings.bucket, runs)

    def clean_up_transactions(self, swept: SequencerResult, now_ms: int) -> None:
        """After a sweep: completes the transactions of crashed writers, and deletes records older than a day.

        A transaction that has committed to one table holds back that table's leaves until it has committed to all of
        its tables. If its writer crashed, this releases them. No record is deleted when a table could not be read.
        """
        if swept.unfinished:
            self.tables.recover(swept.unfinished)
        if not swept.failed:
            self.tables.forget_transactions(now_ms - TRANSACTIONS_KEPT_MS, swept.unfinished)

    def request(self, message: SequencerMessage) -> None:
        """Sends a request to the sequencer's queue: the only way to write to the timeline's store from elsewhere."""
        self._queue.send(message)

    def advance_watermark(self, request: AdvanceWatermark) -> None:
        """Requests that a watermark advances. Raises if the sequencer is certain to refuse it."""
        self._request_if_valid(request, self._published().size)

    def name_index(self, name: str, index: int | None = None, *, correlation_id: str | None = None) -> int:
        """Requests a name for an index of the timeline; by default for the newest one that is published now.

        Returns the index. The name exists once the sequencer has served the request, and is of that index whatever is
        sequenced before then. Conflict when another index has the name; NotFound when there is no such index.
        """
        size = self._published().size
        index = size - 1 if index is None else index
        request = NameIndex(name=name, index=max(index, 0), correlation_id=correlation_id or new_correlation_id())
        self._request_if_valid(request, size)
        return request.index

    def _request_if_valid(self, request: NameIndex | AdvanceWatermark, published_size: int) -> None:
        if not published_size:
            raise NotFound("the timeline is empty: commit to a table first")
        validate_request(request, self.timeline, published_size)
        self.request(request)

    @cached_property
    def _queue(self) -> SequencerQueue:
        return SequencerQueue(self.settings)

    def _attest_and_notify(self, table: Table, snapshot: Snapshot | None, written: Sequence[WrittenObject]) -> None:
        """After a commit: stages the attestation of the objects it wrote, and notifies the sequencer.

        The commit is valid whether this succeeds or not. After a crash here the sequencer reads the objects itself,
        at the latest when it next sweeps.
        """
        if snapshot is not None:
            self.attestations.stage(attestation_of(table, snapshot, written, self.tables.committer.manifests))
        if self._queue.exists:
            name, correlation = ".".join(table.name()), correlation_id()
            self.request(TableMoved(table=name, correlation_id=correlation) if correlation else TableMoved(table=name))

    def _snapshot_at(self, table: str, point: PointInTime) -> int | None:
        """The id of the snapshot that the table's main was at, according to the timeline."""
        timeline = self.timeline_if_any()
        if timeline is None:
            raise NotFound(f"{table} has no state as of {point}: nothing is in the timeline yet", subject=table)
        return snapshot_at(timeline, table, point)

    def _awaits_leaf(self, table: str, snapshot: Snapshot) -> bool:
        """Whether the snapshot has yet to be sequenced. If it expired before that, it would never have a leaf."""
        timeline = self.timeline_if_any()
        if timeline is None:
            return self._queue.exists  # without a queue, the lake has no sequencer
        try:
            timeline.find(snapshot.snapshot_id, table)
        except NotFound:
            return True
        return False


def open_lake(settings: Settings) -> Lake:
    return Lake(settings)
