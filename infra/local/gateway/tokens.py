"""Validates JSON Web Tokens as the JWT authorizer does: RS256, kid, issuer, audience, times."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import urllib3
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

# The algorithm is fixed here, not chosen by the token. This rejects `none`, and HS256 keyed with the public key.
_ALGORITHMS = ["RS256"]


class InvalidTokenError(Exception):
    """The token is rejected; the message goes into a WWW-Authenticate header."""


def claims_of(token: str, issuer: str, audience: list[str], keys: KeySets, now: float) -> dict[str, Any]:
    """The claims of a token that `issuer` signed for one of `audience` and that is valid at `now`.

    Raises InvalidTokenError. Costs no request once the issuer's keys are cached.
    """
    key = keys.find(issuer, _kid(token))
    try:
        claims = jwt.decode(token, key, _ALGORITHMS).claims
    except (JoseError, ValueError) as error:
        raise InvalidTokenError("the signature is invalid") from error
    if not isinstance(claims, dict):
        raise InvalidTokenError("the token is malformed")
    if claims.get("iss") != issuer:
        raise InvalidTokenError("the token does not have a valid issuer")
    # AWS uses client_id only when there is no aud claim.
    token_audience = claims["aud"] if "aud" in claims else claims.get("client_id")
    if not set(token_audience if isinstance(token_audience, list) else [token_audience]) & set(audience):
        raise InvalidTokenError("the token does not have a valid audience")
    if _time(claims, "exp", required=True) <= now:
        raise InvalidTokenError("the token has expired")
    if _time(claims, "nbf") > now:
        raise InvalidTokenError("the token is not valid yet")
    if _time(claims, "iat") > now:
        raise InvalidTokenError("the token was issued in the future")
    return claims


def _kid(token: str) -> str:
    """The kid of the unverified header, used only to find the key."""
    try:
        header = jws.extract_compact(token.encode()).headers()
    except (JoseError, ValueError) as error:
        raise InvalidTokenError("the token is malformed") from error
    if header.get("alg") not in _ALGORITHMS:
        raise InvalidTokenError("the signing method is invalid")
    kid = header.get("kid")
    if not isinstance(kid, str) or not kid:
        raise InvalidTokenError("the token has no kid")
    return kid


def _time(claims: dict[str, Any], name: str, *, required: bool = False) -> float:
    value = claims.get(name)
    if value is None and not required:
        return float("-inf")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidTokenError(f"the token does not have a valid {name}")
    return float(value)


class KeySets:
    """The issuers' public keys by kid, from OIDC discovery. An unknown kid fetches them again: the issuer may have
    rotated its keys. `locate` says where an issuer's documents are."""

    def __init__(self, locate: Callable[[str], str]) -> None:
        self._locate = locate
        self._http = urllib3.PoolManager(timeout=5.0, retries=False)
        self._keys: dict[str, dict[str, RSAKey]] = {}
        self._lock = threading.Lock()

    def find(self, issuer: str, kid: str) -> RSAKey:
        with self._lock:
            keys = self._keys.get(issuer, {})
        if kid not in keys:
            keys = self._fetch(issuer)
            with self._lock:
                self._keys[issuer] = keys
        if kid not in keys:
            raise InvalidTokenError("the kid is unknown")
        return keys[kid]

    def _fetch(self, issuer: str) -> dict[str, RSAKey]:
        try:
            discovery = self._get(f"{self._locate(issuer).rstrip('/')}/.well-known/openid-configuration")
            jwks = self._get(discovery["jwks_uri"])["keys"]
        except (urllib3.exceptions.HTTPError, ValueError, KeyError) as error:
            raise InvalidTokenError("OIDC discovery endpoint communication error") from error
        signing_keys = [key for key in jwks if key.get("kty") == "RSA" and key.get("use", "sig") == "sig"]
        return {key["kid"]: RSAKey.import_key(key) for key in signing_keys if "kid" in key}

    def _get(self, url: str) -> dict[str, Any]:
        response = self._http.request("GET", url)
        if response.status != 200:
            raise ValueError(f"{url} responded {response.status}")
        document: dict[str, Any] = json.loads(response.data)
        return document
