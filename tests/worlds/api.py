"""The API's function in this process, on a lake of its own, and a way for it to die at any of its requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from botocore.client import BaseClient

from catalog.lake import Lake
from functions.api import handler
from functions.api.app import idempotency_store, presigned_urls
from functions.api.app import lake as function_lake

CLAIMS = {"sub": "tester", "roles": ["admin"]}
When = Literal["before", "after"]


class Died(BaseException):
    """The process ended: no handler of errors sees it."""


class Answer:
    def __init__(self, response: dict[str, Any]) -> None:
        self.status, self.headers = int(response["statusCode"]), response["headers"]
        self.body = json.loads(response["body"]) if response.get("body") else None


class Function:
    """One caller's requests to a function that starts anew whenever it died."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.restart()

    def restart(self) -> None:
        for cached in (function_lake, idempotency_store, presigned_urls):
            cached.cache_clear()

    def __call__(self, method: str, path: str, body: Any = None, *, key: str | None = None, query: str = "") -> Answer:
        token = f"e30.{base64.urlsafe_b64encode(json.dumps(CLAIMS).encode()).decode().rstrip('=')}.signature"
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        headers |= {"idempotency-key": key} if key else {}
        event = {
            "version": "2.0",
            "routeKey": f"{method} {path}",
            "rawPath": path,
            "rawQueryString": query,
            "queryStringParameters": dict(part.split("=") for part in query.split("&") if part),
            "headers": headers,
            "body": None if body is None else json.dumps(body),
            "isBase64Encoded": False,
            "requestContext": {
                "http": {"method": method, "path": path},
                "requestId": "r",
                "stage": "$default",
                "authorizer": {"jwt": {"claims": {**CLAIMS, "roles": "[admin]"}}},  # as API Gateway writes a list
            },
        }
        return Answer(handler(event, None))

    @contextmanager
    def dying(self, step: int, when: When) -> Iterator[list[str]]:
        """It dies before or after its request of that number; the names of all it made, up to then."""
        made: list[str] = []
        send = BaseClient._make_api_call

        def call(client: BaseClient, operation: str, arguments: Any) -> Any:
            if len(made) > step:
                raise Died
            made.append(operation)
            if len(made) <= step:
                return send(client, operation, arguments)
            if when == "after":
                send(client, operation, arguments)
            raise Died

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BaseClient, "_make_api_call", call)
            yield made
        self.restart()
