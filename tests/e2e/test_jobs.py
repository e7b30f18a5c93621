"""Jobs in the embedded cloud: started by their schedule and from the command line, their commits in the timeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from catalog.lake import Lake
from infra.app import build_app
from infra.local.clock import ManualClock
from infra.local.cloud import EmbeddedCloud
from infra.stage import ROOT
from tests.e2e.flow import lake_of

T = TypeVar("T")
PATIENCE = 240.0


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


@pytest.fixture
def lake(cloud: EmbeddedCloud, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return lake_of(cloud, monkeypatch)


def until(condition: Callable[[], T], what: str) -> T:
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        pause.wait(0.1)
    raise AssertionError(f"waited {PATIENCE:.0f} s for {what}")


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
    return [run for run in command(cloud, "job", "list") if run["state"] in ("SUCCESS", "FAILED", "CANCELLED")]


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
    (run,) = until(lambda: ended(cloud), "the scheduled run to end")
    shown = command(cloud, "job", "show", run["id"])
    assert shown["report"]["error"] is None
    assert (shown["state"], shown["report"]["status"]) == ("SUCCESS", "succeeded")
    metrics = {row["note_id"]: row for row in lake.tables.scan("gold.note_metrics").to_pylist()}
    assert metrics["Moon.md"]["links_in"] == metrics["Tide.md"]["links_out"] == 1
    cloud.wait_until_idle()
    for commit in shown["report"]["commits"]:
        _, leaf = lake.timeline.find(int(commit["snapshot_id"]))
        assert leaf.table == commit["table"]
    state = command(cloud, "job", "show", run["id"])["progress"]
    assert state["status"] == "succeeded" and state["rows"] > 0
    assert "strandline job medallion done" in command(cloud, "job", "logs", run["id"])["text"]

    table = "silver.processed_notes"
    done = command(cloud, "job", "run", "compact", "--wait", "--", "--table", table, "--rewrite-all")
    cloud.wait_until_idle()
    (commit,) = done["report"]["commits"]
    _, leaf = lake.timeline.find(int(commit["snapshot_id"]))
    assert leaf.operation == "replace" and leaf.rows_digest == commit["rows_digest"]
    assert lake.verifier.verify(deep=True).check().rewrites == 1


def test_a_failing_job_says_why_in_its_last_line(cloud: EmbeddedCloud, lake: Lake) -> None:
    answer = command(cloud, "job", "run", "compact", "--wait", "--", "--table", "gold.nowhere", code=4)
    assert "gold.nowhere" in json.dumps(answer)
    (run,) = command(cloud, "job", "list", "--state", "FAILED")
    assert "exception: strandline job compact failed (not_found): there is no table gold.nowhere" in run["details"]


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
    named = lake.tables.snapshot(table, "first", as_of=lake.tables.history(table)[-1].snapshot_id).snapshot_id
    cloud.wait_until_idle()
    listen(cloud, False)  # from here on nothing is sequenced
    try:
        for number in (4, 5):
            lake.tables.insert(table, [{"id": number}])
        fresh = [snapshot.snapshot_id for snapshot in lake.tables.history(table)[:2]]
        command(cloud, "job", "run", "expire", "--wait", "--", "--table", table, "--older-than-days", "0")
        assert {s.snapshot_id for s in lake.tables.load(table).metadata.snapshots} == {named, *fresh}
        assert len(lake.tables.scan(table)) == 6
    finally:
        listen(cloud, True)


def test_an_unknown_job_or_run_is_named(cloud: EmbeddedCloud) -> None:
    assert "medallion" in command(cloud, "job", "run", "medalion", code=1)["error"]["message"]
    assert "nosuchrun" in command(cloud, "job", "show", "nosuchrun", code=1)["error"]["message"]
