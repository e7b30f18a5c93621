"""Who may call a route: the deployed authorization, enforced. What cannot be enforced is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from werkzeug.wrappers import Request

from infra.local.clock import Clock
from infra.local.endpoint import ACCOUNT
from infra.local.gateway.deployed import Route
from infra.local.gateway.tokens import InvalidTokenError, KeySets, claims_of

_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/\d{8}/[a-z0-9-]+/execute-api/aws4_request,"
    r"\s*SignedHeaders=[^,\s]*\bhost\b[^,\s]*,\s*Signature=[0-9a-f]{64}"
)


@dataclass
class DeniedError(Exception):
    """The request goes no further: 401 without a valid identity, 403 with one that may not."""

    status: int
    challenge: str | None = None
    reason: str = ""


class Authorizer:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys = KeySets()

    def authorize(self, request: Request, route: Route) -> dict[str, Any] | None:
        """What `requestContext.authorizer` holds, None for an open route. Raises DeniedError."""
        if route.authorization == "NONE":
            return None
        if route.authorization == "JWT" and route.authorizer:
            return {"jwt": self._by_token(request, route, route.authorizer)}
        if route.authorization == "AWS_IAM":
            return {"iam": _by_signature(request)}
        raise DeniedError(500, reason=f"{route.key} asks for {route.authorization}, which cannot be enforced here")

    def _by_token(self, request: Request, route: Route, authorizer: dict[str, Any]) -> dict[str, Any]:
        token = _identity(request, authorizer.get("IdentitySource") or ["$request.header.Authorization"])
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
        return {"claims": {name: as_text(value) for name, value in claims.items()}, "scopes": scopes or None}


def as_text(value: Any) -> str:
    """A claim as API Gateway hands it on: text, lists as `[a b]`, objects as `map[k:v]`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{' '.join(as_text(part) for part in value)}]"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{as_text(value[name])}' for name in sorted(value))}]"
    return "" if value is None else str(value)


def _identity(request: Request, sources: list[str]) -> str | None:
    for source in sources:
        place, _, name = source.removeprefix("$request.").partition(".")
        found = request.headers.get(name) if place == "header" else request.args.get(name)
        if found:
            return re.sub(r"^bearer\s+", "", found.strip(), flags=re.IGNORECASE)
    return None


def _scopes(claims: dict[str, Any]) -> list[str]:
    given = claims.get("scope", claims.get("scp", ""))
    if isinstance(given, list):
        return [str(scope) for scope in given]
    return str(given).split()


def _by_signature(request: Request) -> dict[str, Any]:
    """Nothing in the embedded cloud checks a secret: the access key id is the principal, as
    everywhere in it."""
    signed = _SIGNED.fullmatch(request.headers.get("Authorization", "").strip())
    if not signed or "X-Amz-Date" not in request.headers:
        raise DeniedError(403, reason="not signed for execute-api")
    return {
        "accessKey": signed[1],
        "accountId": ACCOUNT,
        "callerId": signed[1],
        "cognitoIdentity": None,
        "principalOrgId": None,
        "userArn": f"arn:aws:iam::{ACCOUNT}:user/{signed[1]}",
        "userId": signed[1],
    }
