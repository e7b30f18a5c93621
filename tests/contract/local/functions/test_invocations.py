"""Functions of the embedded cloud run as on Lambda: what a handler sees, and what its caller gets."""

from __future__ import annotations

import base64
import io
import json
import os
import zipfile
from importlib.util import find_spec
from typing import Any

import pytest

from infra.local.awslambda.service import LambdaService
from infra.local.server import ApiServer
from infra.stage import ROOT
from tests.handlers.deploy import deploy
from tests.waiting import wait_until
from tests.worlds.functions import call


def test_a_handler_sees_its_event_and_lambdas_context(service: LambdaService, function: Any) -> None:
    name = function("echo", timeout=900, MemorySize=512)
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
    assert 800_000 < context["remaining_ms"] <= 900_000
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
    wait_until(lambda: any(line.startswith("echo ") for line in service.logs("notified")), "the notification")
