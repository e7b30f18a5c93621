"""How functions fail: with which error a caller hears of it, and what comes after."""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError

from infra.local.awslambda.service import LambdaService
from infra.local.server import ApiServer
from tests.waiting import wait_until
from tests.worlds.functions import call


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
    assert 1000 <= done.duration_ms < 30_000, "it ended at its time-out, not with its handler"
    assert not psutil.pid_exists(first)
    assert call(service, name, {"seconds": 0})["pid"] != first


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
    wait_until(lambda: kept.extend(_receive(sqs, url)) or len(kept) == 2, "both records of the failure")
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


def test_an_unknown_function_is_not_found(server: ApiServer, service: LambdaService) -> None:
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        server.endpoint.client("lambda").invoke(FunctionName="nobody")
