"""One HTTP request: its caller, ids, headers and body."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from catalog import Invalid
from catalog.access import Caller, IdempotentRequest
from functions.api.problems import Refusal

MAX_BODY_BYTES = 4 << 20
"""Lambda's limit is 6 MB, with binary bodies in base64. Larger files go through POST /ingest/uploads."""

_CORRELATION = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
_KEY = re.compile(r"[!-~]{1,128}")


@dataclass
class ApiRequest:
    method: str
    path: str
    route_key: str
    request_id: str
    headers: Mapping[str, str]
    authorizer: Mapping[str, Any] | None
    query: str
    _body: str
    _is_base64: bool
    caller: Caller | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> ApiRequest:
        context = event["requestContext"]
        return cls(
            method=str(context["http"]["method"]).upper(),
            path=str(event.get("rawPath") or "/"),
            route_key=str(event.get("routeKey", "")),
            request_id=str(context.get("requestId", "-")),
            headers={str(name).lower(): str(value) for name, value in (event.get("headers") or {}).items()},
            authorizer=context.get("authorizer"),
            query=str(event.get("rawQueryString") or ""),
            _body=event.get("body") or "",
            _is_base64=bool(event.get("isBase64Encoded")),
        )

    @property
    def correlation_id(self) -> str:
        """The caller's X-Correlation-Id if it is valid, so that work can be followed across systems; else the request's
        id."""
        header = self.headers.get("x-correlation-id", "")
        return header if _CORRELATION.fullmatch(header) else self.request_id

    @cached_property
    def body(self) -> bytes:
        """The decoded body. Raises Refusal (413) if it is over MAX_BODY_BYTES."""
        data = base64.b64decode(self._body) if self._is_base64 else self._body.encode(errors="surrogatepass")
        if len(data) > MAX_BODY_BYTES:
            raise Refusal(
                413,
                "too_large",
                f"the body is {len(data)} bytes, over the limit of {MAX_BODY_BYTES}: "
                "send fewer rows at once, or upload a file with POST /ingest/uploads",
            )
        return data

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def require_caller(self) -> Caller:
        assert self.caller is not None, "a public route has no caller"
        return self.caller

    def idempotent(self) -> IdempotentRequest | None:
        """The request with its Idempotency-Key; None without the header. Invalid if the key is not valid."""
        key = self.headers.get("idempotency-key")
        if key is None:
            return None
        if not _KEY.fullmatch(key):
            raise Invalid("the Idempotency-Key is not valid: use 1 to 128 visible ASCII characters")
        head = f"{self.media_type}?{self.query}" if self.query else self.media_type
        subject, target = self.require_caller().subject, f"{self.method} {self.path}"
        return IdempotentRequest(subject, target, key, head.encode() + self.body)
