"""A lake in the embedded cloud: real SlateDB, real Iceberg through Glue, a sequencer to be stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalog.core.events import CommitSequenced, EventBridgeBus
from catalog.core.settings import Settings
from catalog.merkle.note import Ed25519Signer
from catalog.timeline.log.publisher import Publisher
from catalog.timeline.log.store import StoreLocation, StoreReader
from catalog.timeline.reader.sources import PublishedSource, StoredSource
from catalog.timeline.reader.timeline import Timeline
from catalog.timeline.sequencer.attestation import Attestations
from catalog.timeline.sequencer.sequencer import Sequencer
from tests.worlds.lake import ORIGIN
from tests.worlds.warehouse import Warehouse

SEQUENCER = "function.sequencer"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "word": ["a", "b", "c"]})


class Ear:
    """A real bus, and a memory of what went over it: events count as heard once the bus has taken them."""

    def __init__(self, bus: EventBridgeBus) -> None:
        self.heard: list[CommitSequenced] = []
        self._bus = bus

    def announce(self, events: Any) -> None:
        self._bus.announce(events)
        self.heard += events


@dataclass
class World(Warehouse):
    """A timeline of its own, beside the tables that it tells of."""

    PRINCIPAL = SEQUENCER
    READ_TIMEOUT_S = 10

    clock: list[int] = field(default_factory=lambda: [1_800_000_000_000])
    signer: Ed25519Signer = field(default_factory=lambda: Ed25519Signer.generate(ORIGIN))
    sequencers: list[Sequencer] = field(default_factory=list)
    readers: list[StoreReader] = field(default_factory=list)
    ear: Ear = field(init=False)

    def __post_init__(self) -> None:
        self.ear = Ear(EventBridgeBus(self.client("events"), "default"))

    @property
    def settings(self) -> Settings:
        return Settings(
            stage="dev",
            region="us-east-1",
            endpoint_url=self.server.endpoint.url,
            bucket=self.bucket,
            origin=ORIGIN,
            store_timeout_s=20,
        )

    def table(self, name: str = "t", **properties: str) -> Any:
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists(self.namespace)
        return catalog.create_table_if_not_exists(self.name(name), schema=ROWS.schema, properties=properties)

    def place(self, timeout_s: float = 20) -> StoreLocation:
        return StoreLocation.from_settings(self.settings.model_copy(update={"store_timeout_s": timeout_s}))

    def sequencer(
        self,
        place: StoreLocation | None = None,
        signer: Any = None,
        timeout_s: float = 20,
        iceberg: Any = None,
        publish_to: str | None = None,
    ) -> Sequencer:
        s3 = self.client("s3")
        made = Sequencer(
            place or self.place(timeout_s),
            iceberg or self.catalog(SEQUENCER),
            Publisher(s3, publish_to or self.bucket),
            Attestations(s3, self.bucket),
            signer or self.signer,
            self.ear,
            clock_ms=self.tick,
        )
        self.sequencers.append(made)
        return made

    def tick(self) -> int:
        self.clock[0] += 1
        return self.clock[0]

    def stored(self) -> Timeline:
        """The timeline as its database has it, by a reader opened now."""
        self.readers.append(StoreReader.open(self.place()))
        return Timeline(StoredSource(self.readers[-1]), ORIGIN, [self.signer.verifier_key])

    def published(self) -> Timeline:
        """The timeline as a stranger sees it."""
        source = PublishedSource(self.client("s3", "stranger"), self.bucket)
        return Timeline(source, ORIGIN, [self.signer.verifier_key])
