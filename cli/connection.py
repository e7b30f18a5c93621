"""How the client's requests are made: sent again when that is safe, pages followed, problems raised.

An answer that lies elsewhere is fetched from there, without our token.
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

ARROW = "application/vnd.apache.arrow.stream"
AGAIN = frozenset({429, 502, 503, 504})
LONGEST_WAIT_S = 20.0


class Problem(Exception):
    """The API said no: `kind` says what to do next, the message what happened. `instance` finds it in the logs."""

    def __init__(self, status: int, kind: str, detail: str, instance: str = "", body: Any = None) -> None:
        super().__init__(f"{kind} ({status}): {detail}")
        self.status, self.kind, self.detail, self.instance, self.body = status, kind, detail, instance, body

    @classmethod
    def of(cls, answer: httpx.Response) -> Problem:
        try:
            said = answer.json()
        except ValueError:
            said = {"detail": answer.text[:500]}
        if not isinstance(said, dict):
            said = {"detail": str(said)[:500]}
        kind = str(said.get("type", "")).removeprefix("urn:strandline:") or _kind_of(answer.status_code)
        detail = str(said.get("detail") or said.get("message") or answer.reason_phrase)
        return cls(answer.status_code, kind, detail, answer.headers.get("x-request-id", ""), said)


class Connection:
    """One endpoint and who asks there. Safe to share between threads."""

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
        """Rows as Arrow, from wherever they lie."""
        answer = self.send(method, path, body, query=query, key=key, accept=f"{ARROW}, application/json;q=0.5")
        if answer.status_code != 303:
            return answer
        there = self._attempt(lambda: self._http.get(answer.headers["location"]))
        if there.is_error:
            raise Problem(there.status_code, "result_lost", "the answer is no longer where it was: ask again")
        if "strandline-next" in answer.headers:  # where a page lies says nothing of the next one
            there.headers["strandline-next"] = answer.headers["strandline-next"]
        return there

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
        found: dict[str, Any] = self.send(method, path, body, query=query, key=key).json()
        return found

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
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        answer = self._attempt(
            lambda: self._http.request(
                method, self._endpoint + path, content=content, headers=headers, params=asked or None
            )
        )
        if answer.status_code >= 400:
            raise Problem.of(answer)
        return answer

    def put(self, url: str, data: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """To a place that was handed out for it, without our token."""
        return self._attempt(lambda: self._http.put(url, content=data, headers=dict(headers)))

    def _attempt(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Sends until it is answered with something else than "later"; the last answer or error if it never is."""
        for attempt in range(self._attempts):
            last = attempt == self._attempts - 1
            try:
                answer = send()
            except httpx.TransportError:
                if last:
                    raise
                self.sleep(_pause(attempt, None))
                continue
            if answer.status_code not in AGAIN or last:
                return answer
            self.sleep(_pause(attempt, answer.headers.get("retry-after")))
        raise AssertionError("attempts must be at least 1")


def _pause(attempt: int, retry_after: str | None) -> float:
    """What the server asks for, and a little more so that not everybody comes back at once."""
    jitter = random.uniform(0, min(LONGEST_WAIT_S, 0.1 * 2**attempt))  # noqa: S311 - not a secret
    if retry_after is not None and retry_after.isdecimal():
        return min(float(retry_after), LONGEST_WAIT_S) + jitter
    return jitter


def as_arrow(rows: Any) -> pa.Table | None:
    """None for rows that are plain Python values."""
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


def read_arrow(answer: httpx.Response) -> pa.Table:
    with pa.ipc.open_stream(answer.content) as stream:
        return stream.read_all()


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _kind_of(status: int) -> str:
    """For API Gateway's own refusals, which name no kind."""
    return {401: "unauthenticated", 403: "denied", 404: "not_found", 413: "too_large", 429: "throttled"}.get(
        status, "unavailable" if status >= 500 else "invalid"
    )
