"""Functions of the embedded cloud run as on Lambda: what they see, what callers hear, and how they fail."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError

from infra.local.awslambda.invocation import Throttled
from infra.local.awslambda.service import LambdaService
from infra.local.requests import Request
from infra.local.server import ApiServer
from tests.handlers.deploy import deploy, until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def service(server: ApiServer) -> Iterator[LambdaService]:
    service = LambdaService(server.endpoint, retry_delays=(0.01, 0.02))
    service.start()
    yield service
    service.stop()


@pytest.fixture
def function(server: ApiServer, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Deploys a handler under the test's own name, and deletes it at the end."""
    name = request.node.name.split("[")[0][:60]

    def create(handler: str, **more: Any) -> str:
        deploy(server.endpoint, name, handler, **more)
        return name

    yield create
    server.endpoint.client("lambda").delete_function(FunctionName=name)


@pytest.fixture
def bucket(server: ApiServer, request: pytest.FixtureRequest) -> str:
    name = "b" + "".join(c for c in request.node.name.lower() if c.isalnum())[:50]
    server.endpoint.client("s3").create_bucket(Bucket=name)
    return name


def call(service: LambdaService, name: str, event: Any = None) -> Any:
    done = service.invoke(name, json.dumps(event or {}).encode())
    assert done.function_error is None, done.payload
    return json.loads(done.payload)


def test_a_handler_sees_its_event_and_lambdas_context(service: LambdaService, function: Any) -> None:
    name = function("echo", timeout=7, MemorySize=512)
    done = service.invoke(name, b'{"answer": 42}')
    seen = json.loads(done.payload)
    assert seen["event"] == {"answer": 42}
    context = seen["context"]
    assert context["request_id"] == done.request_id
    assert context["function_name"] == name
    assert context["function_version"] == "$LATEST"
    assert context["arn"] == f"arn:aws:lambda:us-east-1:123456789012:function:{name}"
    assert context["memory"] == "512"
    assert context["log_group"] == f"/aws/lambda/{name}"
    assert 6000 < context["remaining_ms"] <= 7000
    assert seen["cwd"] == str(ROOT)


def test_a_worker_sees_nothing_but_what_is_deployed(
    service: LambdaService, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = function("echo", Environment={"Variables": {"TABLE": "notes", "AWS_ACCESS_KEY_ID": "mine"}})
    monkeypatch.setenv("PARENT_SECRET", "do not leak")
    monkeypatch.setenv("AWS_PROFILE", "production")  # now, not before: moto's own sessions would look for it
    seen = call(service, name)["environment"]
    assert seen["TABLE"] == "notes"
    assert seen["AWS_ACCESS_KEY_ID"] == f"function.{name}"
    assert seen["AWS_ENDPOINT_URL"] == service.endpoint.url
    base = {"PATH", "LANG", "TZ", "HOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    lambdas = {"_HANDLER", "LAMBDA_TASK_ROOT", "_X_AMZN_TRACE_ID"}
    others = {key for key in seen if not key.startswith("AWS_")} - base - lambdas - {"TABLE"}
    assert others == set()
    assert "AWS_PROFILE" not in seen
    assert not os.path.exists(seen["HOME"])


def test_what_no_image_carries_cannot_be_imported(service: LambdaService, function: Any) -> None:
    modules = ["pandas", "pandas.core", "pyarrow"]
    assert all(map(find_spec, modules))  # they are there for tests and people
    assert call(service, function("echo"), {"modules": modules})["importable"] == ["pyarrow"]


def test_a_worker_is_started_once_and_outlives_the_thread_that_asked(service: LambdaService, function: Any) -> None:
    name = function("echo")
    pids = set()
    for _ in range(3):
        with ThreadPoolExecutor(1) as caller:
            pids.add(caller.submit(call, service, name).result()["pid"])
    assert len(pids) == 1


def test_the_api_runs_the_handler_and_returns_its_log(server: ApiServer, service: LambdaService, function: Any) -> None:
    context = base64.b64encode(json.dumps({"custom": {"user": "ada"}}).encode()).decode()
    answer = server.endpoint.client("lambda").invoke(
        FunctionName=function("echo"), Payload=b'{"n": 1}', LogType="Tail", ClientContext=context
    )
    seen = json.loads(answer["Payload"].read())
    assert answer["StatusCode"] == 200
    assert "FunctionError" not in answer
    assert answer["ExecutedVersion"] == "$LATEST"
    assert seen["event"] == {"n": 1}
    assert seen["context"]["client"] == {"user": "ada"}
    lines = base64.b64decode(answer["LogResult"]).decode().splitlines()
    words = [line.split()[0] for line in lines]
    assert words == ["START", "echo", "END", "REPORT"]
    assert lines[1] == f"echo {seen['context']['request_id']}"


def test_a_zip_function_runs_its_handler(server: ApiServer, service: LambdaService) -> None:
    deploy(server.endpoint, "an-image", "silent")
    archive = io.BytesIO()
    zipfile.ZipFile(archive, "w").close()
    client = server.endpoint.client("lambda")
    client.create_function(
        FunctionName="zipped",
        Role=client.get_function(FunctionName="an-image")["Configuration"]["Role"],
        Runtime="python3.11",
        Handler="tests.handlers.echo.handler",
        Code={"ZipFile": archive.getvalue()},
    )
    assert call(service, "zipped", {"n": 2})["event"] == {"n": 2}


def test_a_callers_trace_reaches_the_handler(server: ApiServer, service: LambdaService, function: Any) -> None:
    trace = "Root=1-67891233-abcdef012345678912345678;Parent=53995c3f42cd8ad8;Sampled=1"
    done = service.invoke(function("echo"), b"{}", trace_id=trace)
    assert json.loads(done.payload)["environment"]["_X_AMZN_TRACE_ID"] == trace


def test_output_goes_to_cloudwatch_and_to_the_tail(server: ApiServer, service: LambdaService, function: Any) -> None:
    name = function("echo")
    seen = call(service, name)
    line = f"echo {seen['context']['request_id']}"
    events = server.endpoint.client("logs").get_log_events(
        logGroupName=f"/aws/lambda/{name}", logStreamName=seen["context"]["log_stream"]
    )["events"]
    assert line in [event["message"] for event in events]
    assert line in service.logs(name)


def test_a_handler_that_writes_nothing_answers_null(service: LambdaService, function: Any) -> None:
    done = service.invoke(function("silent"), b"")
    assert (done.payload, done.function_error) == (b"null", None)


def test_an_exception_comes_through_with_type_message_and_trace(
    server: ApiServer, service: LambdaService, function: Any
) -> None:
    name = function("raising")
    answer = server.endpoint.client("lambda").invoke(FunctionName=name, Payload=b'"x"')
    error = json.loads(answer["Payload"].read())
    assert answer["FunctionError"] == "Unhandled"
    assert error["errorType"] == "ValueError"
    assert error["errorMessage"] == "told to fail with x"
    assert "raising.py" in error["stackTrace"][0]
    assert any("[ERROR] ValueError: told to fail with x" in line for line in service.logs(name))


def test_an_init_error_comes_through_with_type_message_and_trace(service: LambdaService, function: Any) -> None:
    name = function("broken")
    for _ in range(2):  # the second event gets a new worker, and the same truth
        done = service.invoke(name, b"{}")
        error = json.loads(done.payload)
        assert done.function_error == "Unhandled"
        assert error["errorType"] == "RuntimeError"
        assert error["errorMessage"] == "no such table: customers"
        assert any("broken.py" in line for line in error["stackTrace"])


def test_a_handler_that_does_not_exist_is_named(service: LambdaService, function: Any) -> None:
    error = json.loads(service.invoke(function("nowhere"), b"{}").payload)
    assert error["errorType"] == "Runtime.ImportModuleError"
    assert "tests.handlers.nowhere" in error["errorMessage"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(3, "Runtime exited with error: exit status 3"), (0, "Runtime exited without providing a reason")],
)
def test_an_exit_is_an_exit_error(service: LambdaService, function: Any, code: int, reason: str) -> None:
    done = service.invoke(function("exiting"), json.dumps({"code": code}).encode())
    assert done.function_error == "Unhandled"
    assert json.loads(done.payload) == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: {done.request_id} Error: {reason}",
    }


def test_a_timeout_ends_the_worker_and_the_next_event_gets_a_new_one(service: LambdaService, function: Any) -> None:
    name = function("slow", timeout=1)
    first = call(service, name, {"seconds": 0})["pid"]
    done = service.invoke(name, b'{"seconds": 30}')
    assert json.loads(done.payload) == {
        "errorType": "Sandbox.Timedout",
        "errorMessage": f"RequestId: {done.request_id} Error: Task timed out after 1.00 seconds",
    }
    assert 1000 <= done.duration_ms < 3000
    assert not psutil.pid_exists(first)
    assert call(service, name, {"seconds": 0})["pid"] != first


def intervals(service: LambdaService, name: str) -> list[dict[str, int]]:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: call(service, name, {"seconds": 0.05}), range(6)))
    return sorted(found, key=lambda one: one["began"])


def test_reserved_concurrency_of_one_never_overlaps(server: ApiServer, service: LambdaService, function: Any) -> None:
    name = function("slow")
    server.endpoint.client("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=1)
    runs = intervals(service, name)
    assert all(earlier["ended"] <= later["began"] for earlier, later in pairwise(runs))
    assert len({run["pid"] for run in runs}) == 1


def test_without_a_reservation_two_run_at_once_and_no_more(service: LambdaService, function: Any) -> None:
    runs = intervals(service, function("slow"))
    assert any(earlier["ended"] > later["began"] for earlier, later in pairwise(runs))
    assert len({run["pid"] for run in runs}) == 2


def test_a_busy_function_throttles_who_does_not_wait(server: ApiServer, service: LambdaService, function: Any) -> None:
    name = function("slow")
    client = server.endpoint.client("lambda")
    client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(service.invoke, name, b'{"seconds": 60}')
        worker = until(lambda: service.workers().get(name))[0]
        with pytest.raises(client.exceptions.TooManyRequestsException):
            client.invoke(FunctionName=name, Payload=b'{"seconds": 0}')
        worker.kill()
        assert running.result().function_error == "Unhandled"


def test_reserved_concurrency_of_zero_runs_nothing(server: ApiServer, service: LambdaService, function: Any) -> None:
    name = function("echo")
    server.endpoint.client("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    with pytest.raises(Throttled):
        service.invoke(name, b"{}")


def test_an_asynchronous_event_is_tried_three_times_and_then_kept(
    server: ApiServer, service: LambdaService, function: Any
) -> None:
    sqs = server.endpoint.client("sqs")
    url = sqs.create_queue(QueueName="failed-events")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    name = function("raising", DeadLetterConfig={"TargetArn": arn})
    client = server.endpoint.client("lambda")
    client.put_function_event_invoke_config(FunctionName=name, DestinationConfig={"OnFailure": {"Destination": arn}})
    answer = client.invoke(FunctionName=name, Payload=b'{"n": 1}', InvocationType="Event")
    assert (answer["StatusCode"], answer["Payload"].read()) == (202, b"")
    kept: list[dict[str, Any]] = []
    until(lambda: kept.extend(_receive(sqs, url)) or len(kept) == 2)
    record, dead = (json.loads(message["Body"]) for message in kept)
    assert record["requestContext"]["condition"] == "RetriesExhausted"
    assert record["requestContext"]["approximateInvokeCount"] == 3
    assert record["requestPayload"] == {"n": 1}
    assert record["responsePayload"]["errorType"] == "ValueError"
    assert dead == {"n": 1}
    starts = [line for line in service.logs(name) if line.startswith("START")]
    assert len(starts) == 3
    assert len(set(starts)) == 1, "one event keeps its request id"


def _receive(sqs: Any, url: str) -> list[dict[str, Any]]:
    return list(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages", []))


def test_a_dry_run_runs_nothing(server: ApiServer, service: LambdaService, function: Any) -> None:
    name = function("echo")
    answer = server.endpoint.client("lambda").invoke(FunctionName=name, InvocationType="DryRun")
    assert answer["StatusCode"] == 204
    assert name not in service.workers()


def test_an_s3_notification_reaches_its_function_without_holding_up_the_put(
    server: ApiServer, service: LambdaService, bucket: str
) -> None:
    arn = deploy(server.endpoint, "notified", "echo")
    s3 = server.endpoint.client("s3")
    configuration = {"LambdaFunctionArn": arn, "Events": ["s3:ObjectCreated:*"]}
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"LambdaFunctionConfigurations": [configuration]}
    )
    client = server.endpoint.client("lambda")
    client.put_function_concurrency(FunctionName="notified", ReservedConcurrentExecutions=0)
    s3.put_object(Bucket=bucket, Key="note.txt", Body=b"hello")  # returns, though the function cannot run
    assert service.logs("notified") == []
    client.delete_function_concurrency(FunctionName="notified")
    until(lambda: any(line.startswith("echo ") for line in service.logs("notified")))


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
    found = server.endpoint.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])
    return sorted(entry["Key"] for entry in found)


@pytest.mark.parametrize(("when", "done"), [("before", ["first"]), ("after", ["first", "second"])])
def test_a_worker_can_be_killed_at_a_chosen_request(
    server: ApiServer, service: LambdaService, function: Any, bucket: str, when: Any, done: list[str]
) -> None:
    name = function("steps", Environment={"Variables": {"BUCKET": bucket}})
    with server.faults.fault(puts(name, "second"), service.killing(name), when=when, times=1) as fault:
        answer = service.invoke(name, b"{}")
    assert fault.struck == 1
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
            worker = until(lambda: service.workers().get(name))[0]
            until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED)
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
    until(lambda: not _runs(child))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(service.invoke, "busy", b'{"seconds": 60}')
        pids.append(until(lambda: service.workers().get("busy"))[0].pid)
        began = time.monotonic()
        service.stop()
        assert running.result(timeout=2).function_error == "Unhandled"
    assert time.monotonic() - began < 2
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


CLOUD = """
from infra.local.awslambda.service import LambdaService
from infra.local.server import ApiServer
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
    until(lambda: not any(_runs(pid) for pid in pids))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_unknown_function_is_not_found(server: ApiServer, service: LambdaService) -> None:
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        server.endpoint.client("lambda").invoke(FunctionName="nobody")
