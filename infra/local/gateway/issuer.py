"""The embedded cloud's OIDC issuer: signs tokens with its own RSA keys, and publishes their key set.

It requires no password: anyone who can reach the process can get any token. It is for development only.
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
    """An OIDC issuer whose documents the gateway serves below `address`. `url` is what its tokens say: the address, or
    the URL of the deployed Cognito user pool that it stands for."""

    def __init__(self, address: str, clock: Clock | None = None) -> None:
        self.address = self.url = address
        self._clock = clock or SystemClock()
        self._keys: list[RSAKey] = []  # newest first; generated at first use, because that takes a moment
        self._lock = threading.Lock()

    def token(
        self,
        subject: str,
        audience: str,
        roles: Any = (),
        scopes: Sequence[str] = (),
        expires_in: timedelta = timedelta(hours=1),
        **claims: Any,
    ) -> str:
        """An access token for `subject`, signed with the current key. `claims` add to or replace the standard ones."""
        now = int(self._clock.now().timestamp())
        standard = {
            "iss": self.url,
            "sub": subject,
            "aud": audience,
            "iat": now,
            "nbf": now,
            "exp": now + int(expires_in.total_seconds()),
            "roles": list(roles) if isinstance(roles, tuple) else roles,  # a test may pass any value
        }
        if scopes:
            standard["scope"] = " ".join(scopes)
        key = self._current()[0]
        return str(jwt.encode({"alg": ALGORITHM, "kid": key.kid}, standard | claims, key, [ALGORITHM]))

    def locate(self, issuer: str) -> str:
        """Where the documents of an issuer are: a pool's are here."""
        return self.address if issuer == self.url else issuer

    def rotate(self) -> None:
        """Signs with a new key from now on; the old keys stay in the key set."""
        with self._lock:
            self._keys.insert(0, _new_key())

    def document(self, path: str) -> bytes | None:
        """The JSON document at a path below `address`; None for an unknown path."""
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
            "jwks_uri": f"{self.address}/.well-known/jwks.json",
            "id_token_signing_alg_values_supported": [ALGORITHM],
            "response_types_supported": ["token"],
            "subject_types_supported": ["public"],
        }


def _new_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"use": "sig", "alg": ALGORITHM}, auto_kid=True)
