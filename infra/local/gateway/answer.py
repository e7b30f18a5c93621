"""What the caller gets: a function's payload read as API Gateway reads it, and API Gateway's own refusals."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from werkzeug.datastructures import Headers
from werkzeug.wrappers import Response

REQUEST_LIMIT = 10 * 1024 * 1024  # API Gateway's, on a request's body
LAMBDA_LIMIT = 6 * 1024 * 1024  # Lambda's, on an event and on an answer

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


class MalformedAnswerError(ValueError):
    """The function answered with something that is not a response. The caller sees 500 and no reason."""


def refusal(status: int, **headers: str) -> Response:
    """API Gateway's own answer: a JSON object with one message."""
    response = Response(json.dumps({"message": _REASONS[status]}, separators=(",", ":")), status)
    response.headers["Content-Type"] = "application/json"
    for name, value in headers.items():
        response.headers[name.replace("_", "-")] = value
    return response


def read_answer(payload: bytes) -> Response:
    """The response that a function's payload stands for. Raises MalformedAnswerError.

    Without a statusCode the whole payload is the body of a 200; format 2.0 has no multiValueHeaders, so they
    are ignored, and only `cookies` can repeat a header.
    """
    if len(payload) > LAMBDA_LIMIT:
        raise MalformedAnswerError(f"{len(payload)} bytes are more than a function may answer ({LAMBDA_LIMIT})")
    try:
        answer = json.loads(payload or b"null")
    except ValueError as error:
        raise MalformedAnswerError(f"not JSON: {error}") from error
    if not isinstance(answer, dict) or "statusCode" not in answer:
        body = answer if isinstance(answer, str) else payload.decode()
        return Response(body, 200, Headers([("Content-Type", "application/json")]))
    headers = _headers(answer.get("headers"))
    for cookie in _list_of_text(answer.get("cookies"), "cookies"):
        headers.add("Set-Cookie", cookie)
    headers.setdefault("Content-Type", "text/plain;charset=UTF-8" if answer.get("body") else "application/json")
    return Response(_body(answer), _status(answer["statusCode"]), headers)


def _status(given: Any) -> int:
    text = str(given)
    if not text.isdecimal() or not 100 <= int(text) <= 599:
        raise MalformedAnswerError(f"statusCode {given!r} is not an HTTP status")
    return int(text)


def _headers(given: Any) -> Headers:
    if given is not None and not isinstance(given, dict):
        raise MalformedAnswerError(f"headers are {type(given).__name__}, not an object")
    headers = Headers()
    for name, value in (given or {}).items():
        if isinstance(value, (dict, list)) or value is None:
            raise MalformedAnswerError(f"the header {name} is {type(value).__name__}, not text")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        headers[name] = text  # a line break in it is refused here, by werkzeug
    for length in ("Content-Length", "Transfer-Encoding", "Connection"):
        headers.remove(length)  # the listener knows better
    return headers


def _list_of_text(given: Any, name: str) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise MalformedAnswerError(f"{name} is not a list of texts")
    return given


def _body(answer: dict[str, Any]) -> bytes:
    body = answer.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise MalformedAnswerError(f"the body is {type(body).__name__}, not text: a function encodes its JSON itself")
    if not answer.get("isBase64Encoded"):
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise MalformedAnswerError(f"the body is not base64: {error}") from error
