"""Pages: a list's next page is asked for with the token that came with this one. Tokens check themselves.

A token holds no permission and no secret: what it leads to is checked again. It is only told apart from a token of
another list, another question, or a guess.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from catalog.errors import Invalid

_CHECK_BYTES = 12


def write_token(question: Sequence[Any], place: Any) -> str:
    """`question` is the list and what was asked of it; `place` is where its next page begins."""
    said = json.dumps(place, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_check(question, said) + said).decode().rstrip("=")


def read_token(question: Sequence[Any], token: str | None) -> Any | None:
    """The place, None without a token. Invalid for any token that `write_token` did not make for this question."""
    if token is None:
        return None
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    check, said = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if not said or check != _check(question, said) or write_token(question, json.loads(said)) != token:
        raise Invalid("the page token is not one of this list: begin again without it, or send it as it came")
    return json.loads(said)


def _check(question: Sequence[Any], said: bytes) -> bytes:
    asked = json.dumps(list(question), separators=(",", ":")).encode()
    return sha256(b"strandline page\0" + asked + b"\0" + said).digest()[:_CHECK_BYTES]
