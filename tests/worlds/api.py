"""The API's function in this process, on a lake of its own, and a way for it to die at any of its requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import parse_qsl

import pytest
from botocore.client import BaseClient

from catalog.lake import Lake
from functions.api import handler
from functions.api.app import body_reader, idempotency_store, presigned_urls, usage_meter
from functions.api.app import lake as function_lake

CLAIMS = {"iss": "https://issuer.test", "sub": "tester", "roles": ["strandline:admin"]}
When = Literal["before", "after"]


class Died(BaseException):
    """The process ended: no handler of errors sees it."""


class Answer:
    def __init__(self, response: dict[str, Any]) -> None:
        self.status, self.headers = int(response["statusCode"]), response["headers"]
        body = response.get("body")
        self.body: Any = body
        if response.get("isBase64Encoded"):
            self.body = base64.b64decode(body)
        elif not str(self.headers.get("Content-Type")).startswith("text/csv"):
            self.body = json.loads(body or "null")


def _shown(value: Any) -> str:
    """As API Gateway writes texts and lists."""
    return f"[{' '.join(map(_shown, value))}]" if isinstance(value, list) else str(value)


class Function:
    """One caller's requests to a function that starts anew whenever it died."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.restart()

    def restart(self) -> None:
        body_reader().close()
        for cached in (function_lake, idempotency_store, presigned_urls, usage_meter):
            cached.cache_clear()

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        query: str = "",
        media_type: str = "application/json",
        accept: str | None = None,
        anonymous: bool = False,
        **claims: Any,
    ) -> Answer:
        """`body`: bytes as they are, anything else as JSON. `claims` add to, or replace, those of the token."""
        claims = {**CLAIMS, **claims}
        token = f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.signature"
        headers = {"content-type": media_type, "authorization": f"Bearer {token}"}
        headers |= {"idempotency-key": key} if key else {}
        headers |= {"accept": accept} if accept else {}
        text = base64.b64encode(body).decode() if isinstance(body, bytes) else json.dumps(body)
        event: dict[str, Any] = {
            "version": "2.0",
            "routeKey": f"{method} {path}",
            "rawPath": path,
            "rawQueryString": query,
            "queryStringParameters": dict(parse_qsl(query, keep_blank_values=True)),
            "headers": headers,
            "body": None if body is None else text,
            "isBase64Encoded": isinstance(body, bytes),
            "requestContext": {
                "http": {"method": method, "path": path},
                "requestId": "r",
                "stage": "$default",
                "authorizer": {"jwt": {"claims": {name: _shown(value) for name, value in claims.items()}}},
            },
        }
        if anonymous:
            del event["requestContext"]["authorizer"], headers["authorization"]
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
