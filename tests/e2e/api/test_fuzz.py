"""The API against its own OpenAPI document, over loopback: whatever is sent, no 5xx and no undocumented answer."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS

from catalog.access.routes import ROUTES, Route
from infra.local.cloud import EmbeddedCloud

TABLE = "bronze.fuzzed"
EXAMPLES = 14
WANTED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


class World:
    def __init__(self, cloud: EmbeddedCloud) -> None:
        self.url = cloud.addresses()["api"]
        self.headers = {"Authorization": f"Bearer {cloud.token('admin')}"}
        self.session = requests.Session()
        document = httpx.get(f"{self.url}/openapi.json", timeout=60).json()
        self.schema: Any = schemathesis.openapi.from_dict(document)
        body = {"name": TABLE, "columns": {"station": "string", "metres": "double"}, "key": ["station"]}
        made = httpx.post(f"{self.url}/tables", json=body, headers=self.headers, timeout=60)
        assert made.status_code == 201, made.text

    def operation(self, route: Route) -> Any:
        return self.schema[route.path.replace("+}", "}")][route.method]

    def call(self, case: Case, method: str | None = None) -> Any:
        return case.call(base_url=self.url, session=self.session, headers=self.headers)


@pytest.fixture(scope="module")
def world(cloud: EmbeddedCloud) -> World:
    return World(cloud)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key)
def test_every_answer_is_a_documented_one(world: World, route: Route) -> None:
    operation = world.operation(route)
    cases = [operation.as_strategy(mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)]
    if "{t}" in route.path and route.method != "DELETE":
        cases.append(operation.as_strategy(GenerationMode.POSITIVE, path_parameters={"t": TABLE}))
    checks = CHECKS.get_by_names(WANTED)

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(cases))
    def check(case: Case) -> None:
        case.validate_response(world.call(case), checks=checks)

    check()


@pytest.mark.parametrize("path", sorted({route.path for route in ROUTES if "{" not in route.path}))
def test_a_method_nobody_serves_is_refused_with_those_somebody_does(world: World, path: str) -> None:
    # `/ingest/uploads` is also what `/ingest/{digest}` is asked with.
    served = {route.method for route in ROUTES if re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), path)}
    for method in sorted({"GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"} - served):
        answer = world.session.request(method, world.url + path, headers=world.headers)
        assert answer.status_code == 405 and served <= set(answer.headers["allow"].split(", ")), method
        assert json.loads(answer.text)["status"] == 405
