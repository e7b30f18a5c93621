"""The whole hostile set at once, through the deployed API and through ingestion: no 5xx, no lost worker, no process
over its bound; and good callers beside it are answered.

Nothing here is timed: by how much good traffic is delayed is a figure of `bench/`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.local.cloud import EmbeddedCloud
from tests.e2e.api.caller import Api
from tests.worlds.hostile_load import hostile_bodies, landed_files
from tests.worlds.hostile_queries import hostile_queries

MINE, HIDDEN, GOOD = "gold.load_mine", "gold.load_hidden", "gold.load_good"
SECRET = "seventeen-secret-tides"
ENVIRONMENT = ("root:x:", "AWS_SECRET_ACCESS_KEY=", "AWS_LAMBDA_RUNTIME_API")
API, PUBLIC, INGEST = (f"strandline-dev-{name}" for name in ("api", "public", "ingest"))


@pytest.fixture(scope="module", autouse=True)
def tables(api: Api) -> None:
    for name in (MINE, HIDDEN, GOOD):
        made = api.post("/tables", {"name": name, "columns": {"a": "long", "b": "string"}})
        assert made.status_code == 201, made.text
        rows = [{"a": 1, "b": SECRET if name == HIDDEN else "x"}]
        assert api.post(f"/tables/{name}/rows", {"rows": rows}).status_code == 200
    for name in (MINE, GOOD):
        api.post_when_ready("/query", {"sql": f"select a from {name}"})


class Processes:
    """The functions' processes, as long as the test runs: which there were, and the most memory that each had."""

    def __init__(self, cloud: EmbeddedCloud) -> None:
        self._cloud = cloud
        self.seen: dict[str, set[int]] = {}
        self.resident: dict[int, int] = {}

    def look(self) -> None:
        for name, workers in self._cloud.functions.workers().items():
            self.seen.setdefault(name, set()).update(worker.pid for worker in workers)
        for pids in self.seen.values():
            for pid in _with_children(pids):
                self.resident[pid] = max(self.resident.get(pid, 0), _high_water(pid))

    def lost(self) -> dict[str, set[int]]:
        alive = {name: {w.pid for w in workers if w.alive} for name, workers in self._cloud.functions.workers().items()}
        return {name: gone for name, pids in self.seen.items() if (gone := pids - alive.get(name, set()))}

    def over_their_bound(self) -> dict[tuple[str, int], int]:
        """The processes that had more memory than their function may have, with their megabytes."""
        bounds = {name: _memory(self._cloud, name) for name in self.seen}
        return {
            (name, pid): peak >> 20
            for name, pids in self.seen.items()
            for pid in _with_children(pids)
            if (peak := self.resident.get(pid, 0)) > bounds[name]
        }


def _with_children(pids: set[int]) -> list[int]:
    return [*pids, *(child for pid in pids for child in _children(pid))]


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended
        return []


def _high_water(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def test_good_callers_are_answered_while_the_hostile_set_runs(
    cloud: EmbeddedCloud, calling: Callable[..., Api], api: Api
) -> None:
    reader = calling(cloud.token(f"reader:{MINE}", subject="hostile-reader"))
    writer = calling(cloud.token(f"writer:{MINE}", subject="hostile-writer"))
    good = calling(cloud.token(f"writer:{GOOD}", subject="good"))
    statements, inputs = hostile_queries(MINE, HIDDEN), list(hostile_bodies())
    assert len(statements) >= 200 and len(inputs) >= 200
    results: dict[str, Any] = {}
    failures: list[BaseException] = []
    processes, served = Processes(cloud), 0

    def send(caller: Api, *request: Any, **body: Any) -> tuple[int, str]:
        answer = caller(*request, **body)
        return answer.status_code, answer.text

    def send_statements() -> None:
        for label, sql in statements.items():
            results[label] = send(reader, "POST", "/query", json={"sql": sql, "engine": "lambda"})

    def send_bodies() -> None:
        for media_type, label, data in inputs:
            headers = {"Content-Type": media_type}
            path = f"/tables/{MINE}/rows"
            results[f"{media_type} {label}"] = send(writer, "POST", path, content=data, headers=headers)

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    def serve_good() -> None:
        assert calling(None).get("/health").status_code == 200
        answer = good.post("/query", {"sql": f"select a from {GOOD} limit 1"})
        assert answer.status_code == 200 and answer.json()["rows"], answer.text
        assert good.get(f"/tables/{GOOD}/rows?limit=1").status_code == 200

    _land(cloud)
    threads = [threading.Thread(target=run, args=(work,)) for work in (send_statements, send_bodies)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        serve_good()
        processes.look()
        served += 1
    for thread in threads:
        thread.join()
    cloud.wait_until_idle()
    processes.look()
    serve_good()

    assert not failures, failures
    assert served > 0 and len(results) == len(statements) + len(inputs)
    unexpected = {what: said for what, said in results.items() if said[0] not in (200, 400, 403, 404, 413)}
    assert unexpected == {}
    leaks = [what for what, (_, text) in results.items() if any(mark in text for mark in (SECRET, *ENVIRONMENT))]
    assert leaks == []
    assert processes.lost() == {} and {API, PUBLIC, INGEST} <= processes.seen.keys()
    assert processes.over_their_bound() == {}
    assert api.get(f"/tables/{HIDDEN}/rows").json()["rows"] == [{"a": 1, "b": SECRET}]
    assert _dead_letters(cloud) == {}


def _land(cloud: EmbeddedCloud) -> None:
    s3, bucket = cloud.endpoint.client("s3", "person"), cloud.environment("person")["STRANDLINE_BUCKET"]
    for key, data in landed_files():
        s3.put_object(Bucket=bucket, Key=key, Body=data)


def _memory(cloud: EmbeddedCloud, name: str) -> int:
    configuration = cloud.endpoint.client("lambda").get_function_configuration(FunctionName=name)
    return int(configuration["MemorySize"]) << 20


def _dead_letters(cloud: EmbeddedCloud) -> dict[str, int]:
    """How many messages of landed files were given up, by queue."""
    queues = cloud.queues().items()
    return {name: visible for name, (visible, _) in queues if "landed" in name and "dead" in name and visible}
