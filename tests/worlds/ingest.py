"""A lake for ingestion on the tests' server: a bucket, a database, and as many ingesting processes as asked for."""

from __future__ import annotations

import json
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from catalog.formats.limits import FormatLimits
from catalog.ingest.ingest import Ingest
from catalog.ingest.ledger import Ledger
from catalog.ingest.outcomes import Outcome
from catalog.ingest.rules import RuleStore
from catalog.ingest.s3_events import LandedFile
from tests.worlds.warehouse import Warehouse

if TYPE_CHECKING:  # a process of its own needs none of it
    from infra.local.server import ApiServer

FUNCTION = "function.ingest"
_SEQUENCERS = count(1)


class IngestWorld(Warehouse):
    """Files are dropped by a person; every principal that ingests has its own clients."""

    @classmethod
    def create(cls, server: ApiServer) -> Self:
        world = super().create(server)
        status = {"Status": "Enabled"}
        world.client("s3").put_bucket_versioning(Bucket=world.bucket, VersioningConfiguration=status)
        location = f"s3://{world.bucket}/tables/{world.namespace}"
        world.catalog().create_namespace(world.namespace, {"location": location})
        return world

    def ingest(self, principal: str = FUNCTION, limits: FormatLimits | None = None, **options: Any) -> Ingest:
        """What a fresh process of the function has: its own clients, nothing cached."""
        return Ingest(self.client("s3", principal), self.tables(principal, **options), self.bucket, limits)

    @property
    def rules(self) -> RuleStore:
        return RuleStore(self.client("s3"), self.bucket, self.tables())

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.client("s3"), self.bucket)

    def put(self, name: str, body: bytes) -> LandedFile:
        """`<table>/<file>` into the landing zone; what S3's event would say of it."""
        key = f"landing/{self.namespace}/{name}"
        answer = self.client("s3").put_object(Bucket=self.bucket, Key=key, Body=body)
        order = f"{next(_SEQUENCERS):018X}"
        return LandedFile(self.bucket, key, answer.get("VersionId"), sequencer=order, etag=answer["ETag"].strip('"'))

    def drop(self, files: dict[str, bytes], limits: FormatLimits | None = None) -> list[Outcome]:
        return self.ingest(limits=limits).run([self.put(name, body) for name, body in files.items()])

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.tables().scan(self.name(table)).select(list(columns)).to_pylist()
        return sorted((tuple(row[column] for column in columns) for row in rows), key=repr)

    def reports(self, table: str) -> dict[str, dict[str, Any]]:
        """Source key -> report, of what is in quarantine for a table."""
        objects = self.objects(f"quarantine/{self.namespace}/{table}/")
        reports = [json.loads(body) for key, body in objects.items() if key.endswith(".json")]
        return {report["source"]: report for report in reports}


def ingest_elsewhere(
    url: str, bucket: str, namespace: str, files: list[tuple[str, str | None]], principal: str
) -> list[str]:
    """Runs in a process of its own: ingests the files and says what became of each."""
    world = IngestWorld(Elsewhere(url), bucket, namespace)  # type: ignore[arg-type]
    landed = [LandedFile(bucket, key, version) for key, version in files]
    return [outcome.status for outcome in world.ingest(principal).run(landed)]


class Elsewhere:
    """A server that another process runs: only its address is known."""

    def __init__(self, url: str) -> None:
        self.endpoint = SimpleNamespace(url=url)
