"""A lake for ingestion on the tests' server: a bucket, a database, and as many ingesting processes as asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
from botocore.config import Config
from pyiceberg.catalog.glue import GlueCatalog

from catalog.ingest.flow import Ingest
from catalog.ingest.ledger import Ledger
from catalog.ingest.outcomes import Outcome
from catalog.ingest.rules import Rules
from catalog.pipeline.landing import Landed
from catalog.pipeline.limits import Limits
from catalog.tables.commits import Retry
from catalog.tables.manager import Tables

if TYPE_CHECKING:  # a process of its own needs none of it
    from infra.local.server import ApiServer

FUNCTION = "function.ingest"


@dataclass
class IngestWorld:
    """One lake of its own. Files are dropped by a person; every principal that ingests has its own clients."""

    server: ApiServer
    bucket: str
    database: str

    def client(self, service: str, principal: str = "person") -> Any:
        return _client(self.server.endpoint.url, service, principal)

    def catalog(self, principal: str = "person") -> GlueCatalog:
        properties = {
            "s3.endpoint": self.server.endpoint.url,
            "s3.region": "us-east-1",
            "s3.access-key-id": principal,
            "s3.secret-access-key": "x",
            "s3.max-attempts": "1",
            "warehouse": f"s3://{self.bucket}/tables",
        }
        return GlueCatalog("lake", client=self.client("glue", principal), **properties)

    def tables(self, principal: str = "person", **options: Any) -> Tables:
        return Tables(self.catalog(principal), retry=Retry(attempts=40, base_s=0.005, cap_s=0.1), **options)

    def ingest(self, principal: str = FUNCTION, limits: Limits | None = None, **options: Any) -> Ingest:
        """What a fresh process of the function has: its own clients, nothing cached."""
        return Ingest(self.client("s3", principal), self.tables(principal, **options), self.bucket, limits)

    @property
    def rules(self) -> Rules:
        return Rules(self.client("s3"), self.bucket, self.tables())

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.client("s3"), self.bucket)

    def name(self, table: str) -> str:
        return f"{self.database}.{table}"

    def put(self, name: str, body: bytes) -> Landed:
        """`<table>/<file>` into the landing zone; what S3's event would say of it."""
        key = f"landing/{self.database}/{name}"
        answer = self.client("s3").put_object(Bucket=self.bucket, Key=key, Body=body)
        return Landed(self.bucket, key, answer.get("VersionId"))

    def drop(self, files: dict[str, bytes], limits: Limits | None = None) -> list[Outcome]:
        return self.ingest(limits=limits).run([self.put(name, body) for name, body in files.items()])

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = self.tables().scan(self.name(table)).select(list(columns)).to_pylist()
        return sorted((tuple(row[column] for column in columns) for row in found), key=repr)

    def objects(self, prefix: str) -> dict[str, bytes]:
        s3 = self.client("s3")
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        return {key: s3.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}

    def reports(self, table: str) -> dict[str, dict[str, Any]]:
        """Source key -> report, of what is in quarantine for a table."""
        found = self.objects(f"quarantine/{self.database}/{table}/")
        reports = [json.loads(body) for key, body in found.items() if key.endswith(".json")]
        return {report["source"]: report for report in reports}


@cache
def _client(url: str, service: str, principal: str) -> Any:
    """Asks once. Clients keep nothing that a new process would not have, and are dear to make."""
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=32,
        s3={"addressing_style": "path"} if service == "s3" else None,
    )
    keys = {"aws_access_key_id": principal, "aws_secret_access_key": "x"}
    return boto3.client(service, endpoint_url=url, region_name="us-east-1", config=config, **keys)


def make_world(server: ApiServer) -> IngestWorld:
    world = IngestWorld(server, f"lake-{uuid4().hex[:12]}", f"db{uuid4().hex[:8]}")
    s3 = world.client("s3")
    s3.create_bucket(Bucket=world.bucket)
    s3.put_bucket_versioning(Bucket=world.bucket, VersioningConfiguration={"Status": "Enabled"})
    world.catalog().create_namespace(world.database, {"location": f"s3://{world.bucket}/tables/{world.database}"})
    return world


def ingest_elsewhere(
    url: str, bucket: str, database: str, files: list[tuple[str, str | None]], principal: str
) -> list[str]:
    """Runs in a process of its own: ingests the files and says what became of each."""
    world = IngestWorld(Elsewhere(url), bucket, database)  # type: ignore[arg-type]
    landed = [Landed(bucket, key, version) for key, version in files]
    return [outcome.status for outcome in world.ingest(principal).run(landed)]


class Elsewhere:
    """A server that another process runs: only its address is known."""

    def __init__(self, url: str) -> None:
        self.endpoint = SimpleNamespace(url=url)
