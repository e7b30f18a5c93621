"""One trip through the whole lake, the way a user makes it. Grows with the lake: every function is on the way."""

from __future__ import annotations

import pytest

from catalog.lake import Lake, open_lake
from catalog.settings import load_settings
from infra.local.cloud import EmbeddedCloud

TABLE = "bronze.tides"
SCHEMA = {"station": "string", "metres": "double"}
FILES = {"good.csv": b"station,metres\nBrest,4.2\n", "bad.jsonl": b'{"station": '}


def lake_of(cloud: EmbeddedCloud, monkeypatch: pytest.MonkeyPatch, principal: str = "person") -> Lake:
    """The lake as somebody outside of it sees it: with the variables the cloud hands out."""
    for name, value in cloud.environment(principal).items():
        monkeypatch.setenv(name, value)
    return open_lake(load_settings())


def commit_and_wait(cloud: EmbeddedCloud, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table, an insert, an upsert and two dropped files, one of them bad; returns when all is worked off."""
    lake = lake_of(cloud, monkeypatch)
    lake.tables.create(TABLE, SCHEMA, mode="mor", key=["station"])
    lake.tables.insert(TABLE, [{"station": "Brest", "metres": 4.2}, {"station": "Newlyn", "metres": 3.1}])
    lake.tables.upsert(TABLE, [{"station": "Brest", "metres": 6.9}])
    for name, body in FILES.items():
        lake.s3.put_object(Bucket=lake.settings.bucket, Key=f"landing/bronze/gauges/{name}", Body=body)
    cloud.wait_until_idle()
    return lake
