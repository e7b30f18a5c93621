"""CORS as deployed on an API: preflights are answered, and what functions say about origins is overridden."""

from __future__ import annotations

from typing import Any

from werkzeug.datastructures import Headers
from werkzeug.wrappers import Request, Response


def is_preflight(request: Request) -> bool:
    wanted = ("Origin", "Access-Control-Request-Method")
    return request.method == "OPTIONS" and all(name in request.headers for name in wanted)


def preflight(request: Request, cors: dict[str, Any]) -> Response:
    """204, with the deployed permissions for an origin that has them and with nothing for one that
    has not."""
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
    """With CORS on the API, a function's own CORS headers are dropped and the deployed ones set."""
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
    """What to say about an origin: itself, `*`, or nothing. `https://*` stands for any https origin."""
    if not origin:
        return None
    allowed: list[str] = cors.get("AllowOrigins") or []
    if "*" in allowed:
        return "*"
    scheme = f"{origin.partition('://')[0]}://*"
    return origin if origin in allowed or scheme in allowed else None
