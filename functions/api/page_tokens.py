"""Page tokens: a list's response has the token that requests its next page. A token contains a checksum.

A token grants no permission and holds no secret: the request for the next page is authorized again. The checksum only
detects a token of another list, of other parameters, or a guess.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from catalog import Invalid

_CHECK_BYTES = 12


def write_token(scope: Sequence[Any], position: Any) -> str:
    """`scope` is the list and its parameters; `position` is where the next page begins."""
    encoded = json.dumps(position, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_check(scope, encoded) + encoded).decode().rstrip("=")


def read_token(scope: Sequence[Any], token: str | None) -> Any | None:
    """The position; None without a token. Invalid for a token that `write_token` did not make for this scope."""
    if token is None:
        return None
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    check, encoded = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if not encoded or check != _check(scope, encoded) or write_token(scope, json.loads(encoded)) != token:
        raise Invalid("the page token is not of this list: send it unchanged with the same parameters, or start again")
    return json.loads(encoded)


def _check(scope: Sequence[Any], encoded: bytes) -> bytes:
    encoded_scope = json.dumps(list(scope), separators=(",", ":")).encode()
    return sha256(b"strandline page\0" + encoded_scope + b"\0" + encoded).digest()[:_CHECK_BYTES]
