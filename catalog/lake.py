"""The lake, put together: the one place where the parts meet. Opening it makes no request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog import places
from catalog.changes.feed import ChangeSet
from catalog.changes.processing import PATIENCE_S, Processing
from catalog.changes.roots import changes_of, recount, recount_rows
from catalog.changes.sequenced import At, sequenced
from catalog.errors import Invalid, LakeError, NotFound
from catalog.events import (
    EventBridgeBus,
    EventBus,
    MoveMark,
    NameIndex,
    SequencerMessage,
    SilentBus,
    TableMoved,
)
from catalog.logs import correlation_id
from catalog.settings import Settings
from catalog.tables.fileio import ObjectIO, Written
from catalog.tables.iceberg import open_catalog
from catalog.tables.manager import Tables
from catalog.tables.manifests import ManifestReader
from catalog.tables.transaction import Transaction
from catalog.timeline.asking import check_servable
from catalog.timeline.attest import Attestation, Attestations, Changed, Entry
from catalog.timeline.proofs import Timeline
from catalog.timeline.publish import Published, Publisher
from catalog.timeline.sequencer import Outcome, Sequencer
from catalog.timeline.signer import signer_from
from catalog.timeline.sources import StoredSource
from catalog.timeline.store import Place, Reader
from catalog.timeline.verification import Verifier

if TYPE_CHECKING:
    from catalog.query.queries import Queries
    from catalog.vectors.manager import Vectors

logger = logging.getLogger(__name__)

TRANSACTIONS_KEPT_MS = 24 * 3600 * 1000
PROCESS_POLL_MS = 200
"""How far behind the timeline a consumer may be that waits for its own watermark."""


class Lake:
    """The parts of one lake, each made at first use and kept."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def client(self, service: str) -> Any:
        """An AWS client that gives up: connecting within 5 s, and after three tries."""
        make: Any = boto3.client  # its type is an overload for each service by its literal name
        return make(
            service,
            region_name=self.settings.region,
            endpoint_url=self.settings.endpoint_url,
            config=Config(
                connect_timeout=5,
                read_timeout=self.settings.store_timeout_s,
                max_pool_connections=32,
                retries={"mode": "standard", "max_attempts": 3},
                s3={"addressing_style": "path" if self.settings.endpoint_url else "auto"},
            ),
        )

    @cached_property
    def s3(self) -> Any:
        return self.client("s3")

    @cached_property
    def iceberg(self) -> Catalog:
        """The tables' catalog. What it loads reads its objects without a HEAD, and metadata files once."""
        catalog = open_catalog(self.settings)
        catalog.properties["py-io-impl"] = f"{ObjectIO.__module__}.{ObjectIO.__qualname__}"
        return catalog

    @cached_property
    def tables(self) -> Tables:
        """Every operation on tables. Each commit is attested and announced to the sequencer as it lands."""
        records = f"s3://{self.settings.bucket}/{places.TRANSACTIONS}".rstrip("/")
        return Tables(cast(GlueCatalog, self.iceberg), hook=self._committed, records=records, unproven=self._unproven)

    @cached_property
    def attestations(self) -> Attestations:
        return Attestations(self.s3, self.settings.bucket)

    @cached_property
    def bus(self) -> EventBus:
        if self.settings.event_bus is None:
            return SilentBus()
        return EventBridgeBus(self.client("events"), self.settings.event_bus)

    @cached_property
    def sequencer(self) -> Sequencer:
        """The timeline's writer. Only the sequencer's function may use it: two would fence each other."""
        return Sequencer(
            Place.from_settings(self.settings),
            self.iceberg,
            Publisher(self.s3, self.settings.bucket),
            self.attestations,
            signer_from(self.settings),
            self.bus,
            partial(changes_of, manifests=ManifestReader()),
        )

    @cached_property
    def _reader(self) -> Reader:
        return Reader.open(Place.from_settings(self.settings))

    @cached_property
    def timeline(self) -> Timeline:
        """The reader of the timeline: follows the database, at most a second behind it."""
        return Timeline(StoredSource(self._reader), self.settings.origin)

    def close(self) -> None:
        """Ends what was opened of the timeline: a reader asks the store for news as long as the process lives."""
        for part in ("_reader", "sequencer"):
            if part in self.__dict__:
                getattr(self, part).close()

    def transaction(self) -> Transaction:
        """`with lake.transaction() as tx:` writes to several tables, and all of it is seen at one index or none."""
        return self.tables.transaction()

    def changes(self, table: str, since: At | None = None, until: At | None = None) -> Iterator[ChangeSet]:
        """The table's change sets after `since` up to `until`, oldest first, each with evidence from the timeline.

        `catalog.changes.verify` checks one offline with the timeline's public key, `verify_feed` that none was left
        out. For what `since` and `until` may be, what it costs and how it fails: catalog.changes.sequenced.
        """
        return sequenced(self.timeline, self.tables.load(table), since, until)

    def process(
        self, table: str, consumer: str, fn: Callable[[ChangeSet], object], *, patience_s: float = PATIENCE_S
    ) -> int:
        """Runs `fn` on every change set that the consumer has not seen; how many. See catalog.changes.processing."""
        place = Place.from_settings(self.settings)
        with closing(Reader.open(place, PROCESS_POLL_MS)) as reader:
            timeline = Timeline(StoredSource(reader), self.settings.origin)
            return Processing(timeline, self.request, patience_s).run(self.tables.load(table), consumer, fn)

    @cached_property
    def verifier(self) -> Verifier:
        """Checks all the timeline says, and on request every object of every table. Reads only."""
        return Verifier(
            self._reader,
            self.s3,
            self.settings.bucket,
            self.iceberg,
            self.settings.origin,
            recount=recount,
            recount_rows=recount_rows,
        )

    @cached_property
    def vectors(self) -> Vectors:
        """Search by meaning and by words, over text columns that were embedded. Lance is imported at first use."""
        from catalog.vectors.manager import Vectors  # an extra that most functions do not carry

        return Vectors(
            self.settings,
            self.s3,
            self.tables,
            lambda: self.client("bedrock-runtime"),
            moved=self._vectors_moved,
            timeline=self._timeline_if_any,
        )

    def _vectors_moved(self, name: str) -> None:
        """A vector table has a new head. Should this be lost, the sweep finds it."""
        if self.settings.moved_queue_url is not None:
            self.request(TableMoved(table=name))

    def _timeline_if_any(self) -> Timeline | None:
        """The timeline, once something was published; until then each call asks S3."""
        if "timeline" not in self.__dict__ and not self._published().note:
            return None
        return self.timeline

    def _published(self) -> Published:
        return Publisher(self.s3, self.settings.bucket).published()

    @cached_property
    def queries(self) -> Queries:
        """SQL over the tables, as of any cut of the timeline. The engine is imported at first use."""
        from catalog.query.history import History
        from catalog.query.queries import Queries  # an extra that most functions do not carry
        from catalog.query.spark_runs import SparkRuns
        from catalog.query.submitted import Submitted

        bucket = self.settings.bucket
        return Queries(
            self.tables,
            lambda: self.timeline,
            self.attestations,
            history=History(self.s3, bucket),
            submitted=Submitted(
                self.s3, bucket, cache(lambda: SparkRuns(self.client("emr-serverless"), self.settings))
            ),
            ranking=lambda: self.vectors.ranking,
        )

    def tidy(self, swept: Outcome, now_ms: int) -> None:
        """After a sweep: ends the transactions of writers that are gone, and forgets those of more than a day ago.

        A transaction that landed on one table holds that table's timeline back until it has landed on all; so this
        is what lets it go on when its writer crashed. Records stay when a table could not be looked at.
        """
        if swept.unfinished:
            self.tables.recover(swept.unfinished)
        if not swept.failed:
            self.tables.forget_transactions(now_ms - TRANSACTIONS_KEPT_MS, swept.unfinished)

    def request(self, message: SequencerMessage) -> None:
        """Puts a request on the sequencer's queue: the only way anybody else writes to the timeline's store."""
        if self.settings.moved_queue_url is None:
            raise Invalid("there is no way to the sequencer: STRANDLINE_MOVED_QUEUE_URL is not set")
        self._sqs.send_message(QueueUrl=self.settings.moved_queue_url, MessageBody=message.model_dump_json())

    def ask(self, request: NameIndex | MoveMark) -> None:
        """The same for somebody who can be told why not: raises what can be known to be refused, and sends the rest."""
        check_servable(request, self.timeline, self._published().size)
        self.request(request)

    @cached_property
    def _sqs(self) -> Any:
        return self.client("sqs")

    def _committed(self, table: Table, snapshot: Snapshot | None, written: Sequence[Written]) -> None:
        """After a commit: what it wrote is attested, and the sequencer told to look.

        The commit stands whether this succeeds or not. A crash here costs the sequencer reading the objects, and
        at worst waiting for the sweep.
        """
        if snapshot is not None:
            objects = {entry.path: Entry(*entry) for entry in written}
            manifest_list = objects.pop(snapshot.manifest_list)
            entries = tuple(sorted(objects.values()))
            uuid, id_ = str(table.metadata.table_uuid), snapshot.snapshot_id
            attestation = Attestation(uuid, id_, manifest_list, entries)
            self.attestations.stage(attestation.with_changes(self._changed(table, snapshot)))
        if self.settings.moved_queue_url is not None:
            moved = {"table": ".".join(table.name())}
            found = correlation_id()
            self.request(TableMoved(**moved, correlation_id=found) if found else TableMoved(**moved))

    def _unproven(self, table: str, snapshot: Snapshot) -> bool:
        """Whether the snapshot is to be in the timeline and is not: its proof would be lost with it."""
        timeline = self._timeline_if_any()
        if timeline is None:
            return self.settings.moved_queue_url is not None  # otherwise it is a lake that keeps none
        try:
            timeline.find(snapshot.snapshot_id, table)
        except NotFound:
            return True
        return False

    def _changed(self, table: Table, snapshot: Snapshot) -> Changed | None:
        """What the commit changed, for its attestation; None leaves it to the sequencer."""
        parent = None if snapshot.parent_snapshot_id is None else table.snapshot_by_id(snapshot.parent_snapshot_id)
        if parent is None and snapshot.parent_snapshot_id is not None:
            return None
        schema_id = table.metadata.current_schema_id if snapshot.schema_id is None else snapshot.schema_id
        try:
            return changes_of(table, parent, snapshot, schema_id, manifests=self.tables.committer.manifests)
        except (LakeError, ClientError, BotoCoreError, OSError) as error:
            logger.warning("changes not attested", extra={"table": ".".join(table.name()), "error": str(error)})
            return None


def open_lake(settings: Settings) -> Lake:
    return Lake(settings)
