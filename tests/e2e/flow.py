"""One trip through the whole lake, the way a user makes it. Grows with the lake: every function is on the way."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from catalog.core.settings import load_settings
from catalog.lake import Lake, open_lake
from infra.local.cloud import EmbeddedCloud
from strandline.client import Client
from tests.waiting import wait_until

TABLE, OVER_HTTP = "bronze.tides", "silver.tides"
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
    call_api(cloud)
    call_starter(cloud)
    call_canary(cloud)
    return lake


def call_canary(cloud: EmbeddedCloud) -> None:
    """Every kind of read and proof is answered under the canary's own role."""
    invocation = cloud.functions.invoke("strandline-dev-canary", b"{}")
    assert invocation.function_error is None, invocation.payload
    reads = json.loads(invocation.payload)["reads"]
    assert {"row proof", "changes", "query verified"} <= {read["read"] for read in reads}
    assert [read for read in reads if read["error"]] == []


def call_starter(cloud: EmbeddedCloud) -> None:
    """A job is due that has nothing to do: its database has no tables, so no Spark is started for it."""
    due = {"schedule": "medallion", "job": "medallion", "timeout_minutes": 60, "execution_id": "due-1"}
    payload = json.dumps({**due, "databases": ["gold"]}).encode()
    invocation = cloud.functions.invoke("strandline-dev-starter", payload)
    assert invocation.function_error is None, invocation.payload
    assert json.loads(invocation.payload) == {"job_run": None, "reason": None}


def call_api(cloud: EmbeddedCloud) -> None:
    """A table's life over HTTP: every kind of body and answer, a query, a proof and a file."""
    with Client(cloud.addresses()["api"], cloud.token("admin")) as api:
        api.create_table(OVER_HTTP, SCHEMA, key=["station"])
        api.insert(OVER_HTTP, pa.table({"station": ["Brest"], "metres": [4.2]}))
        receipt = api.upsert(OVER_HTTP, [{"station": "Brest", "metres": 6.9}])
        assert api.rows(OVER_HTTP)["metres"].to_pylist() == [6.9]
        assert api.query(f"select count(*) from {TABLE}").num_rows == 1
        api.upload(OVER_HTTP, "more.csv", FILES["good.csv"])
        cloud.wait_until_idle()
        commits = wait_until(
            lambda: [one for one in api.commits(OVER_HTTP) if one.get("snapshot_id") == receipt["snapshot_id"]],
            "the upsert in the timeline",
        )
        assert b"tlog-proof" in api.proof(commits[0]["index"])
        assert list(api.changes(OVER_HTTP)) and api.openapi() and api.metrics() and api.checkpoint()
