"""One request as the routes see it: who asks, under which ids, with which headers and body."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from catalog.access.callers import Caller
from catalog.access.once import Request
from catalog.errors import Invalid
from functions.api.problems import Refusal

MAX_BODY_BYTES = 4 << 20
"""Lambda takes 6 MB, and bytes come as base64: what is larger goes through landing/ (POST /ingest/uploads)."""

_CORRELATION = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
_KEY = re.compile(r"[!-~]{1,128}")


@dataclass
class Asked:
    method: str
    path: str
    route_key: str
    request_id: str
    headers: Mapping[str, str]
    authorizer: Mapping[str, Any] | None
    _body: str
    _is_base64: bool
    caller: Caller | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Asked:
        context = event["requestContext"]
        return cls(
            method=str(context["http"]["method"]).upper(),
            path=str(event.get("rawPath") or "/"),
            route_key=str(event.get("routeKey", "")),
            request_id=str(context.get("requestId", "-")),
            headers={str(name).lower(): str(value) for name, value in (event.get("headers") or {}).items()},
            authorizer=context.get("authorizer"),
            _body=event.get("body") or "",
            _is_base64=bool(event.get("isBase64Encoded")),
        )

    @property
    def correlation_id(self) -> str:
        """The caller's own, if it sent a usable one: so work is followed across systems. Else the request's."""
        given = self.headers.get("x-correlation-id", "")
        return given if _CORRELATION.fullmatch(given) else self.request_id

    @cached_property
    def body(self) -> bytes:
        """The bytes that were sent; 413 if they are too many."""
        data = base64.b64decode(self._body) if self._is_base64 else self._body.encode(errors="surrogatepass")
        if len(data) > MAX_BODY_BYTES:
            raise Refusal(
                413,
                "too_large",
                f"a body has at most {MAX_BODY_BYTES} bytes, not {len(data)}: "
                "send fewer rows at once, or the file through POST /ingest/uploads",
            )
        return data

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def known(self) -> Caller:
        assert self.caller is not None, "a public route has no caller"
        return self.caller

    def once(self) -> Request | None:
        """The request under its Idempotency-Key; None if it has none. Invalid if the key cannot be one."""
        key = self.headers.get("idempotency-key")
        if key is None:
            return None
        if not _KEY.fullmatch(key):
            raise Invalid("an Idempotency-Key has 1 to 128 visible ASCII characters")
        return Request(self.known().subject, f"{self.method} {self.path}", key, self.media_type.encode() + self.body)
