"""A bucket and a namespace of a test's own, with clients, a catalog and tables for any principal.

The worlds of the tables, of ingestion and of the timeline extend it. It needs no server's code, only its address.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self
from uuid import uuid4

import boto3
from botocore.config import Config
from pyarrow.fs import AwsStandardS3RetryStrategy
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.table import Table

from catalog.core.retries import Retry
from catalog.tables.manager import Tables

if TYPE_CHECKING:  # a process of its own needs none of it
    from infra.local.server import ApiServer

REGION = "us-east-1"


class OneTry(AwsStandardS3RetryStrategy):
    def __init__(self) -> None:
        super().__init__(max_attempts=1)


@dataclass
class Warehouse:
    """Every principal is a process of its own, with its own catalog and caches.

    A request is made once: what is refused stays refused, so that the lake's own recovery is tested.
    """

    server: ApiServer
    bucket: str
    namespace: str

    PRINCIPAL: ClassVar[str] = "person"
    READ_TIMEOUT_S: ClassVar[float] = 60

    @classmethod
    def create(cls, server: ApiServer) -> Self:
        suffix = uuid4().hex[:12]
        warehouse = cls(server, f"lake-{suffix}", f"n{suffix}")
        warehouse.client("s3", "person").create_bucket(Bucket=warehouse.bucket)
        return warehouse

    def client(self, service: str, principal: str | None = None, attempts: int = 1) -> Any:
        return _client(self.server.endpoint.url, service, principal or self.PRINCIPAL, attempts, self.READ_TIMEOUT_S)

    def catalog(self, principal: str = "person", attempts: int = 1) -> GlueCatalog:
        properties = {
            "s3.endpoint": self.server.endpoint.url,
            "s3.region": REGION,
            "s3.access-key-id": principal,
            "s3.secret-access-key": "embedded",
            "s3.max-attempts": "1",  # of the lake's own file IO
            "s3.retry-strategy-impl": f"{OneTry.__module__}.{OneTry.__qualname__}",  # of pyiceberg's
            "warehouse": f"s3://{self.bucket}/tables",
        }
        return GlueCatalog("lake", client=self.client("glue", principal, attempts), **properties)

    def tables(self, principal: str | None = None, attempts: int = 1, **options: Any) -> Tables:
        options.setdefault("retry", Retry(attempts=40, base_s=0.005, cap_s=0.1))
        return Tables(self.catalog(principal or self.PRINCIPAL, attempts), **options)

    def plain(self, name: str) -> Table:
        """The table as anybody else's pyiceberg loads it, with pyiceberg's own FileIO."""
        return self.catalog("stranger").load_table(name)

    def name(self, table: str = "t") -> str:
        return f"{self.namespace}.{table}"

    def object_keys(self, prefix: str = "") -> set[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return {item["Key"] for page in pages for item in page.get("Contents", ())}

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        keys = sorted(self.object_keys(prefix))
        return {key: self._s3.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}

    @property
    def _s3(self) -> Any:
        return self.client("s3", "stranger")


@cache
def _client(url: str, service: str, principal: str, attempts: int, read_timeout_s: float) -> Any:
    """Clients keep nothing that a new process would not have, and are slow to make: principals share them."""
    return boto3.client(
        service,
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=principal,
        aws_secret_access_key="embedded",
        config=Config(
            connect_timeout=2,
            read_timeout=read_timeout_s,
            max_pool_connections=50,
            retries={"mode": "standard", "total_max_attempts": attempts},
            s3={"addressing_style": "path"},
        ),
    )
