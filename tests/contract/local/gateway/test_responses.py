"""What a function returns becomes an HTTP response as API Gateway makes it: errors, time-outs and limits too."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

from tests.worlds.gateway import Answer, Deployment, Functions


@pytest.mark.parametrize(
    ("payload", "status", "kind", "body"),
    [
        ({"statusCode": 201, "body": "made"}, 201, "text/plain;charset=UTF-8", "made"),
        ({"statusCode": "202"}, 202, "application/json", ""),
        ({"statusCode": 200, "headers": {"content-type": "text/csv"}, "body": "a,b"}, 200, "text/csv", "a,b"),
        ({"statusCode": 200, "isBase64Encoded": True, "body": "YQ=="}, 200, "text/plain;charset=UTF-8", "a"),
        ({"table": "notes"}, 200, "application/json", '{"table": "notes"}'),
        ("just text", 200, "application/json", "just text"),
        ([1, 2], 200, "application/json", "[1, 2]"),
        (None, 200, "application/json", "null"),
    ],
)
def test_a_functions_payload_becomes_the_response(
    api: Deployment, functions: Functions, payload: Any, status: int, kind: str, body: str
) -> None:
    api.route("GET /tables")
    functions.behave = lambda event: payload
    answer = api.get("/tables")
    assert (answer.status_code, answer.headers["content-type"], answer.text) == (status, kind, body)


def test_cookies_repeat_a_header_and_multi_value_headers_do_not(api: Deployment, functions: Functions) -> None:
    api.route("GET /tables")
    functions.behave = lambda event: {
        "statusCode": 200,
        "headers": {"X-Count": 3, "X-Last": True},
        "multiValueHeaders": {"X-Many": ["1", "2"]},
        "cookies": ["a=1; Secure", "b=2"],
        "body": "",
    }
    answer = api.get("/tables")
    assert answer.headers.get_list("set-cookie") == ["a=1; Secure", "b=2"]
    assert (answer.headers["x-count"], answer.headers["x-last"]) == ("3", "true")
    assert "x-many" not in answer.headers


@pytest.mark.parametrize(
    "payload",
    [
        Answer(b'{"errorMessage": "secret"}', function_error="Unhandled"),
        Answer(b"not JSON"),
        Answer(json.dumps({"statusCode": 200, "body": "x" * 6 * 1024 * 1024}).encode()),
        {"statusCode": 200, "body": {"not": "text"}},
        {"statusCode": "fine"},
        {"statusCode": 42},
        {"statusCode": True},
        {"statusCode": 200, "headers": ["no"]},
        {"statusCode": 200, "headers": {"a": ["no"]}},
        {"statusCode": 200, "headers": {"a": "x\r\nInjected: yes"}},
        {"statusCode": 200, "cookies": "a=1"},
        {"statusCode": 200, "isBase64Encoded": True, "body": "***"},
    ],
)
def test_a_failed_function_or_a_bad_answer_is_a_500_that_tells_nothing(
    api: Deployment, functions: Functions, payload: Any
) -> None:
    api.route("GET /tables")
    functions.behave = lambda event: payload
    answer = api.get("/tables")
    assert (answer.status_code, answer.json()) == (500, {"message": "Internal Server Error"})


class ThrottledError(Exception):
    code = "TooManyRequestsException"


def test_a_function_without_a_free_worker_is_a_503(api: Deployment, functions: Functions) -> None:
    def behave(event: dict[str, Any]) -> Any:
        raise ThrottledError

    functions.behave = behave
    api.route("GET /tables")
    answer = api.get("/tables")
    assert (answer.status_code, answer.json()) == (503, {"message": "Service Unavailable"})


def test_a_function_slower_than_the_integration_allows_is_a_504(api: Deployment, functions: Functions) -> None:
    release = threading.Event()
    functions.behave = lambda event: release.wait(10)
    api.route("GET /slow", timeout=50)
    try:
        answer = api.get("/slow")
    finally:
        release.set()
    assert (answer.status_code, answer.json()) == (504, {"message": "Gateway Timeout"})


def test_one_slow_function_does_not_hold_up_another(api: Deployment, functions: Functions) -> None:
    api.route("GET /slow")
    api.route("GET /fast")
    entered, release = threading.Event(), threading.Event()

    def behave(event: dict[str, Any]) -> str:
        if event["rawPath"] == "/slow":
            entered.set()
            release.wait(10)
        return "done"

    functions.behave = behave
    slow = threading.Thread(target=api.get, args=("/slow",))
    slow.start()
    assert entered.wait(5)
    assert api.get("/fast").text == "done"
    release.set()
    slow.join(5)


@pytest.mark.parametrize("size", [10 * 1024 * 1024 + 1, 7 * 1024 * 1024], ids=["over 10 MB", "over Lambda's 6 MB"])
def test_a_body_too_large_is_a_413_and_the_connection_lives_on(
    api: Deployment, functions: Functions, size: int
) -> None:
    api.route("POST /rows")
    with httpx.Client(base_url=api.gateway.url_of(api.id)) as client:
        large = client.post("/rows", content=b"x" * size, headers={"Content-Type": "text/plain"})
        assert (large.status_code, large.json()) == (413, {"message": "Request Entity Too Large"})
        assert functions.events == []
        assert client.post("/rows", content=b"x").status_code == 200


def test_a_stages_throttle_is_a_429(api: Deployment) -> None:
    api.route("GET /tables")
    limits = {"ThrottlingBurstLimit": 2, "ThrottlingRateLimit": 0.001}
    api.client.create_stage(ApiId=api.id, StageName="tight", DefaultRouteSettings=limits)
    assert [api.get("/tight/tables").status_code for _ in range(3)] == [200, 200, 429]
    assert api.get("/tight/tables").json() == {"message": "Too Many Requests"}
    assert api.get("/tables").status_code == 200
