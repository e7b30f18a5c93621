"""Enforces the deployed authorization of routes. A route whose authorization is not supported responds 500."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from werkzeug.wrappers import Request

from infra.local.clock import Clock
from infra.local.endpoint import ACCOUNT
from infra.local.gateway.apis import Route
from infra.local.gateway.tokens import InvalidTokenError, KeySets, claims_of

_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/\d{8}/[a-z0-9-]+/execute-api/aws4_request,"
    r"\s*SignedHeaders=[^,\s]*\bhost\b[^,\s]*,\s*Signature=[0-9a-f]{64}"
)


@dataclass
class DeniedError(Exception):
    """The request is denied: 401 without a valid identity, 403 when the identity may not call the route."""

    status: int
    challenge: str | None = None
    reason: str = ""


class Authorizer:
    def __init__(self, clock: Clock, locate: Callable[[str], str]) -> None:
        self._clock = clock
        self._keys = KeySets(locate)

    def authorize(self, request: Request, route: Route) -> dict[str, Any] | None:
        """The value of `requestContext.authorizer`; None for a public route. Raises DeniedError."""
        if route.authorization == "NONE":
            return None
        if route.authorization == "JWT" and route.authorizer:
            return {"jwt": self._authorize_jwt(request, route, route.authorizer)}
        if route.authorization == "AWS_IAM":
            return {"iam": _authorize_iam(request)}
        reason = f"{route.key} has authorization {route.authorization}, which the embedded cloud does not support"
        raise DeniedError(500, reason=reason)

    def _authorize_jwt(self, request: Request, route: Route, authorizer: dict[str, Any]) -> dict[str, Any]:
        token = _token(request, authorizer.get("IdentitySource") or ["$request.header.Authorization"])
        if token is None:
            raise DeniedError(401, "Bearer", "no token")
        configuration = authorizer["JwtConfiguration"]
        now = self._clock.now().timestamp()
        try:
            claims = claims_of(token, configuration["Issuer"], configuration.get("Audience") or [], self._keys, now)
        except InvalidTokenError as error:
            challenge = f'Bearer scope="" error="invalid_token" error_description="{error}"'
            raise DeniedError(401, challenge, str(error)) from error
        scopes = _scopes(claims)
        if route.scopes and not set(route.scopes) & set(scopes):
            challenge = f'Bearer scope="{" ".join(route.scopes)}" error="insufficient_scope"'
            raise DeniedError(403, challenge, f"the token has none of the scopes {', '.join(route.scopes)}")
        texts = {name: as_text(value) for name, value in claims.items() if value is not None}
        return {"claims": texts, "scopes": scopes if route.scopes else None}


def as_text(value: Any) -> str:
    """A claim as API Gateway passes it on: text, with lists as `[a b]` and objects as `map[k:v]`, as Go prints them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{' '.join(as_text(part) for part in value)}]"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{as_text(value[name])}' for name in sorted(value))}]"
    return "<nil>" if value is None else str(value)


def _token(request: Request, identity_sources: list[str]) -> str | None:
    for source in identity_sources:
        location, _, name = source.removeprefix("$request.").partition(".")
        value = request.headers.get(name) if location == "header" else request.args.get(name)
        if value:
            return re.sub(r"^bearer\s+", "", value.strip(), flags=re.IGNORECASE)
    return None


def _scopes(claims: dict[str, Any]) -> list[str]:
    scope_claim = claims.get("scope", claims.get("scp", ""))
    if isinstance(scope_claim, list):
        return [str(scope) for scope in scope_claim]
    return str(scope_claim).split()


def _authorize_iam(request: Request) -> dict[str, Any]:
    """Checks the form of the signature only: in the embedded cloud the access key id is the principal."""
    signed = _SIGNED.fullmatch(request.headers.get("Authorization", "").strip())
    if not signed or "X-Amz-Date" not in request.headers:
        raise DeniedError(403, reason="the request is not signed for execute-api")
    return {
        "accessKey": signed[1],
        "accountId": ACCOUNT,
        "callerId": signed[1],
        "cognitoIdentity": None,
        "principalOrgId": None,
        "userArn": f"arn:aws:iam::{ACCOUNT}:user/{signed[1]}",
        "userId": signed[1],
    }
