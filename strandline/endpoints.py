"""Which endpoint and token to use: arguments first, then the environment, the profile, and `strandline dev`.

The profile's token is sent only to the profile's endpoint.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from strandline import embedded, profile
from strandline.errors import Invalid, NotFound

ENDPOINT, TOKEN = "STRANDLINE_ENDPOINT", "STRANDLINE_TOKEN"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`source` says where the address came from, for `repr`."""

    url: str
    token: str | None = field(repr=False)
    source: str


def resolve(url: str | None = None, token: str | None = None) -> Endpoint:
    """The endpoint and token to use. Invalid for a malformed address, NotFound if no endpoint is configured."""
    env_url, env_token = os.environ.get(ENDPOINT), os.environ.get(TOKEN)
    if url is not None:
        checked = check_url(url)
        if token is None and (env_url is None or check_url(env_url) == checked):
            token = env_token
        return Endpoint(checked, token or _stored_token(checked), "argument")
    token = token or env_token
    if env_url is not None:
        checked = check_url(env_url)
        return Endpoint(checked, token or _stored_token(checked), ENDPOINT)
    stored = None if embedded.DEV in os.environ else profile.load()
    if stored is not None:
        return Endpoint(check_url(stored.endpoint), token or stored.token, "the profile of `strandline login`")
    try:
        session = embedded.get("api")
    except NotFound as error:
        raise NotFound(
            f"no lake is configured: no endpoint was passed, {ENDPOINT} is not set, nobody is logged in, and {error}. "
            "Pass an endpoint, run `strandline login`, or start a lake with `strandline dev`."
        ) from None
    return Endpoint(check_url(session["endpoint"]), token or session["token"], "`strandline dev`")


def check_url(text: str) -> str:
    """The address without a trailing slash; Invalid if it is malformed."""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or parts.username or parts.password or parts.query or parts.fragment:
        shown = "the endpoint" if "@" in text else repr(text)  # it may contain a password
        raise Invalid(f"{shown} is not the address of a lake: write it like https://lake.example")
    return text.rstrip("/")


def _stored_token(url: str) -> str | None:
    stored = profile.load()
    return stored.token if stored is not None and stored.endpoint.rstrip("/") == url else None
