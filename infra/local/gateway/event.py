"""The event that a function receives, in payload format 2.0. A field without a value is absent."""

from __future__ import annotations

import base64
import uuid
from collections import defaultdict
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from werkzeug.wrappers import Request

from infra.local.endpoint import ACCOUNT
from infra.local.gateway.apis import Api
from infra.local.gateway.routing import Match

_TEXT = ("text/", "application/json", "application/javascript", "application/xml")
_TEXT_SUFFIXES = ("+json", "+xml")


def build_event(
    request: Request,
    api: Api,
    stage: dict[str, Any],
    match: Match,
    path: str,
    authorizer: dict[str, Any] | None,
    now: datetime,
) -> dict[str, Any]:
    """`path` is the path within the API, with the stage's name, percent-encoded."""
    query = request.query_string.decode("latin-1")
    headers = _headers(request)
    cookies = headers.pop("cookie", None)
    body, is_base64 = _body(request)
    raw_path = unquote(path)
    context: dict[str, Any] = {
        "accountId": ACCOUNT,
        "apiId": api.id,
        "domainName": api.host,
        "domainPrefix": api.id,
        "http": {
            "method": request.method,
            "path": raw_path,
            "protocol": request.environ.get("SERVER_PROTOCOL", "HTTP/1.1"),
            "sourceIp": request.remote_addr or "127.0.0.1",
            "userAgent": headers.get("user-agent", ""),
        },
        "requestId": uuid.uuid4().hex[:15] + "=",
        "routeKey": match.route.key,
        "stage": stage["StageName"],
        "time": now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
        "timeEpoch": int(now.timestamp() * 1000),
    }
    if authorizer:
        context["authorizer"] = authorizer
    event = {
        "version": "2.0",
        "routeKey": match.route.key,
        "rawPath": raw_path,
        "rawQueryString": query,
        "cookies": [cookie.strip() for cookie in cookies.split(";")] if cookies else None,
        "headers": headers,
        "queryStringParameters": _query_parameters(query) or None,
        "requestContext": context,
        "pathParameters": match.parameters or None,
        "stageVariables": stage.get("StageVariables") or None,
        "body": body,
        "isBase64Encoded": is_base64,
    }
    return {name: value for name, value in event.items() if value is not None}


def _headers(request: Request) -> dict[str, str]:
    """The headers with lower-case names, and those that API Gateway adds. The listener has joined repeated ones."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    port = headers.get("host", "").partition(":")[2]
    forwarded = headers.get("x-forwarded-for")
    source = request.remote_addr or "127.0.0.1"
    headers["x-forwarded-for"] = f"{forwarded}, {source}" if forwarded else source
    headers.setdefault("x-forwarded-port", port or "80")
    headers.setdefault("x-forwarded-proto", "http")
    headers.setdefault("x-amzn-trace-id", f"Root=1-{uuid.uuid4().hex[:8]}-{uuid.uuid4().hex[:24]}")
    return headers


def _query_parameters(query: str) -> dict[str, str]:
    values: dict[str, list[str]] = defaultdict(list)
    for name, value in parse_qsl(query, keep_blank_values=True):
        values[name].append(value)
    return {name: ",".join(repeated) for name, repeated in values.items()}


def _body(request: Request) -> tuple[str | None, bool]:
    """The body as text if the content type is textual, else as base64. API Gateway treats form data as binary."""
    data = request.get_data()
    if not data:
        return None, False
    kind = request.mimetype
    if not kind or kind.startswith(_TEXT) or kind.endswith(_TEXT_SUFFIXES):
        try:
            return data.decode(), False
        except UnicodeDecodeError:
            pass  # not UTF-8, despite its content type
    return base64.b64encode(data).decode(), True
