"""A function's process that is killed or frozen: its messages come again in seconds, and no effect is doubled.

The queues' own visibility timeouts are minutes, and no sweep runs in these tests, so only what the functions do
themselves brings the work back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from catalog.core.errors import NotFound
from catalog.lake import Lake
from infra.local.awslambda.workers import Worker
from infra.local.cloud import EmbeddedCloud
from infra.local.faults import disconnect, refuse
from infra.local.requests import Request
from tests.waiting import wait_until

INGEST, SEQUENCER = "strandline-dev-ingest", "strandline-dev-sequencer"
RECOVERY_S = 60.0
"""Twice what an operator is told: a loaded machine is no defect. The queues' visibility timeouts are longer."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud() as cloud:
        for schedule in cloud.endpoint.client("scheduler").list_schedules()["Schedules"]:
            if "sweep" in schedule["Name"]:
                cloud.endpoint.client("scheduler").delete_schedule(Name=schedule["Name"])
        yield cloud


def land(lake: Lake, table: str, name: str = "a.csv", rows: int = 2) -> None:
    body = b"id\n" + b"".join(b"%d\n" % number for number in range(rows))
    lake.s3.put_object(Bucket=lake.settings.bucket, Key=f"landing/bronze/{table}/{name}", Body=body)


def ids(lake: Lake, table: str) -> list[int]:
    if f"bronze.{table}" not in lake.tables.list("bronze"):
        return []
    return sorted(lake.tables.scan(f"bronze.{table}")["id"].to_pylist())


def leaves(lake: Lake, table: str) -> list[Any]:
    """The snapshots of the table's leaves, as a default read sees them."""
    try:
        found = [leaf for _, leaf in lake.timeline.commits_since(f"bronze.{table}")]
    except NotFound:
        return []
    return [leaf.snapshot_id for leaf in found if leaf.snapshot_id is not None]


def by(function: str, action: str, within: str = "") -> Any:
    def matches(request: Request) -> bool:
        named = request.touches(within) or any(within in subject for subject in request.subjects)
        return request.principal == f"function.{function}" and request.action == action and named

    return matches


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_ingestion_goes_on_at_once_and_adds_each_row_once(cloud: EmbeddedCloud, lake: Lake, when: Any) -> None:
    table = f"killed_{when}"
    land(lake, table, "warm.csv", 1)
    wait_until(lambda: ids(lake, table) == [0], "the first file's row")
    killed = cloud.functions.killing(INGEST)
    with cloud.server.faults.fault(by(INGEST, "UpdateTable", table), killed, when=when, times=1) as fault:
        land(lake, table)
        wait_until(lambda: fault.hits == 1 and len(ids(lake, table)) >= 3, "the second file's rows", RECOVERY_S)
    cloud.wait_until_idle(RECOVERY_S)
    assert ids(lake, table) == [0, 0, 1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_sequencer_goes_on_at_once_and_adds_each_leaf_once(
    cloud: EmbeddedCloud, lake: Lake, when: Any
) -> None:
    table = f"unsequenced_{when}"
    killed = cloud.functions.killing(SEQUENCER)
    with cloud.server.faults.fault(by(SEQUENCER, "PUT", "/wal/"), killed, when=when, times=1) as fault:
        land(lake, table)
        wait_until(lambda: fault.hits == 1 and len(leaves(lake, table)) >= 1, "the commit's leaf", RECOVERY_S)
    cloud.wait_until_idle(RECOVERY_S)
    found = leaves(lake, table)
    assert len(found) == len(set(found)) >= 1
    lake.verifier.verify().check()


@pytest.mark.parametrize(("action", "when"), [("GET", "after"), ("UpdateTable", "before")])
def test_a_frozen_ingestion_that_wakes_up_later_doubles_nothing(
    cloud: EmbeddedCloud, lake: Lake, action: str, when: Any
) -> None:
    """Frozen after it read the file, or during its commit: another process serves its message, then it goes on."""
    table = f"frozen_{when}"
    land(lake, table, "warm.csv", 1)
    wait_until(lambda: ids(lake, table) == [0], "the first file's row")
    frozen: list[Worker] = []

    def freeze(request: Request) -> None:
        frozen.append(cloud.functions.worker(INGEST))
        frozen[0].freeze()

    within = f"landing/bronze/{table}" if action == "GET" else table
    try:
        with cloud.server.faults.fault(by(INGEST, action, within), freeze, when=when, times=1):
            land(lake, table)
            wait_until(
                lambda: frozen and len(ids(lake, table)) >= 3 and cloud.queues()["strandline-dev-landed"] == (0, 0),
                "another process to serve the message",
                RECOVERY_S,
            )
    finally:
        for worker in frozen:
            worker.thaw()
    cloud.wait_until_idle(RECOVERY_S)
    assert ids(lake, table) == [0, 0, 1]
    assert frozen[0].alive


def test_what_the_lake_could_not_do_is_tried_again_in_seconds(cloud: EmbeddedCloud, lake: Lake) -> None:
    with cloud.server.faults.fault(by(INGEST, "GET", "landing/bronze/refused"), refuse) as fault:
        land(lake, "refused")
        wait_until(lambda: fault.hits >= 1, "a file that cannot be read")
        wait_until(lambda: refusals(cloud), "the message refused", RECOVERY_S)
    wait_until(lambda: ids(lake, "refused") == [0, 1], "the file's rows", RECOVERY_S)


def refusals(cloud: EmbeddedCloud) -> list[str]:
    return [line for line in cloud.functions.logs(INGEST) if '"FilesFailed":[1' in line.replace(" ", "")]


def test_a_message_is_kept_while_it_is_worked_on(cloud: EmbeddedCloud, lake: Lake) -> None:
    """A lost extension of the visibility fails nothing."""
    lost = by(INGEST, "ChangeMessageVisibilityBatch")
    with cloud.server.faults.fault(lost, disconnect) as fault:
        land(lake, "unextended")
        wait_until(lambda: ids(lake, "unextended") == [0, 1], "the file's rows", RECOVERY_S)
    assert fault.hits >= 1


def test_a_new_sequencer_finds_the_commit_whose_message_was_lost(cloud: EmbeddedCloud, lake: Lake) -> None:
    def loses_its_message(request: Request) -> bool:
        return request.principal == "person" and request.action == "SendMessage"

    lake.tables.create("bronze.unannounced", {"id": "long"})
    cloud.wait_until_idle()  # nobody can open the timeline before it has a leaf
    wait_until(lambda: indexes(lake, "unannounced"), "the table's first leaf")
    before = len(indexes(lake, "unannounced"))
    with cloud.server.faults.fault(loses_its_message, refuse) as fault:
        lake.tables.insert("bronze.unannounced", [{"id": 1}])
    assert fault.hits >= 1
    cloud.functions.worker(SEQUENCER).kill()
    lake.tables.create("bronze.announced", {"id": "long"})
    wait_until(lambda: len(indexes(lake, "unannounced")) > before, "the leaf of the lost commit", RECOVERY_S)


def indexes(lake: Lake, table: str) -> list[int]:
    try:
        return [index for index, _ in lake.timeline.commits_since(f"bronze.{table}")]
    except NotFound:
        return []
