"""HTTP responses: a function's payload interpreted as API Gateway does, and API Gateway's own error responses."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from werkzeug.datastructures import Headers
from werkzeug.wrappers import Response

REQUEST_LIMIT = 10 * 1024 * 1024  # API Gateway's, on a request's body
LAMBDA_LIMIT = 6 * 1024 * 1024  # Lambda's, on an event and on a response

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    413: "Request Entity Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class MalformedResponseError(ValueError):
    """The function's payload is not a valid response. The caller gets 500 without a reason."""


def error_response(status: int, **headers: str) -> Response:
    """API Gateway's own error: a JSON object with one message."""
    response = Response(json.dumps({"message": _REASONS[status]}, separators=(",", ":")), status)
    response.headers["Content-Type"] = "application/json"
    for name, value in headers.items():
        response.headers[name.replace("_", "-")] = value
    return response


def parse_response(payload: bytes) -> Response:
    """The HTTP response in a function's payload. Raises MalformedResponseError.

    Without a statusCode the whole payload is the body of a 200. Payload format 2.0 has no multiValueHeaders: they are
    ignored, and only `cookies` can repeat a header.
    """
    if len(payload) > LAMBDA_LIMIT:
        raise MalformedResponseError(f"{len(payload)} bytes exceed the limit of a function's response ({LAMBDA_LIMIT})")
    try:
        document = json.loads(payload or b"null")
    except ValueError as error:
        raise MalformedResponseError(f"not JSON: {error}") from error
    if not isinstance(document, dict) or "statusCode" not in document:
        body = document if isinstance(document, str) else payload.decode()
        return Response(body, 200, Headers([("Content-Type", "application/json")]))
    headers = _headers(document.get("headers"))
    for cookie in _strings(document.get("cookies"), "cookies"):
        headers.add("Set-Cookie", cookie)
    headers.setdefault("Content-Type", "text/plain;charset=UTF-8" if document.get("body") else "application/json")
    return Response(_body(document), _status(document["statusCode"]), headers)


def _status(value: Any) -> int:
    text = str(value)
    if not text.isdecimal() or not 100 <= int(text) <= 599:
        raise MalformedResponseError(f"statusCode {value!r} is not an HTTP status")
    return int(text)


def _headers(fields: Any) -> Headers:
    if fields is not None and not isinstance(fields, dict):
        raise MalformedResponseError(f"headers is {type(fields).__name__}, not an object")
    headers = Headers()
    for name, value in (fields or {}).items():
        if isinstance(value, (dict, list)) or value is None:
            raise MalformedResponseError(f"header {name} is {type(value).__name__}, not a string")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        headers[name] = text  # werkzeug rejects a line break
    for name in ("Content-Length", "Transfer-Encoding", "Connection"):
        headers.remove(name)  # the listener sets these
    return headers


def _strings(value: Any, name: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise MalformedResponseError(f"{name} is not a list of strings")
    return value


def _body(document: dict[str, Any]) -> bytes:
    body = document.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise MalformedResponseError(f"body is {type(body).__name__}, not a string: encode JSON in the function")
    if not document.get("isBase64Encoded"):
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise MalformedResponseError(f"body is not base64: {error}") from error
