"""The lake, put together: the one place where the parts meet. Opening it makes no request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import boto3
from botocore.config import Config
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog import places
from catalog.errors import Invalid
from catalog.events import EventBridgeBus, EventBus, SequencerMessage, SilentBus, TableMoved
from catalog.logs import correlation_id
from catalog.settings import Settings
from catalog.tables.fileio import Written
from catalog.tables.iceberg import open_catalog
from catalog.tables.manager import Tables
from catalog.timeline.attest import Attestation, Attestations, Entry
from catalog.timeline.proofs import Timeline
from catalog.timeline.publish import Publisher
from catalog.timeline.sequencer import Sequencer
from catalog.timeline.signer import signer_from
from catalog.timeline.sources import StoredSource
from catalog.timeline.store import Place, Reader
from catalog.timeline.verification import Verifier


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
        return open_catalog(self.settings)

    @cached_property
    def tables(self) -> Tables:
        """Every operation on tables. Each commit is attested and announced to the sequencer as it lands."""
        records = f"s3://{self.settings.bucket}/{places.TRANSACTIONS}".rstrip("/")
        return Tables(cast(GlueCatalog, self.iceberg), hook=self._committed, records=records)

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
        )

    @cached_property
    def timeline(self) -> Timeline:
        """The reader of the timeline: follows the database, at most a second behind it."""
        reader = Reader.open(Place.from_settings(self.settings))
        return Timeline(StoredSource(reader), self.settings.origin)

    @cached_property
    def verifier(self) -> Verifier:
        """Checks all the timeline says, and on request every object of every table. Reads only."""
        reader = Reader.open(Place.from_settings(self.settings))
        return Verifier(reader, self.s3, self.settings.bucket, self.iceberg, self.settings.origin)

    def request(self, message: SequencerMessage) -> None:
        """Puts a request on the sequencer's queue: the only way anybody else writes to the timeline's store."""
        if self.settings.moved_queue_url is None:
            raise Invalid("there is no way to the sequencer: STRANDLINE_MOVED_QUEUE_URL is not set")
        self._sqs.send_message(QueueUrl=self.settings.moved_queue_url, MessageBody=message.model_dump_json())

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
            self.attestations.stage(
                Attestation(str(table.metadata.table_uuid), snapshot.snapshot_id, manifest_list, entries)
            )
        if self.settings.moved_queue_url is not None:
            moved = {"table": ".".join(table.name())}
            found = correlation_id()
            self.request(TableMoved(**moved, correlation_id=found) if found else TableMoved(**moved))


def open_lake(settings: Settings) -> Lake:
    return Lake(settings)
