"""What the query figures are taken on: tables in the embedded cloud's Glue, their objects where time is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import boto3
from pyiceberg.catalog.glue import GlueCatalog

from bench.object_store import KEYS, ObjectStore, object_store
from bench.timeline_world import cloud
from catalog.errors import NotFound
from catalog.query.engine import Limits
from catalog.query.queries import Queries
from catalog.tables.manager import Tables
from catalog.timeline.attest import Attestations

_NUMBERS = count(1)


@dataclass
class Warehouse:
    """A bucket of tables. `reader()` is a process that has seen nothing yet, as far as caches go."""

    glue_url: str
    store: ObjectStore
    bucket: str

    @property
    def url(self) -> str:
        """Where the objects are."""
        return self.store.url

    def tables(self) -> Tables:
        properties = {
            "s3.endpoint": self.url,
            "s3.region": KEYS["region"],
            "s3.access-key-id": KEYS["access"],
            "s3.secret-access-key": KEYS["secret"],
            "s3.request-timeout": str(60 + next(_NUMBERS)),  # like no other: a store, and so a cache, of its own
            "warehouse": f"s3://{self.bucket}/tables",
        }
        glue = boto3.client("glue", endpoint_url=self.glue_url, region_name=KEYS["region"])
        return Tables(GlueCatalog("bench", client=glue, **properties))

    def s3(self) -> Any:
        return boto3.client("s3", endpoint_url=self.url, region_name=KEYS["region"])

    def reader(self) -> Queries:
        limits = Limits(6 << 30, 300.0)  # what a function of 10 GB has
        return Queries(self.tables(), _no_timeline, Attestations(self.s3(), self.bucket), limits=limits)


def _no_timeline() -> Any:
    """Tables are read at their newest snapshot: the timeline has figures of its own."""
    raise NotFound("no timeline here")


@contextmanager
def warehouse() -> Iterator[Warehouse]:
    with cloud() as running, object_store(running) as store:
        yield Warehouse(running.url, store, store.bucket())
