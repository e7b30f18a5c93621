"""A function's processes: when they start and end, and how a test kills or freezes one at a chosen request."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from infra.local.awslambda.service import LambdaService
from infra.local.requests import Request
from infra.local.server import ApiServer
from infra.stage import ROOT
from tests.handlers.deploy import deploy
from tests.waiting import wait_until
from tests.worlds.functions import call


def test_a_worker_is_started_once_and_outlives_the_thread_that_asked(service: LambdaService, function: Any) -> None:
    name = function("echo")
    pids = set()
    for _ in range(3):
        with ThreadPoolExecutor(1) as caller:
            pids.add(caller.submit(call, service, name).result()["pid"])
    assert len(pids) == 1


def test_a_changed_function_gets_new_workers(server: ApiServer, service: LambdaService, function: Any) -> None:
    name = function("echo", Environment={"Variables": {"STAGE": "one"}})
    before = call(service, name)
    server.endpoint.client("lambda").update_function_configuration(
        FunctionName=name,
        Environment={"Variables": {"STAGE": "two"}},
        ImageConfig={"Command": ["tests.handlers.echo.handler"]},
    )
    after = call(service, name)
    assert (before["environment"]["STAGE"], after["environment"]["STAGE"]) == ("one", "two")
    assert not psutil.pid_exists(before["pid"])


def test_an_image_that_changes_its_command_runs_the_new_handler(
    server: ApiServer, service: LambdaService, function: Any
) -> None:
    name = function("silent")
    assert call(service, name) is None
    server.endpoint.client("lambda").update_function_configuration(
        FunctionName=name, ImageConfig={"Command": ["tests.handlers.echo.handler"]}
    )
    assert call(service, name, {"n": 3})["event"] == {"n": 3}


def test_a_deleted_function_leaves_no_worker(server: ApiServer, service: LambdaService) -> None:
    deploy(server.endpoint, "deleted", "echo")
    pid = call(service, "deleted")["pid"]
    server.endpoint.client("lambda").delete_function(FunctionName="deleted")
    assert not psutil.pid_exists(pid)


def puts(name: str, key: str) -> Callable[[Request], bool]:
    return lambda request: (
        request.principal == f"function.{name}" and request.method == "PUT" and request.touches(f"/{key}")
    )


def keys(server: ApiServer, bucket: str) -> list[str]:
    objects = server.endpoint.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])
    return sorted(item["Key"] for item in objects)


@pytest.mark.parametrize(("when", "done"), [("before", ["first"]), ("after", ["first", "second"])])
def test_a_worker_can_be_killed_at_a_chosen_request(
    server: ApiServer, service: LambdaService, function: Any, bucket: str, when: Any, done: list[str]
) -> None:
    name = function("steps", Environment={"Variables": {"BUCKET": bucket}})
    with server.faults.fault(puts(name, "second"), service.killing(name), when=when, times=1) as fault:
        answer = service.invoke(name, b"{}")
    assert fault.hits == 1
    error = json.loads(answer.payload)
    assert error["errorType"] == "Runtime.ExitError"
    assert error["errorMessage"].endswith("Runtime exited with error: signal: killed")
    assert keys(server, bucket) == done
    assert call(service, name) == "done"
    assert keys(server, bucket) == ["first", "second", "third"]


def test_a_worker_can_be_frozen_at_a_chosen_request_and_thawed(
    server: ApiServer, service: LambdaService, function: Any, bucket: str
) -> None:
    name = function("steps", Environment={"Variables": {"BUCKET": bucket}})
    with ThreadPoolExecutor(1) as pool:
        with server.faults.fault(puts(name, "second"), service.freezing(name), when="after", times=1):
            running = pool.submit(service.invoke, name, b"{}")
            worker = wait_until(lambda: service.workers().get(name), "a worker")[0]
            wait_until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED, "the worker to stop")
        assert keys(server, bucket) == ["first", "second"]
        assert not running.done()
        worker.thaw()
        assert running.result().payload == b'"done"'
    assert keys(server, bucket) == ["first", "second", "third"]


def test_a_frozen_worker_times_out(server: ApiServer, service: LambdaService, function: Any, bucket: str) -> None:
    name = function("steps", timeout=4, Environment={"Variables": {"BUCKET": bucket}})
    with server.faults.fault(puts(name, "second"), service.freezing(name), times=1):
        done = service.invoke(name, b"{}")
    assert json.loads(done.payload)["errorType"] == "Sandbox.Timedout"
    assert call(service, name) == "done"


def test_stopping_leaves_no_process_of_a_worker_or_of_its_handler(server: ApiServer) -> None:
    service = LambdaService(server.endpoint)
    for name, handler in (("idle", "echo"), ("busy", "slow"), ("frozen", "echo"), ("parent", "exiting")):
        deploy(server.endpoint, name, handler)
    pids = [call(service, "idle")["pid"], call(service, "frozen")["pid"]]
    service.worker("frozen").freeze()
    service.invoke("parent", b'{"code": 0, "child": true}')
    child = next(int(line.split()[1]) for line in service.logs("parent") if line.startswith("child"))
    wait_until(lambda: not _runs(child), "the handler's own process to end")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(service.invoke, "busy", b'{"seconds": 60}')
        pids.append(wait_until(lambda: service.workers().get("busy"), "a worker")[0].pid)
        service.stop()
        assert running.result(timeout=30).function_error == "Unhandled", "it does not wait for the handler's 60 s"
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


CLOUD = """
from infra.local.awslambda.service import LambdaService
from infra.local.server import ApiServer
from infra.stage import ROOT
from tests.handlers.deploy import deploy

server = ApiServer()
server.start()
service = LambdaService(server.endpoint)
for name in ("idle", "frozen"):
    deploy(server.endpoint, name, "echo")
    service.invoke(name, b"{}")
service.worker("frozen").freeze()
print(*(workers[0].pid for workers in service.workers().values()), flush=True)
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's own")
def test_killing_the_cloud_outright_takes_its_workers_along() -> None:
    cloud = subprocess.Popen(
        [sys.executable, "-c", CLOUD], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with cloud:
        assert cloud.stdout is not None
        pids = [int(pid) for pid in cloud.stdout.readline().split()]
        assert len(pids) == 2
        assert all(psutil.pid_exists(pid) for pid in pids)
        cloud.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(_runs(pid) for pid in pids), "its workers to end")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
