"""A token's claims as its issuer wrote them. Pure.

API Gateway verifies the token and passes its claims on as text, which loses their types: the list `["a b"]`, the list
`["a", "b"]` and the string `[a b]` all arrive as `[a b]`. The token itself is in the request's Authorization header,
the only source that API Gateway reads it from. A claim is parsed from there, and accepted only if its text is the
verified one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from catalog.core.errors import Denied

_BEARER = re.compile(r"bearer\s+", re.IGNORECASE)


class Claims:
    """`verified`: `requestContext.authorizer.jwt.claims`. `authorization`: the request's header; Denied without one."""

    def __init__(self, verified: Mapping[str, Any], authorization: str | None) -> None:
        self._verified = verified
        self._token = _payload(authorization)

    def text(self, name: str) -> str | None:
        """The claim if it is a string, else None."""
        claim = self._claim(name)
        return claim if isinstance(claim, str) else None

    def members(self, name: str) -> list[str]:
        """The strings of a list claim; [] for any other claim."""
        claim = self._claim(name)
        return claim if isinstance(claim, list) else []

    def scopes(self, name: str) -> list[str]:
        """The strings of a list claim, or a string claim split at single spaces (RFC 6749, section 3.3)."""
        claim = self._claim(name)
        return claim.split(" ") if isinstance(claim, str) else claim or []

    def _claim(self, name: str) -> str | list[str] | None:
        """The token's claim if it is a string or a list of strings. Denied if it differs from the verified text."""
        claim = self._token.get(name)
        if isinstance(claim, str):
            text = claim
        elif isinstance(claim, list) and all(isinstance(member, str) for member in claim):
            text = f"[{' '.join(claim)}]"
        else:
            return None
        if self._verified.get(name) != text:
            raise Denied(f"claim {name} of the Authorization header is not the one that was verified: send one token")
        return claim


def _payload(authorization: str | None) -> Mapping[str, Any]:
    """The claims of a JWT in its compact form (RFC 7519). API Gateway has verified its signature."""
    _, _, after_header = _BEARER.sub("", (authorization or "").strip(), count=1).partition(".")
    encoded = after_header.partition(".")[0]
    try:
        payload = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        raise Denied("the Authorization header has no token: send `Authorization: Bearer <token>`")
    return payload
