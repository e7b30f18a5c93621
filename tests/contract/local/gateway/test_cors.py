"""CORS is answered by the API as it is configured, whatever the function says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from infra.local.gateway import Gateway
from infra.local.server import ApiServer
from tests.worlds.gateway import Deployment, Functions

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
    headers = {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}
    return {re.sub("^access-control-", "", name): value for name, value in headers.items()}


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
