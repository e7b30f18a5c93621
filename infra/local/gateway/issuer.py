"""The embedded cloud's identity provider: RSA keys of its own, a key set to check them by, tokens on demand.

It asks nobody for a password. Whoever can reach the process may have any token, which is the point of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

from infra.local.clock import Clock, SystemClock

ALGORITHM = "RS256"


class Issuer:
    """An OIDC issuer at `url`. Whoever owns the listener serves `document(path)` below that URL."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.url = url
        self._clock = clock or SystemClock()
        self._keys: list[RSAKey] = []  # the newest first; made when first asked for, since it takes a moment
        self._lock = threading.Lock()

    def token(
        self,
        subject: str,
        audience: str,
        roles: Sequence[str] = (),
        scopes: Sequence[str] = (),
        expires_in: timedelta = timedelta(hours=1),
        **claims: Any,
    ) -> str:
        """An access token for `subject`, signed with the current key. `claims` add to, or replace,
        the usual ones."""
        now = int(self._clock.now().timestamp())
        usual = {
            "iss": self.url,
            "sub": subject,
            "aud": audience,
            "iat": now,
            "nbf": now,
            "exp": now + int(expires_in.total_seconds()),
            "roles": list(roles),
        }
        if scopes:
            usual["scope"] = " ".join(scopes)
        key = self._current()[0]
        return str(jwt.encode({"alg": ALGORITHM, "kid": key.kid}, usual | claims, key, [ALGORITHM]))

    def rotate(self) -> None:
        """Signs with a new key from now on; the old one stays in the key set until the issuer is gone."""
        with self._lock:
            self._keys.insert(0, _new_key())

    def document(self, path: str) -> bytes | None:
        """What is served below `url`, as JSON; None for any other path."""
        if path == "/.well-known/openid-configuration":
            return json.dumps(self._configuration()).encode()
        if path == "/.well-known/jwks.json":
            keys = [key.as_dict(private=False) for key in self._current()]
            return json.dumps({"keys": keys}).encode()
        return None

    def _current(self) -> list[RSAKey]:
        with self._lock:
            if not self._keys:
                self._keys.append(_new_key())
            return list(self._keys)

    def _configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/.well-known/jwks.json",
            "id_token_signing_alg_values_supported": [ALGORITHM],
            "response_types_supported": ["token"],
            "subject_types_supported": ["public"],
        }


def _new_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"use": "sig", "alg": ALGORITHM}, auto_kid=True)
