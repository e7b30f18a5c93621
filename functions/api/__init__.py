"""The API's function: API Gateway's HTTP events in (payload 2.0), answers out. Each module serves a few routes.

What comes through `$default` reached no route of the API: it has no identity and is never served, only told what it
missed.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.exceptions import (
    RequestUnsupportedContentType,
    RequestValidationError,
)
from pydantic import ValidationError

from catalog.access.callers import caller_of
from catalog.errors import Denied, Invalid
from catalog.logs import correlation
from functions.api import changes, commits, formats, ingest, queries, service, tables, timeline
from functions.api.app import app, asked, lake
from functions.api.asked import Asked
from functions.api.problems import Refusal, failed, invalid, refused

__all__ = ["changes", "commits", "formats", "handler", "ingest", "queries", "service", "tables", "timeline"]

log = logging.getLogger(__name__)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One request. Whatever happens, the answer is an answer: a defect is a 500 with the request's id."""
    began = time.perf_counter()
    request = Asked.of(event)
    lake()  # settings first: what is logged below is logged as they say
    with correlation(request.correlation_id):
        found = _serve(request, event, context)
        found["headers"] |= {"X-Request-Id": request.request_id, "X-Correlation-Id": request.correlation_id}
        if request.method == "HEAD":
            found["body"] = ""
        log.info(
            "request served",
            extra={
                "route": request.route_key,
                "path": request.path,
                "status": found["statusCode"],
                "subject": request.caller.subject if request.caller else None,
                "request_id": request.request_id,
                "duration_ms": round((time.perf_counter() - began) * 1000, 1),
            },
        )
    return found


def _serve(request: Asked, event: dict[str, Any], context: Any) -> dict[str, Any]:
    try:
        _admit(request)
    except Refusal as refusal:
        return _built(refused(refusal, request.request_id))
    app.context["asked"] = request
    resolved: dict[str, Any] = app.resolve(event, context)
    resolved["headers"] = dict(resolved.get("headers") or {})
    return resolved


def _admit(request: Asked) -> None:
    """No further without a route, an identity where the route asks for one, and a body of a size that is taken."""
    route, methods = app.find(request.method, request.path)
    if not methods:
        raise Refusal(404, "not_found", f"there is nothing at {request.path!r}: see GET /openapi.json")
    if route is None or request.route_key == "$default":
        allow = {"Allow": ", ".join(methods)}
        if route is not None:
            raise Refusal(404, "not_found", f"there is nothing at {request.path!r}: see GET /openapi.json")
        raise Refusal(405, "method_not_allowed", f"{request.path!r} takes {allow['Allow']}", allow)
    if not route.public:
        try:
            request.caller = caller_of(request.authorizer, lake().settings.principals)
        except Denied as error:
            raise Refusal(401, "unauthenticated", error.message, {"WWW-Authenticate": "Bearer"}) from None
    _ = request.body


def _built(response: Response[str]) -> dict[str, Any]:
    headers = {name: str(value) for name, value in response.headers.items()}
    return {"statusCode": response.status_code, "headers": headers, "body": response.body, "isBase64Encoded": False}


@app.on(RequestValidationError)
def _invalid(error: RequestValidationError) -> Response[str]:
    return invalid(error.errors(), asked().request_id)


@app.on(ValidationError)
def _invalid_rows(error: ValidationError) -> Response[str]:
    return invalid([{**one, "loc": ("body", *one["loc"])} for one in error.errors()], asked().request_id)


@app.on(RequestUnsupportedContentType)
def _unsupported(error: RequestUnsupportedContentType) -> Response[str]:
    refusal = Refusal(415, "unsupported_media_type", "the body is read as application/json only")
    return refused(refusal, asked().request_id)


@app.on(Refusal)
def _refused(error: Refusal) -> Response[str]:
    return refused(error, asked().request_id)


@app.on(UnicodeDecodeError, RecursionError)
def _unreadable(error: Exception) -> Response[str]:
    """Raised where a body is parsed: bytes that are no UTF-8, or brackets without end."""
    return failed(Invalid(f"the body cannot be read: {type(error).__name__}"), asked().request_id)


@app.on(Exception)
def _failed(error: Exception) -> Response[str]:
    return failed(error, asked().request_id)
