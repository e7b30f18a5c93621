"""An HTTP API on the gateway, made through the API that CloudFormation uses too, with functions that are callables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

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
        result = self.behave(event)
        return result if isinstance(result, Answer) else Answer(json.dumps(result).encode())

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
