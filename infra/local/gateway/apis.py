"""The deployed HTTP APIs with their routes, integrations, authorizers and stages, read from moto."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from infra.local.endpoint import Endpoint
from infra.local.requests import RequestLog
from infra.local.writes import WriteWatch


@dataclass(frozen=True)
class Integration:
    kind: str
    uri: str
    payload_format: str
    timeout_seconds: float


@dataclass(frozen=True)
class Route:
    key: str
    authorization: str  # NONE, JWT, AWS_IAM, CUSTOM
    scopes: tuple[str, ...]
    authorizer: dict[str, Any] | None
    integration: Integration | None


@dataclass(frozen=True)
class Api:
    id: str
    name: str
    host: str
    cors: dict[str, Any] | None
    routes: tuple[Route, ...]
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)


class DeployedApis:
    """The HTTP APIs by id. Reads them, with about ten requests, only after a request that may have changed them."""

    def __init__(self, endpoint: Endpoint, log: RequestLog) -> None:
        self._endpoint = endpoint
        self._watch = WriteWatch(log, "apigateway")
        self._lock = threading.Lock()
        self._apis: dict[str, Api] | None = None

    def current(self) -> dict[str, Api]:
        with self._lock:
            if self._watch.changed() or self._apis is None:
                self._apis = self._read()
            return self._apis

    def forget(self) -> None:
        """Makes the next call of `current` read again, after a change to moto's state that bypassed the API."""
        with self._lock:
            self._apis = None

    def _read(self) -> dict[str, Api]:
        client = self._endpoint.client("apigatewayv2")
        http_apis = [api for api in client.get_apis()["Items"] if api["ProtocolType"] == "HTTP"]
        return {api["ApiId"]: _api(client, api) for api in http_apis}


def _api(client: Any, api: dict[str, Any]) -> Api:
    api_id = api["ApiId"]
    integrations = {
        item["IntegrationId"]: _integration(item) for item in client.get_integrations(ApiId=api_id)["Items"]
    }
    deployed_routes = client.get_routes(ApiId=api_id)["Items"]
    used = {route["AuthorizerId"] for route in deployed_routes if route.get("AuthorizerId")}
    # One by one: moto's GetAuthorizers returns none.
    authorizers = {id_: client.get_authorizer(ApiId=api_id, AuthorizerId=id_) for id_ in used}
    routes = tuple(
        Route(
            key=route["RouteKey"],
            authorization=route.get("AuthorizationType") or "NONE",
            scopes=tuple(route.get("AuthorizationScopes") or ()),
            authorizer=authorizers.get(route.get("AuthorizerId", "")),
            integration=integrations.get((route.get("Target") or "").removeprefix("integrations/")),
        )
        for route in deployed_routes
    )
    stages = {stage["StageName"]: stage for stage in client.get_stages(ApiId=api_id)["Items"]}
    host = api["ApiEndpoint"].partition("://")[2]
    return Api(api_id, api["Name"], host, api.get("CorsConfiguration"), routes, stages)


def _integration(integration: dict[str, Any]) -> Integration:
    return Integration(
        kind=integration["IntegrationType"],
        uri=integration.get("IntegrationUri", ""),
        payload_format=integration.get("PayloadFormatVersion") or "1.0",
        timeout_seconds=integration.get("TimeoutInMillis", 30_000) / 1000,
    )
