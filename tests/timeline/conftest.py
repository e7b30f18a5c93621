"""A lake in the embedded cloud: real SlateDB, real Iceberg through Glue, a sequencer to be stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import uuid4

import boto3
import pyarrow as pa
import pytest
from botocore.config import Config
from pyarrow.fs import AwsStandardS3RetryStrategy
from pyiceberg.catalog.glue import GlueCatalog

from catalog.events import CommitSequenced, EventBridgeBus
from catalog.merkle.note import Ed25519Signer
from catalog.settings import Settings
from catalog.timeline.attest import Attestations
from catalog.timeline.proofs import Timeline
from catalog.timeline.publish import Publisher
from catalog.timeline.sequencer import Sequencer
from catalog.timeline.sources import PublishedSource, StoredSource
from catalog.timeline.store import Place, Reader
from infra.local.server import ApiServer

ORIGIN = "strandline.test/lake"
SEQUENCER = "function.sequencer"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "word": ["a", "b", "c"]})


class OneTry(AwsStandardS3RetryStrategy):
    """What is refused is refused: the sequencer's own recovery is under test, not a client's patience."""

    def __init__(self) -> None:
        super().__init__(max_attempts=1)


class Ear:
    """A real bus, and a memory of what went over it: events count as heard once the bus has taken them."""

    def __init__(self, bus: EventBridgeBus) -> None:
        self.heard: list[CommitSequenced] = []
        self._bus = bus

    def announce(self, events: Any) -> None:
        self._bus.announce(events)
        self.heard += events


@dataclass
class World:
    """One lake of its own: a bucket and a namespace on the server all tests share."""

    server: ApiServer
    bucket: str
    namespace: str
    clock: list[int] = field(default_factory=lambda: [1_800_000_000_000])
    signer: Ed25519Signer = field(default_factory=lambda: Ed25519Signer.generate(ORIGIN))
    sequencers: list[Sequencer] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
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

    def client(self, service: str, principal: str = SEQUENCER) -> Any:
        return _client(self.server.endpoint.url, service, principal)

    def iceberg(self, principal: str = "person") -> GlueCatalog:
        properties = {
            "s3.endpoint": self.server.endpoint.url,
            "s3.access-key-id": principal,
            "s3.secret-access-key": "x",
            "s3.region": "us-east-1",
            "s3.retry-strategy-impl": "tests.timeline.conftest.OneTry",
            "warehouse": f"s3://{self.bucket}/tables",
        }
        return GlueCatalog("lake", client=self.client("glue", principal), **properties)

    def name(self, table: str) -> str:
        return f"{self.namespace}.{table}"

    def table(self, name: str = "t", **properties: str) -> Any:
        catalog = self.iceberg()
        catalog.create_namespace_if_not_exists(self.namespace)
        return catalog.create_table_if_not_exists(self.name(name), schema=ROWS.schema, properties=properties)

    def place(self, timeout_s: float = 20) -> Place:
        return Place.from_settings(self.settings.model_copy(update={"store_timeout_s": timeout_s}))

    def sequencer(
        self,
        place: Place | None = None,
        signer: Any = None,
        timeout_s: float = 20,
        iceberg: Any = None,
        publish_to: str | None = None,
    ) -> Sequencer:
        s3 = self.client("s3")
        made = Sequencer(
            place or self.place(timeout_s),
            iceberg or self.iceberg(SEQUENCER),
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
        self.readers.append(Reader.open(self.place()))
        return Timeline(StoredSource(self.readers[-1]), ORIGIN, [self.signer.verifier_key])

    def published(self) -> Timeline:
        """The timeline as a stranger sees it."""
        source = PublishedSource(self.client("s3", "stranger"), self.bucket)
        return Timeline(source, ORIGIN, [self.signer.verifier_key])

    def objects(self, prefix: str) -> dict[str, bytes]:
        s3 = self.client("s3", "stranger")
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        found = [item["Key"] for page in pages for item in page.get("Contents", [])]
        return {key: s3.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in found}


@cache
def _client(url: str, service: str, principal: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=principal,
        aws_secret_access_key="x",
        config=Config(
            connect_timeout=2,
            read_timeout=10,
            max_pool_connections=32,
            retries={"mode": "standard", "total_max_attempts": 1},
            s3={"addressing_style": "path"},
        ),
    )


@pytest.fixture
def new_world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], World]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", SEQUENCER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    worlds: list[World] = []

    def make() -> World:
        suffix = uuid4().hex[:12]
        made = World(server, f"lake-{suffix}", f"n{suffix}")
        server.endpoint.client("s3", "person").create_bucket(Bucket=made.bucket)
        worlds.append(made)
        return made

    yield make
    for world in worlds:
        for opened in (*world.sequencers, *world.readers):
            opened.close()


@pytest.fixture
def world(new_world: Callable[[], World]) -> World:
    return new_world()
