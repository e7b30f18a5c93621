"""The listener serves deployed HTTP APIs as API Gateway does: which route is chosen, and which event it makes."""

from __future__ import annotations

import base64

import httpx
import pytest

from infra.local.endpoint import ACCOUNT, REGION
from infra.local.gateway import Gateway
from infra.local.server import ApiServer
from tests.worlds.gateway import Deployment, Functions

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
