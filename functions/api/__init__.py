"""The API's function: API Gateway HTTP events (payload 2.0) in, responses out. Each module handles a few routes.

A request through `$default` matched no route of the API Gateway, and has no identity: the response is 404, or 405 with
the path's methods.
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

from catalog import Denied, Invalid
from catalog.access import caller_of
from catalog.core.logs import correlation
from functions.api import (
    changes,
    commits,
    erasures,
    ingest,
    queries,
    row_formats,
    service,
    statements,
    tables,
    timeline,
)
from functions.api.app import app, current_request, lake, usage_meter
from functions.api.problems import Refusal, error_response, limit_refusal, refusal_response, validation_response
from functions.api.queries import QUERY_ROUTE
from functions.api.request import ApiRequest
from functions.api.statements import STATEMENTS_ROUTE

__all__ = [
    "changes",
    "commits",
    "erasures",
    "handler",
    "ingest",
    "queries",
    "row_formats",
    "service",
    "statements",
    "tables",
    "timeline",
]

log = logging.getLogger(__name__)

METERED_THERE = (QUERY_ROUTE, STATEMENTS_ROUTE)
"""Routes that count themselves against the caller's limits."""
PUBLIC = "public"
"""The function that serves the public routes only, with a role that can read no table."""


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Handles one request. Never raises: a defect becomes a 500 with the request's id."""
    began = time.perf_counter()
    request = ApiRequest.of(event)
    lake()  # loads the settings, which configure the logs
    with correlation(request.correlation_id):
        response = _serve(request, event, context)
        response["headers"] |= {"X-Request-Id": request.request_id, "X-Correlation-Id": request.correlation_id}
        if request.method == "HEAD":
            response["body"] = ""
        log.info(
            "request served",
            extra={
                "route": request.route_key,
                "path": request.path,
                "status": response["statusCode"],
                "subject": request.caller.subject if request.caller else None,
                "request_id": request.request_id,
                "duration_ms": round((time.perf_counter() - began) * 1000, 1),
            },
        )
    return response


def _serve(request: ApiRequest, event: dict[str, Any], context: Any) -> dict[str, Any]:
    try:
        _admit(request)
    except Refusal as refusal:
        return _event_response(refusal_response(refusal, request.request_id))
    app.context["request"] = request
    resolved: dict[str, Any] = app.resolve(event, context)
    resolved["headers"] = dict(resolved.get("headers") or {})
    return resolved


def _admit(request: ApiRequest) -> None:
    """Refuses a request without a route, without a caller on a route that is not public, or with too large a body."""
    route, methods = app.find(request.method, request.path)
    settings = lake().settings
    is_public = route is not None and route.is_public(public_entries=settings.public_entries)
    missing = Refusal(404, "not_found", f"the API has no path {request.path!r}: GET /openapi.json lists them")
    if not methods or (settings.function == PUBLIC and route is not None and not is_public):
        raise missing
    if route is None or request.route_key == "$default":
        allow = {"Allow": ", ".join(methods)}
        if route is not None:
            raise missing
        raise Refusal(405, "method_not_allowed", f"{request.path!r} allows only {allow['Allow']}", allow)
    if not is_public:
        try:
            authorization = request.headers.get("authorization")
            request.caller = caller_of(request.authorizer, settings.principals, authorization, settings.role_prefix)
        except Denied as error:
            raise Refusal(401, "unauthenticated", error.message, {"WWW-Authenticate": "Bearer"}) from None
    _ = request.body  # raises Refusal if it is too large
    meter = usage_meter() if request.caller is not None and route.key not in METERED_THERE else None
    if meter is not None and request.caller is not None and (excess := meter.count(request.caller)) is not None:
        raise limit_refusal(excess)


def _event_response(response: Response[str]) -> dict[str, Any]:
    headers = {name: str(value) for name, value in response.headers.items()}
    return {"statusCode": response.status_code, "headers": headers, "body": response.body, "isBase64Encoded": False}


@app.on(RequestValidationError)
def _invalid(error: RequestValidationError) -> Response[str]:
    return validation_response(error.errors(), current_request().request_id)


@app.on(ValidationError)
def _invalid_rows(error: ValidationError) -> Response[str]:
    errors = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
    return validation_response(errors, current_request().request_id)


@app.on(RequestUnsupportedContentType)
def _unsupported(error: RequestUnsupportedContentType) -> Response[str]:
    refusal = Refusal(415, "unsupported_media_type", "the body must be application/json: set Content-Type")
    return refusal_response(refusal, current_request().request_id)


@app.on(Refusal)
def _refused(error: Refusal) -> Response[str]:
    return refusal_response(error, current_request().request_id)


@app.on(UnicodeDecodeError, RecursionError)
def _unreadable(error: Exception) -> Response[str]:
    """Raised when a body is parsed: it is not UTF-8, or is nested too deep."""
    reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "nested too deep"
    return error_response(Invalid(f"the body is {reason}"), current_request().request_id)


@app.on(Exception)
def _failed(error: Exception) -> Response[str]:
    return error_response(error, current_request().request_id)
