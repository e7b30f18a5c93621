"""HTTP requests to the API: retries, paging, redirects to stored results, and errors raised as `Problem`.

A presigned URL is requested without the caller's token.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa

from strandline.problems import Problem

ARROW = "application/vnd.apache.arrow.stream"
RETRY_STATUSES = frozenset({429, 500, 502, 503, 504})
"""Statuses that are retried. A retried write is safe: every attempt carries the same idempotency key."""
MAX_PAUSE_S = 20.0


class Connection:
    """One endpoint and one token. Safe to share between threads."""

    def __init__(
        self,
        endpoint: str,
        token: str | None,
        *,
        timeout_s: float = 35.0,
        attempts: int = 6,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._attempts, self.sleep = attempts, sleep
        self._http = httpx.Client(timeout=timeout_s, transport=transport)

    def close(self) -> None:
        self._http.close()

    def rows(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> httpx.Response:
        """Rows as Arrow. A 303 response is followed to the object in S3 that holds them: one request more."""
        response = self.send(method, path, body, query=query, key=key, accept=f"{ARROW}, application/json;q=0.5")
        if response.status_code != 303:
            return response
        stored = self._send_with_retries(lambda: self._http.get(response.headers["location"]))
        if stored.is_error:
            raise Problem(stored.status_code, "result_lost", "the stored result has expired: run the query again")
        if "strandline-next" in response.headers:  # S3 does not know the next page's token
            stored.headers["strandline-next"] = response.headers["strandline-next"]
        return stored

    def pages(self, path: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        token: str | None = None
        while True:
            page = self.json("GET", path, query={**query, "page": token})
            yield page
            token = page.get("next")
            if token is None:
                return

    def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        value: dict[str, Any] = self.send(method, path, body, query=query, key=key).json()
        return value

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        media_type: str = "application/json",
        accept: str = "application/json, */*;q=0.5",
    ) -> httpx.Response:
        headers = {**self._headers, "Accept": accept}
        if method != "GET":
            headers["Idempotency-Key"] = key or uuid4().hex
        content = None
        if body is not None:
            content = body if isinstance(body, bytes) else json.dumps(body, default=_plain).encode()
            headers["Content-Type"] = media_type
        params = {name: value for name, value in (query or {}).items() if value is not None}
        response = self._send_with_retries(
            lambda: self._http.request(
                method, self._endpoint + path, content=content, headers=headers, params=params or None
            )
        )
        if response.status_code >= 400:
            raise Problem.of(response)
        return response

    def put(self, url: str, data: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Uploads to a presigned URL, without the caller's token."""
        return self._send_with_retries(lambda: self._http.put(url, content=data, headers=dict(headers)))

    def _send_with_retries(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Sends until the status is not one of RETRY_STATUSES. The last attempt's response or error is final."""
        for attempt in range(self._attempts):
            is_last = attempt == self._attempts - 1
            try:
                response = send()
                if is_last or response.status_code not in RETRY_STATUSES:
                    return response
                retry_after = response.headers.get("retry-after")
            except httpx.TransportError:
                if is_last:
                    raise
                retry_after = None
            self.sleep(_pause(attempt, retry_after))
        raise AssertionError("attempts must be at least 1")


def _pause(attempt: int, retry_after: str | None) -> float:
    """The seconds of Retry-After, if any, plus random jitter that spreads the retries of many clients."""
    jitter = random.uniform(0, min(MAX_PAUSE_S, 0.1 * 2**attempt))  # noqa: S311 - not a secret
    if retry_after is not None and retry_after.isdecimal():
        return min(float(retry_after), MAX_PAUSE_S) + jitter
    return jitter


def as_arrow(rows: Any) -> pa.Table | None:
    """The rows as an Arrow table; None if they are plain Python values."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    return pa.table(rows) if hasattr(rows, "__arrow_c_stream__") else None


def write_arrow(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def read_arrow(response: httpx.Response) -> pa.Table:
    """The rows of a response. Problem for invalid Arrow: offsets are checked before any value is read."""
    with pa.ipc.open_stream(response.content) as stream:
        try:
            batches = []
            for batch in stream:
                batch.validate(full=True)
                batches.append(batch)
        except pa.ArrowException as error:
            raise Problem(response.status_code, "unverified", f"the response is not valid Arrow: {error}") from None
        return pa.Table.from_batches(batches, stream.schema)


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
