"""The HTTP listener serves deployed HTTP APIs as API Gateway does: routes, events, answers, CORS, limits.

Who may call is in test_gateway_access.py.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from infra.local.clock import ManualClock
from infra.local.endpoint import ACCOUNT, REGION
from infra.local.gateway import Gateway
from infra.local.server import ApiServer


@dataclass
class Answer:
    payload: bytes
    function_error: str | None = None


class Functions:
    """Lambda, played by Python callables; it remembers every event."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.behave: Callable[[dict[str, Any]], Any] = lambda event: {
            "statusCode": 200,
            "body": event["routeKey"],
        }

    def invoke(self, function_name: str, payload: bytes, /) -> Answer:
        event = json.loads(payload)
        self.events.append((function_name, event))
        found = self.behave(event)
        return found if isinstance(found, Answer) else Answer(json.dumps(found).encode())

    @property
    def event(self) -> dict[str, Any]:
        return self.events[-1][1]


class Deployment:
    """One HTTP API on a gateway, made through the API that CloudFormation uses too."""

    def __init__(self, server: ApiServer, gateway: Gateway, **api: Any) -> None:
        self.client = server.endpoint.client("apigatewayv2")
        self.gateway = gateway
        self.id = self.client.create_api(Name="lake", ProtocolType="HTTP", **api)["ApiId"]
        self.client.create_stage(ApiId=self.id, StageName="$default", AutoDeploy=True)

    def route(self, key: str, function: str = "query", timeout: int = 30_000, **route: Any) -> None:
        integration = self.client.create_integration(
            ApiId=self.id,
            IntegrationType="AWS_PROXY",
            IntegrationUri=f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{function}",
            PayloadFormatVersion="2.0",
            TimeoutInMillis=timeout,
        )["IntegrationId"]
        self.client.create_route(ApiId=self.id, RouteKey=key, Target=f"integrations/{integration}", **route)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return httpx.request(method, self.gateway.url_of(self.id) + path, timeout=60, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)


@pytest.fixture
def functions() -> Functions:
    return Functions()


@pytest.fixture
def gateway(server: ApiServer, functions: Functions) -> Iterator[Gateway]:
    gateway = Gateway(server.endpoint, server.log, functions.invoke, ManualClock())
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture
def api(server: ApiServer, gateway: Gateway) -> Iterator[Deployment]:
    deployed = Deployment(server, gateway)
    yield deployed
    deployed.client.delete_api(ApiId=deployed.id)


ROUTES = [
    "GET /tables",
    "GET /tables/{name}",
    "ANY /tables/{name}",
    "GET /tables/{name}/rows",
    "GET /tables/new",
]
ROUTES += ["GET /tables/{rest+}", "POST /{all+}", "ANY /{all+}"]


@pytest.mark.parametrize(
    ("method", "path", "key", "parameters"),
    [
        ("GET", "/tables", "GET /tables", None),
        ("GET", "/tables/new", "GET /tables/new", None),
        ("GET", "/tables/notes", "GET /tables/{name}", {"name": "notes"}),
        ("GET", "/tables/a%2Fb%20c", "GET /tables/{name}", {"name": "a/b c"}),
        ("PUT", "/tables/notes", "ANY /tables/{name}", {"name": "notes"}),
        ("GET", "/tables/notes/rows", "GET /tables/{name}/rows", {"name": "notes"}),
        ("GET", "/tables/notes/rows/1", "GET /tables/{rest+}", {"rest": "notes/rows/1"}),
        ("POST", "/elsewhere", "POST /{all+}", {"all": "elsewhere"}),
        ("POST", "/tables/notes/rows", "POST /{all+}", {"all": "tables/notes/rows"}),
        ("PATCH", "/else/where", "ANY /{all+}", {"all": "else/where"}),
        ("GET", "/", "$default", None),
    ],
)
def test_the_most_specific_route_wins(
    api: Deployment, functions: Functions, method: str, path: str, key: str, parameters: dict[str, str] | None
) -> None:
    for route in [*reversed(ROUTES), "$default"]:
        api.route(route)
    assert api.request(method, path).text == key
    assert functions.event.get("pathParameters") == parameters


@pytest.mark.parametrize(("method", "path"), [("GET", "/missing"), ("POST", "/tables"), ("GET", "/tables/")])
def test_without_a_route_it_is_not_found_also_for_another_method(api: Deployment, method: str, path: str) -> None:
    api.route("GET /tables")
    answer = api.request(method, path)
    assert (answer.status_code, answer.json()) == (404, {"message": "Not Found"})


def test_the_event_is_payload_format_2_to_the_field(api: Deployment, functions: Functions) -> None:
    api.client.delete_stage(ApiId=api.id, StageName="$default")
    api.client.create_stage(ApiId=api.id, StageName="$default", StageVariables={"tier": "gold"})
    api.route("POST /tables/{name}/rows", function="ingest")
    answer = api.request(
        "POST",
        "/tables/my%20notes/rows?tag=a&tag=b%20c&empty=&q=1%2C2",
        content='{"title": "é"}'.encode(),
        headers=[
            ("Content-Type", "application/json"),
            ("X-Twice", "one"),
            ("x-twice", "two"),
            ("Cookie", "a=1; b=2"),
            ("User-Agent", "strandline-test"),
        ],
    )
    assert answer.status_code == 200
    [(function, event)] = functions.events
    assert function == "ingest"
    headers, context = event.pop("headers"), event.pop("requestContext")
    assert event == {
        "version": "2.0",
        "routeKey": "POST /tables/{name}/rows",
        "rawPath": "/tables/my notes/rows",
        "rawQueryString": "tag=a&tag=b%20c&empty=&q=1%2C2",
        "cookies": ["a=1", "b=2"],
        "queryStringParameters": {"tag": "a,b c", "empty": "", "q": "1,2"},
        "pathParameters": {"name": "my notes"},
        "stageVariables": {"tier": "gold"},
        "body": '{"title": "é"}',
        "isBase64Encoded": False,
    }
    assert headers["x-twice"] == "one,two"
    assert headers["content-type"] == "application/json"
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert "cookie" not in headers and all(name == name.lower() for name in headers)
    assert answer.headers["apigw-requestid"] == context.pop("requestId")
    assert context == {
        "accountId": ACCOUNT,
        "apiId": api.id,
        "domainName": f"{api.id}.execute-api.{REGION}.amazonaws.com",
        "domainPrefix": api.id,
        "http": {
            "method": "POST",
            "path": "/tables/my notes/rows",
            "protocol": "HTTP/1.1",
            "sourceIp": "127.0.0.1",
            "userAgent": "strandline-test",
        },
        "routeKey": "POST /tables/{name}/rows",
        "stage": "$default",
        "time": "01/Jan/2026:00:00:00 +0000",
        "timeEpoch": 1767225600000,
    }


def test_what_a_request_does_not_have_is_absent_from_the_event(api: Deployment, functions: Functions) -> None:
    api.route("GET /tables")
    api.get("/tables")
    absent = {"cookies", "queryStringParameters", "pathParameters", "stageVariables", "body"}
    assert not absent & functions.event.keys()
    assert functions.event["rawQueryString"] == ""
    assert "authorizer" not in functions.event["requestContext"]


@pytest.mark.parametrize(
    ("kind", "body", "is_base64"),
    [
        ("application/json", b"{}", False),
        ("text/markdown; charset=utf-8", b"# a", False),
        ("application/vnd.api+json", b"{}", False),
        ("application/octet-stream", b"abc", True),
        ("application/x-www-form-urlencoded", b"a=1", True),
        ("application/json", b"\xff\xfe", True),
    ],
)
def test_bodies_that_are_not_text_come_as_base64(
    api: Deployment, functions: Functions, kind: str, body: bytes, is_base64: bool
) -> None:
    api.route("POST /rows")
    api.request("POST", "/rows", content=body, headers={"Content-Type": kind})
    assert functions.event["isBase64Encoded"] is is_base64
    given = functions.event["body"]
    assert (base64.b64decode(given) if is_base64 else given.encode()) == body


def test_a_body_sent_in_chunks_arrives_whole(api: Deployment, functions: Functions) -> None:
    api.route("POST /rows")
    api.request("POST", "/rows", content=iter([b'{"a":', b"1}"]), headers={"Content-Type": "application/json"})
    assert functions.event["body"] == '{"a":1}'


def test_a_named_stage_is_the_first_part_of_the_path(api: Deployment, functions: Functions) -> None:
    api.client.create_stage(ApiId=api.id, StageName="blue", StageVariables={"colour": "blue"})
    api.route("GET /tables")
    assert api.get("/blue/tables").status_code == 200
    assert functions.event["rawPath"] == "/blue/tables"
    assert functions.event["requestContext"]["stage"] == "blue"
    assert functions.event["stageVariables"] == {"colour": "blue"}


def test_an_api_without_a_stage_is_not_there(api: Deployment) -> None:
    api.route("GET /tables")
    api.client.delete_stage(ApiId=api.id, StageName="$default")
    assert api.get("/tables").status_code == 404


def test_a_change_of_the_deployment_is_served_at_once(api: Deployment) -> None:
    assert api.get("/tables").status_code == 404
    api.route("GET /tables")
    assert api.get("/tables").status_code == 200
    [route] = api.client.get_routes(ApiId=api.id)["Items"]
    api.client.delete_route(ApiId=api.id, RouteId=route["RouteId"])
    assert api.get("/tables").status_code == 404


def test_reading_what_is_deployed_costs_nothing_while_it_does_not_change(server: ApiServer, api: Deployment) -> None:
    api.route("GET /tables")
    api.get("/tables")
    mark = server.log.mark()
    api.get("/tables")
    assert server.log.since(mark) == []


def test_the_only_api_answers_at_the_root_and_each_at_its_host(
    server: ApiServer, gateway: Gateway, api: Deployment
) -> None:
    api.route("GET /tables")
    assert httpx.get(f"{gateway.url}/tables").status_code == 200
    other = Deployment(server, gateway)
    try:
        assert httpx.get(f"{gateway.url}/tables").status_code == 404
        host = {"Host": f"{api.id}.execute-api.{REGION}.amazonaws.com"}
        assert httpx.get(f"{gateway.url}/tables", headers=host).status_code == 200
    finally:
        other.client.delete_api(ApiId=other.id)


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


CORS = {
    "AllowOrigins": ["https://lake.example", "http://*"],
    "AllowMethods": ["GET", "POST"],
    "AllowHeaders": ["authorization"],
    "ExposeHeaders": ["x-proof"],
    "MaxAge": 300,
    "AllowCredentials": True,
}


@pytest.fixture
def shared(server: ApiServer, gateway: Gateway) -> Iterator[Deployment]:
    deployed = Deployment(server, gateway, CorsConfiguration=CORS)
    deployed.route("GET /tables")
    yield deployed
    deployed.client.delete_api(ApiId=deployed.id)


def access_headers(answer: httpx.Response) -> dict[str, str]:
    found = {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}
    return {re.sub("^access-control-", "", name): value for name, value in found.items()}


def preflight(api: Deployment, origin: str) -> httpx.Response:
    return api.request("OPTIONS", "/tables", headers={"Origin": origin, "Access-Control-Request-Method": "GET"})


@pytest.mark.parametrize("origin", ["https://lake.example", "http://anywhere:8080"])
def test_a_preflight_is_answered_without_the_function(shared: Deployment, functions: Functions, origin: str) -> None:
    answer = preflight(shared, origin)
    assert answer.status_code == 204
    assert access_headers(answer) == {
        "allow-origin": origin,
        "allow-credentials": "true",
        "allow-methods": "GET,POST",
        "allow-headers": "authorization",
        "max-age": "300",
    }
    assert functions.events == []


def test_a_strange_origin_is_allowed_nothing(shared: Deployment) -> None:
    assert preflight(shared, "https://evil.example").status_code == 204
    assert access_headers(preflight(shared, "https://evil.example")) == {}
    assert access_headers(shared.get("/tables", headers={"Origin": "https://evil.example"})) == {}


def test_the_apis_cors_overrides_what_the_function_says(shared: Deployment, functions: Functions) -> None:
    said = {"Access-Control-Allow-Origin": "*", "access-control-allow-methods": "DELETE"}
    functions.behave = lambda event: {"statusCode": 200, "headers": said}
    answer = shared.get("/tables", headers={"Origin": "https://lake.example"})
    assert access_headers(answer) == {
        "allow-origin": "https://lake.example",
        "allow-credentials": "true",
        "expose-headers": "x-proof",
    }
    assert access_headers(shared.get("/tables", headers={"Origin": "https://evil.example"})) == {}


def test_without_cors_on_the_api_options_is_a_method_like_any_other(api: Deployment) -> None:
    api.route("GET /tables")
    assert preflight(api, "https://lake.example").status_code == 404
