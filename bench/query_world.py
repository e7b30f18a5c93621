"""The warehouse of the query benchmarks: tables in the embedded cloud's Glue, with objects in the object store."""

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
from catalog import NotFound
from catalog.query import EngineLimits, Queries
from catalog.tables import Tables
from catalog.timeline import Attestations

_NUMBERS = count(1)


@dataclass
class Warehouse:
    """A bucket of tables. `reader()` has empty caches, like a new process."""

    glue_url: str
    store: ObjectStore
    bucket: str

    @property
    def url(self) -> str:
        """The S3 endpoint of the objects."""
        return self.store.url

    def tables(self) -> Tables:
        properties = {
            "s3.endpoint": self.url,
            "s3.region": KEYS["region"],
            "s3.access-key-id": KEYS["access"],
            "s3.secret-access-key": KEYS["secret"],
            "s3.request-timeout": str(60 + next(_NUMBERS)),  # unique, so that it has its own store and cache
            "warehouse": f"s3://{self.bucket}/tables",
        }
        glue = boto3.client("glue", endpoint_url=self.glue_url, region_name=KEYS["region"])
        return Tables(GlueCatalog("bench", client=glue, **properties))

    def s3(self) -> Any:
        return boto3.client("s3", endpoint_url=self.url, region_name=KEYS["region"])

    def reader(self) -> Queries:
        limits = EngineLimits(6 << 30, 300.0)  # as in a function of 10 GB
        return Queries(self.tables(), _no_timeline, Attestations(self.s3(), self.bucket), limits=limits)


def _no_timeline() -> Any:
    """Makes queries read the current snapshots: the timeline has its own benchmark."""
    raise NotFound("no timeline here")


@contextmanager
def warehouse() -> Iterator[Warehouse]:
    with cloud() as running, object_store(running) as store:
        yield Warehouse(running.url, store, store.bucket())
