"""Jobs in the embedded cloud: started by their schedule, from the command line and for large queries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import httpx
import pyarrow as pa
import pytest

from catalog.core import metrics
from catalog.core.errors import Invalid, NotFound
from catalog.core.point_in_time import SnapshotId
from catalog.lake import Lake
from catalog.query.run.results import Answer
from catalog.query.spark.spark_queries import QueryStatus
from infra.app import build_app
from infra.local.clock import ManualClock
from infra.local.cloud import EmbeddedCloud
from infra.stage import ROOT
from strandline.client import ARROW, Client, Problem
from tests.e2e.flow import lake_of
from tests.e2e.privilege import asked_by, excesses, function_roles, job_role
from tests.waiting import wait_until
from tests.worlds.query import rows_of

PATIENCE = 600.0


def scheduled(context: dict[str, Any] | None = None, outdir: str | None = None) -> Any:
    """The app of a stage whose jobs run by their schedules."""
    stages = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]
    return build_app({**(context or {}), "stages": {"dev": {**stages["dev"], "run_jobs": True}}}, outdir)


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 1, 9, 0, tzinfo=UTC))


@pytest.fixture(scope="module")
def cloud(clock: ManualClock) -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud(clock=clock, app=scheduled) as cloud:
        yield cloud


def command(cloud: EmbeddedCloud, *words: str, code: int = 0) -> Any:
    process = subprocess.run(
        [sys.executable, "-m", "cli.main", "-o", "json", *words],
        env={**os.environ, **cloud.environment("person"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.returncode == code, process.stderr
    return json.loads(process.stdout) if process.stdout.strip() else json.loads(process.stderr)


def ended(cloud: EmbeddedCloud) -> list[dict[str, Any]]:
    """Asked of the service: the command costs seconds of imports, each time."""
    emr = cloud.endpoint.client("emr-serverless")
    (application,) = emr.list_applications()["applications"]
    runs = emr.list_job_runs(applicationId=application["id"])["jobRuns"]
    return [run for run in runs if run["state"] in ("SUCCESS", "FAILED", "CANCELLED")]


def test_a_schedule_runs_the_pipeline_and_the_command_line_tells_of_it(
    cloud: EmbeddedCloud, lake: Lake, clock: ManualClock
) -> None:
    for name, text in {
        "Tide.md": "# Tide\nThe sea goes up and down. See [[Moon]].",
        "Moon.md": "# Moon\nIt pulls.",
    }.items():
        lake.s3.put_object(Bucket=lake.settings.bucket, Key=f"landing/bronze/raw_notes/{name}", Body=text.encode())
    cloud.wait_until_idle()
    clock.set(datetime(2026, 3, 1, 9, 7, tzinfo=UTC))  # the pipeline's minute
    wait_until(lambda: ended(cloud), "the scheduled run to end", PATIENCE)
    (run,) = command(cloud, "job", "list")
    shown = command(cloud, "job", "show", run["id"])
    assert shown["report"]["error"] is None
    assert (shown["state"], shown["report"]["status"]) == ("SUCCESS", "succeeded")
    metrics = {row["note_id"]: row for row in lake.tables.scan("gold.note_metrics").to_pylist()}
    assert metrics["Moon.md"]["links_in"] == metrics["Tide.md"]["links_out"] == 1
    cloud.wait_until_idle()
    for commit in shown["report"]["commits"]:
        assert leaf_of(lake, commit).table == commit["table"]
    state = command(cloud, "job", "show", run["id"])["progress"]
    assert state["status"] == "succeeded" and state["rows"] > 0
    assert "strandline job medallion done" in command(cloud, "job", "logs", run["id"])["text"]

    table = "silver.processed_notes"
    done = command(cloud, "job", "run", "compact", "--wait", "--", "--table", table, "--rewrite-all")
    cloud.wait_until_idle()
    (commit,) = done["report"]["commits"]
    leaf = leaf_of(lake, commit)
    assert leaf.operation == "replace" and leaf.rows_digest == commit["rows_digest"]
    assert lake.verifier.verify(deep=True).check().rewrites == 1


def leaf_of(lake: Lake, commit: dict[str, Any]) -> Any:
    """The commit's leaf, once the lake's reader has it: it may be a second behind the sequencer."""

    def find() -> Any:
        try:
            return lake.timeline.find(int(commit["snapshot_id"]))[1]
        except NotFound:
            return None

    return wait_until(find, f"the leaf of snapshot {commit['snapshot_id']}")


def test_a_failing_job_says_why_in_its_last_line(cloud: EmbeddedCloud, lake: Lake) -> None:
    answer = command(cloud, "job", "run", "compact", "--wait", "--", "--table", "gold.nowhere", code=1)
    assert "gold.nowhere" in json.dumps(answer)
    (run,) = command(cloud, "job", "list", "--state", "FAILED")
    assert "exception: strandline job compact failed (not_found): there is no table gold.nowhere" in run["details"]
    wait_until(lambda: run["id"] in told_of_failures(cloud), "the failed run in the queue of failures", PATIENCE)


def told_of_failures(cloud: EmbeddedCloud) -> set[str]:
    sqs = cloud.endpoint.client("sqs")
    url = sqs.get_queue_url(QueueName="strandline-dev-jobs-dead")["QueueUrl"]
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0).get("Messages", [])
    return {json.loads(message["Body"])["detail"]["jobRunId"] for message in messages}


def listen(cloud: EmbeddedCloud, enabled: bool) -> None:
    functions = cloud.endpoint.client("lambda")
    for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=enabled)
    cloud.mappings.sync()


def test_expiry_keeps_what_is_not_sequenced_and_what_is_named(cloud: EmbeddedCloud, lake: Lake) -> None:
    table = "silver.gauges"
    lake.tables.create(table, {"id": "long"})
    for number in range(4):
        lake.tables.insert(table, [{"id": number}])
    named = lake.tables.snapshot(
        table, "first", as_of=SnapshotId(lake.tables.history(table)[-1].snapshot_id)
    ).snapshot_id
    cloud.wait_until_idle()
    listen(cloud, False)  # from here on nothing is sequenced
    try:
        for number in (4, 5):
            lake.tables.insert(table, [{"id": number}])
        # With the one before them: else nobody could say what the first of them changed.
        fresh = [snapshot.snapshot_id for snapshot in lake.tables.history(table)[:3]]
        command(cloud, "job", "run", "expire", "--wait", "--", "--table", table, "--older-than-days", "0")
        assert {s.snapshot_id for s in lake.tables.load(table).metadata.snapshots} == {named, *fresh}
        assert len(lake.tables.scan(table)) == 6
    finally:
        listen(cloud, True)


def test_an_unknown_job_or_run_is_named(cloud: EmbeddedCloud) -> None:
    assert "medallion" in command(cloud, "job", "run", "medalion", code=1)["error"]["message"]
    assert "nosuchrun" in command(cloud, "job", "show", "nosuchrun", code=1)["error"]["message"]


class TestQueries:
    """Queries too large for a function, over HTTP: each is a job of the same application."""

    TABLE = "silver.heights"
    ROWS = 101_000  # two pages
    SQL = f"select id, metres from {TABLE} where metres >= $least order by id desc"

    @pytest.fixture(scope="class", autouse=True)
    def heights(self, cloud: EmbeddedCloud) -> None:
        with pytest.MonkeyPatch.context() as patch, closing(lake_of(cloud, patch)) as lake:
            lake.tables.create(self.TABLE, {"id": "long", "metres": "double"})
            ids = range(self.ROWS)
            lake.tables.insert(self.TABLE, pa.table({"id": ids, "metres": [one / 7 for one in ids]}))
            cloud.wait_until_idle()
            wait_until(lambda: _sequenced(lake, self.TABLE), "the table in the timeline")

    @pytest.fixture
    def api(self, cloud: EmbeddedCloud) -> Iterator[Client]:
        with Client(cloud.addresses()["api"], cloud.token("reader:silver.*", subject="ann")) as client:
            yield client

    def post(self, cloud: EmbeddedCloud, subject: str, key: str, **body: Any) -> httpx.Response:
        token = cloud.token("reader:silver.*", subject=subject)
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
        return httpx.post(f"{cloud.addresses()['api']}/query", json=body, headers=headers, timeout=60)

    def test_what_makes_no_sense_starts_no_job(self, cloud: EmbeddedCloud, api: Client) -> None:
        before = runs(cloud)
        for sql, reason in {
            f"select metre from {self.TABLE}": "did you mean metres",
            "select 1 from gold.secret": "there is no table",
            f"select cast(metres as text) from {self.TABLE}": "cannot run on Spark: text from double",
        }.items():
            with pytest.raises(Problem, match=reason):
                api.query(sql, engine="spark")
        assert runs(cloud) == before

    def test_a_job_is_submitted_once_seen_by_its_own_and_read_in_pages(
        self, cloud: EmbeddedCloud, lake: Lake, api: Client
    ) -> None:
        asked = {"sql": self.SQL, "parameters": {"least": 1}, "engine": "spark"}
        answer = self.post(cloud, "ann", "first", **asked)
        assert answer.status_code == 202, answer.text
        query_id = answer.json()["id"]
        assert (answer.headers["location"], answer.json()["status"]) == (f"queries/{query_id}", "running")
        again = self.post(cloud, "ann", "first", **asked)
        assert (again.status_code, again.json()["id"]) == (202, query_id)
        assert self.post(cloud, "ann", "first", **{**asked, "parameters": {"least": 2}}).status_code == 409
        lake.tables.insert(self.TABLE, [{"id": -1, "metres": 99.0}])  # after its cut: not in its answer

        with Client(cloud.addresses()["api"], cloud.token("reader:silver.*", subject="bob")) as other:
            for call in (other.query_status, other.query_rows, other.cancel_query):
                with pytest.raises(Problem, match="there is no query"):
                    call(query_id)
        with Client(cloud.addresses()["api"], cloud.token("reader:gold.*", subject="ann")) as elsewhere:
            with pytest.raises(Problem, match="there is no query"):  # who may read the table no more
                elsewhere.query_status(query_id)

        waiting = self.post(cloud, "bob", "second", **asked, wait=1).json()["id"]
        with Client(cloud.addresses()["api"], cloud.token("admin", subject="root")) as admin:
            assert admin.query_status(waiting)["status"] == "running"
            admin.cancel_query(waiting)
            admin.cancel_query(waiting)
            assert admin.query_status(waiting)["status"] == "cancelled"
            with pytest.raises(Problem, match="cancelled"):
                admin.query_rows(waiting)

        rows = api.query_rows(query_id, wait_s=PATIENCE)
        assert rows["id"].to_pylist() == list(range(self.ROWS - 1, 6, -1))
        done = api.query_status(query_id)
        assert (done["status"], done["rows"]) == ("done", self.ROWS - 7) and done["receipt"]["index"] is not None
        headers = {"Authorization": f"Bearer {cloud.token('admin')}"}
        url = f"{cloud.addresses()['api']}/queries/{query_id}"
        first = httpx.get(url, headers={**headers, "Accept": ARROW}, timeout=60, follow_redirects=True)
        token = httpx.get(url, headers={**headers, "Accept": ARROW}, timeout=60).headers["strandline-next"]
        assert 0 < pa.ipc.open_stream(first.content).read_all().num_rows < len(rows)
        assert httpx.get(url, params={"page": token[:-1] + "x"}, headers=headers, timeout=60).status_code == 400
        shown = httpx.get(url, params={"page": token}, headers=headers, timeout=60, follow_redirects=True).json()
        assert set(shown["rows"][0]) == {"id", "metres"} and shown["receipt"] == done["receipt"]

        assert lake.queries.answer(query_id).table().equals(rows)
        told = [line for (line,) in rows_of(lake.queries.run(f"explain route {self.SQL}", parameters={"least": 1}))]
        assert any(line.startswith("seen     1 x on spark") for line in told), told
        assert command(cloud, "query", "--result", query_id, "--cancel")["status"] == "cancelled"
        with pytest.raises(Problem, match="cancelled"):
            api.query_rows(query_id)

    def test_the_router_decides_and_one_that_is_cancelled_at_once_never_runs(self, lake: Lake) -> None:
        sql = f"select * from {self.TABLE}"
        assert isinstance(lake.queries.ask(sql), Answer)
        submitted = lake.queries.ask(sql, limit_bytes=1024)
        assert isinstance(submitted, QueryStatus) and submitted.status == "running"
        assert "over the limit of 1.0 KiB" in submitted.estimate["reason"]
        lake.queries.cancel(submitted.id)
        assert lake.queries.status(submitted.id).status == "cancelled"
        with pytest.raises(Invalid, match="verified query cannot run on Spark"):
            lake.queries.ask(sql, limit_bytes=1024, verify=True)


def runs(cloud: EmbeddedCloud) -> int:
    emr = cloud.endpoint.client("emr-serverless")
    (application,) = emr.list_applications()["applications"]
    return len(emr.list_job_runs(applicationId=application["id"])["jobRuns"])


def _sequenced(lake: Lake, table: str) -> bool:
    try:
        return bool(lake.queries.run(f"select count(*) from {table}").table().num_rows)
    except NotFound:
        return False


def test_a_changed_byte_is_found_by_the_verifying_job_and_rings_the_alarm(cloud: EmbeddedCloud, lake: Lake) -> None:
    lake.tables.create("silver.proved", {"id": "long"})
    lake.tables.insert("silver.proved", [{"id": 1}])
    cloud.wait_until_idle()
    assert lake.verifier.verify(deep=True).faults == (), "whatever the jobs did, it is as it was signed"
    bucket = lake.settings.bucket
    listed = lake.s3.list_objects_v2(Bucket=bucket, Prefix="tables/silver/proved")["Contents"]
    (key,) = [one["Key"] for one in listed if one["Key"].endswith(".parquet")]
    good = lake.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    lake.s3.put_object(Bucket=bucket, Key=key, Body=good[:10] + bytes([good[10] ^ 1]) + good[11:])
    try:
        answer = command(
            cloud, "job", "run", "verify", "--wait", "--", "--deep", code=3
        )  # the job's own error: unverified
    finally:
        lake.s3.put_object(Bucket=bucket, Key=key, Body=good)
    assert key in json.dumps(answer) and "unverified" in json.dumps(answer)
    cloud.wait_until_idle()
    lines = cloud.functions.logs("strandline-dev-sequencer")
    told = [json.loads(line) for line in lines if line.startswith("{") and '"_aws"' in line]
    assert [entry[metrics.UNVERIFIED] for entry in told if metrics.UNVERIFIED in entry] == [[1.0]]


def test_the_jobs_role_allows_all_that_jobs_asked_for_and_no_other_write(cloud: EmbeddedCloud) -> None:
    """Of the jobs that ran above. What EMR itself does under the role, pulling and logging, is its own service's."""
    role, asked = job_role(cloud), asked_by(cloud, "job/")
    assert {"s3:PutObject", "s3:DeleteObject", "glue:UpdateTable"} <= {one.action for one in asked}
    assert any("/messages/" in one.resource for one in asked)  # which is how jobs reach the sequencer
    assert sorted(one for one in asked if not role.allows(one)) == []
    assert excesses(cloud, "job", role) == []


def test_the_starters_role_allows_what_it_did_and_no_other_write(cloud: EmbeddedCloud) -> None:
    role, asked = function_roles(cloud)["starter"], asked_by(cloud, "function/strandline-dev-starter")
    assert {"glue:GetTables", "s3:PutObject", "emr-serverless:StartJobRun"} <= {one.action for one in asked}
    assert sorted(one for one in asked if not role.allows(one)) == []
    assert excesses(cloud, "starter", role) == []
