"""A caller's budget for Spark, settled by what real jobs used: through the deployed API, its counters and EMR."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import httpx
import pytest

from catalog.access.usage import HOUR_S
from infra.app import build_app
from infra.local.cloud import EmbeddedCloud
from infra.stage import ROOT
from tests.e2e.flow import lake_of
from tests.waiting import wait_until

PATIENCE = 600.0
TABLE = "silver.heights"
LIMIT = 0.2
"""vCPU-hours: less than the estimate of one job, and at least what one costs in the minute that EMR bills at least."""


def limited(context: dict[str, Any] | None = None, outdir: str | None = None) -> Any:
    """The app of a stage in which readers have a small budget for Spark."""
    stages = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]
    stage = {**stages["dev"], "limits": {"reader": {"spark_vcpu_hours": LIMIT}}}
    return build_app({**(context or {}), "stages": {"dev": stage}}, outdir)


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud(app=limited) as cloud:
        with pytest.MonkeyPatch.context() as patch, closing(lake_of(cloud, patch)) as lake:
            lake.tables.create(TABLE, {"id": "long"})
            lake.tables.insert(TABLE, [{"id": number} for number in range(10)])
            cloud.wait_until_idle()
        yield cloud


class Reader:
    """One caller of the API, with a budget of its own."""

    def __init__(self, cloud: EmbeddedCloud, subject: str) -> None:
        self._url = cloud.addresses()["api"]
        self._headers = {"Authorization": f"Bearer {cloud.token('reader:silver.*', subject=subject)}"}

    def query(self, engine: str) -> httpx.Response:
        body = {"sql": f"select sum(id) as n from {TABLE}", "engine": engine}
        return httpx.post(f"{self._url}/query", json=body, headers=self._headers, timeout=60)

    def status(self, query_id: str) -> dict[str, Any]:
        answer = httpx.get(f"{self._url}/queries/{query_id}?rows=false", headers=self._headers, timeout=60)
        assert answer.status_code == 200, answer.text
        status: dict[str, Any] = answer.json()
        return status


def counted(cloud: EmbeddedCloud) -> tuple[int, int]:
    """The vCPU milliseconds that the counters have of this hour, and how many jobs of them are by estimate."""
    dynamodb = cloud.endpoint.client("dynamodb")
    (table,) = [name for name in dynamodb.list_tables()["TableNames"] if "usage" in name.lower()]
    hour = str(int(time.time()) // HOUR_S)
    items = dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
    mine = [item for item in items if "vcpu_ms" in item and item["caller"]["S"].endswith(f".{hour}")]
    return (
        sum(int(item["vcpu_ms"]["N"]) for item in mine),
        sum(len(item.get("runs", {}).get("SS", ())) for item in mine),
    )


def billed(cloud: EmbeddedCloud) -> list[int]:
    """What EMR says of each job that has ended, in vCPU milliseconds."""
    emr = cloud.endpoint.client("emr-serverless")
    (application,) = emr.list_applications()["applications"]
    ids = [run["id"] for run in emr.list_job_runs(applicationId=application["id"])["jobRuns"]]
    jobs = [emr.get_job_run(applicationId=application["id"], jobRunId=id_)["jobRun"] for id_ in ids]
    used = [job["billedResourceUtilization"]["vCPUHour"] for job in jobs if job["state"] == "SUCCESS"]
    return [round(hours * HOUR_S * 1000) for hours in used]


def has_ended(reader: Reader, query_id: str) -> bool:
    return bool(reader.status(query_id)["status"] != "running")


def are_billed(cloud: EmbeddedCloud, jobs: int) -> bool:
    return len(billed(cloud)) == jobs


def test_real_jobs_are_settled_by_what_they_used_and_the_budget_then_refuses(cloud: EmbeddedCloud) -> None:
    wait_until(lambda: Reader(cloud, "first").query("lambda").status_code == 200, "the table in the timeline", PATIENCE)
    hour, reader, jobs = int(time.time()) // HOUR_S, Reader(cloud, "ada"), 0
    while (answer := reader.query("spark")).status_code == 202:
        jobs += 1
        assert jobs <= 3, "the budget is spent, and jobs still start"
        query_id = answer.json()["id"]
        if int(time.time()) // HOUR_S != hour:
            pytest.skip("another hour has begun, and with it another budget")
        milliseconds, estimated = counted(cloud)
        assert estimated == 1 and milliseconds >= LIMIT * HOUR_S * 1000
        while_it_runs = reader.query("spark")
        if reader.status(query_id)["status"] == "running":
            assert while_it_runs.status_code == 429, while_it_runs.text
        wait_until(partial(has_ended, reader, query_id), "the query to end", PATIENCE)
        assert reader.status(query_id)["status"] == "done"
        wait_until(partial(are_billed, cloud, jobs), "EMR's bill", PATIENCE)
        reader.status(query_id)
        if int(time.time()) // HOUR_S == hour:
            assert counted(cloud) == (sum(billed(cloud)), 0)
    assert answer.status_code == 429 and jobs >= 1, answer.text
    assert 0 < int(answer.headers["retry-after"]) <= HOUR_S
    assert f"{LIMIT:g} vCPU-hours on Spark are allowed in an hour" in answer.json()["detail"]
    used = billed(cloud)
    assert sum(used[:-1]) < LIMIT * HOUR_S * 1000 <= sum(used)  # the last job began within the budget
    assert reader.query("auto").status_code == 200  # what may run in the function still does
    assert Reader(cloud, "bob").query("spark").status_code == 202  # another caller has a budget of its own
