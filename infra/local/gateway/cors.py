"""CORS as configured on an API: responds to preflights, and overrides the CORS headers of functions."""

from __future__ import annotations

from typing import Any

from werkzeug.datastructures import Headers
from werkzeug.wrappers import Request, Response


def is_preflight(request: Request) -> bool:
    required = ("Origin", "Access-Control-Request-Method")
    return request.method == "OPTIONS" and all(name in request.headers for name in required)


def preflight(request: Request, cors: dict[str, Any]) -> Response:
    """A 204 response, with the configured headers if the origin is allowed and without them if not."""
    response = Response(status=204)
    origin = _allowed(request.headers["Origin"], cors)
    if origin:
        _allow(response.headers, origin, cors)
        if methods := cors.get("AllowMethods"):
            response.headers["Access-Control-Allow-Methods"] = ",".join(methods)
        if headers := cors.get("AllowHeaders"):
            response.headers["Access-Control-Allow-Headers"] = ",".join(headers)
        if "MaxAge" in cors:
            response.headers["Access-Control-Max-Age"] = str(cors["MaxAge"])
    return response


def apply(request: Request, response: Response, cors: dict[str, Any] | None) -> Response:
    """If the API has CORS, replaces the function's CORS headers with the configured ones."""
    if not cors:
        return response
    for name in [name for name, _ in response.headers if name.lower().startswith("access-control-")]:
        del response.headers[name]
    origin = _allowed(request.headers.get("Origin", ""), cors)
    if origin:
        _allow(response.headers, origin, cors)
        if exposed := cors.get("ExposeHeaders"):
            response.headers["Access-Control-Expose-Headers"] = ",".join(exposed)
    return response


def _allow(headers: Headers, origin: str, cors: dict[str, Any]) -> None:
    headers["Access-Control-Allow-Origin"] = origin
    if cors.get("AllowCredentials"):
        headers["Access-Control-Allow-Credentials"] = "true"
    if origin != "*":
        headers["Vary"] = "Origin"


def _allowed(origin: str, cors: dict[str, Any]) -> str | None:
    """The value of Access-Control-Allow-Origin: the origin, `*`, or None. `https://*` allows any https origin."""
    if not origin:
        return None
    allowed: list[str] = cors.get("AllowOrigins") or []
    if "*" in allowed:
        return "*"
    scheme = f"{origin.partition('://')[0]}://*"
    return origin if origin in allowed or scheme in allowed else None
