"""Tables in the embedded cloud: a server per module, a bucket and a database per test, and as many writers as asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.table import Table

from catalog.tables.commits import Retry
from catalog.tables.manager import Tables
from infra.local.faults import Fault
from infra.local.requests import Request
from infra.local.server import ApiServer


@dataclass
class World:
    """One warehouse of its own on the server. Every principal is a writer with its own clients and caches."""

    server: ApiServer
    bucket: str
    database: str

    def tables(self, principal: str = "writer", attempts: int = 1, **options: Any) -> Tables:
        options.setdefault("retry", Retry(attempts=40, base_s=0.005, cap_s=0.1))
        return Tables(self.catalog(principal, attempts), **options)

    def catalog(self, principal: str = "reader", attempts: int = 1) -> GlueCatalog:
        """One attempt per request: what is refused is refused, so that the lake's own recovery is tested."""
        url = self.server.endpoint.url
        keys = {"aws_access_key_id": principal, "aws_secret_access_key": "embedded"}
        config = Config(retries={"mode": "standard", "total_max_attempts": attempts}, max_pool_connections=50)
        glue = boto3.client("glue", endpoint_url=url, region_name="us-east-1", config=config, **keys)
        properties = {
            "s3.endpoint": url,
            "s3.region": "us-east-1",
            "s3.access-key-id": principal,
            "s3.secret-access-key": "embedded",
            "s3.max-attempts": "1",
            "warehouse": f"s3://{self.bucket}/tables",
        }
        return GlueCatalog("lake", client=glue, **properties)

    def plain(self, name: str) -> Table:
        """The table as anybody else's pyiceberg loads it, with pyiceberg's own FileIO."""
        return self.catalog("stranger").load_table(name)

    def name(self, table: str = "t") -> str:
        return f"{self.database}.{table}"

    def objects(self, prefix: str = "") -> set[str]:
        client = self.server.endpoint.client("s3", "person")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return {found["Key"] for page in pages for found in page.get("Contents", ())}

    def faults(self, match: Callable[[Request], bool], action: Any, **options: Any) -> Any:
        return self.server.faults.fault(match, action, **options)


def make_world(server: ApiServer) -> World:
    world = World(server, f"lake-{uuid4().hex[:12]}", f"db{uuid4().hex[:8]}")
    server.endpoint.client("s3", "person").create_bucket(Bucket=world.bucket)
    return world


@pytest.fixture
def world(server: ApiServer) -> World:
    return make_world(server)


def by_writer(principal: str = "writer") -> Callable[[Request], bool]:
    return lambda request: request.principal == principal


__all__ = ["Fault", "World", "by_writer", "make_world"]
