"""A client of the API: httpx and pyarrow, and nothing of the lake. Everything the API does, a method each.

Every write carries an idempotency key, so a request whose answer was lost is simply sent again. Pages are followed,
large answers fetched from where they lie, and problems raised as `Problem`.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any, Literal, Self, TypedDict
from urllib.parse import quote
from uuid import uuid4

import httpx
import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
AGAIN = frozenset({429, 502, 503, 504})
LONGEST_WAIT_S = 20.0


class Receipt(TypedDict, total=False):
    table: str
    snapshot_id: str
    sequence: int
    rows: int
    matched: int
    replayed: bool
    mode: str
    reason: str


class Commit(TypedDict, total=False):
    index: int
    table: str
    table_uuid: str
    snapshot_id: str
    parent_id: str
    sequence: int
    committed_ms: int
    sequenced_ms: int
    operation: str
    ref: str
    entry: str


class Placed(TypedDict, total=False):
    """`files`: each with status, key, table, rows, snapshot_id, index, reason, position, …"""

    sha256: str
    status: Literal["landing", "committed", "duplicate", "quarantined", "failed", "unknown"]
    files: list[dict[str, Any]]


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


class Pending(Exception):
    """A query became a job that is not done yet: its id fetches the rows later."""

    def __init__(self, query_id: str) -> None:
        super().__init__(f"query {query_id} runs as a job and is not done yet")
        self.query_id = query_id


class Client:
    """One lake behind one endpoint. Safe to share between threads.

    `attempts`: how often a request is sent that is refused with 429 or 503, or not answered; the pauses between are
    those of Retry-After, otherwise random and doubling. `transport` and `sleep` are for tests.
    """

    def __init__(
        self,
        endpoint: str,
        token: str | None = None,
        *,
        timeout_s: float = 35.0,
        attempts: int = 6,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._attempts, self._sleep = attempts, sleep
        self._http = httpx.Client(timeout=timeout_s, transport=transport)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Tables

    def tables(self, database: str | None = None) -> Iterator[str]:
        for page in self._pages("/tables", {"database": database}):
            yield from page["tables"]

    def describe(self, table: str) -> dict[str, Any]:
        return self._json("GET", f"/tables/{quote(table)}")

    def schema(self, table: str, version: int) -> dict[str, Any]:
        return self._json("GET", f"/tables/{quote(table)}/schemas/{version}")

    def create_table(
        self,
        name: str,
        columns: Mapping[str, str],
        *,
        mode: Literal["cow", "mor", "hybrid"] = "cow",
        key: Sequence[str] = (),
        partition: Sequence[str] = (),
        sort: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        shape = {"mode": mode, "key": list(key), "partition": list(partition), "sort": list(sort)}
        return self._json("POST", "/tables", {"name": name, "columns": dict(columns), **shape}, key=idempotency_key)

    def change_table(self, table: str, *, idempotency_key: str | None = None, **change: Any) -> dict[str, Any]:
        """`add`, `drop`, `rename`, `promote`, `partition`, `sort`, `key`, `mode`: all of it or none."""
        return self._json("PATCH", f"/tables/{quote(table)}", change, key=idempotency_key)

    def drop_table(self, table: str, *, purge: bool = False, idempotency_key: str | None = None) -> None:
        self._send("DELETE", f"/tables/{quote(table)}", query={"purge": str(purge).lower()}, key=idempotency_key)

    # Rows

    def rows(
        self,
        table: str,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        as_of: str | int | None = None,
        limit: int = 1000,
    ) -> pa.Table:
        """At most `limit` rows, as Arrow."""
        query = {"where": where, "columns": list(columns) if columns else None, "as_of": as_of, "limit": limit}
        return _read_arrow(self._rows("GET", f"/tables/{quote(table)}/rows", query=query))

    def insert(self, table: str, rows: Any, *, idempotency_key: str | None = None) -> Receipt:
        """`rows`: a list of dicts, or anything Arrow (a table, a batch, a reader, a data frame)."""
        return self._write(table, rows, {"mode": "insert"}, idempotency_key)

    def upsert(
        self, table: str, rows: Any, key: Sequence[str] | None = None, *, idempotency_key: str | None = None
    ) -> Receipt:
        return self._write(table, rows, {"mode": "upsert", "key": list(key) if key else None}, idempotency_key)

    def delete(
        self,
        table: str,
        where: str | None = None,
        *,
        keys: Sequence[Mapping[str, Any]] | None = None,
        idempotency_key: str | None = None,
    ) -> Receipt:
        which: dict[str, Any] = {"where": where} if where is not None else {}
        if keys is not None:
            which["keys"] = [dict(one) for one in keys]
        found: Receipt = self._json("POST", f"/tables/{quote(table)}/delete", which, key=idempotency_key)  # type: ignore[assignment]
        return found

    # History and proofs

    def commits(self, table: str, since: int = -1) -> Iterator[Commit]:
        """The table's leaves in the timeline, oldest first."""
        for page in self._pages(f"/tables/{quote(table)}/commits", {"since": since}):
            yield from page["commits"]

    def commit(self, index: int | None = None, *, snapshot_id: str | int | None = None) -> Commit:
        found: Commit = self._json("GET", f"/commits/{_commit_id(index, snapshot_id)}")  # type: ignore[assignment]
        return found

    def proof(self, index: int | None = None, *, snapshot_id: str | int | None = None) -> bytes:
        """A c2sp.org/tlog-proof@v1 file that carries its leaf along."""
        return self._send("GET", f"/commits/{_commit_id(index, snapshot_id)}/proof").content

    def snapshots(self, table: str | None = None) -> Iterator[dict[str, Any]]:
        for page in self._pages("/snapshots", {"table": table}):
            yield from page["snapshots"]

    def named_cut(self, name: str) -> int:
        """The index of the timeline that bears the name."""
        found = self._json("GET", "/snapshots", query={"name": name})["snapshots"][0]["index"]
        return int(found)

    def name_snapshot(
        self,
        name: str,
        table: str | None = None,
        *,
        snapshot_id: str | int | None = None,
        index: int | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Names a table's snapshot; without a table, a cut of the whole lake."""
        given = {"name": name, "table": table, "index": index}
        given["snapshot_id"] = None if snapshot_id is None else str(snapshot_id)
        body = {field: value for field, value in given.items() if value is not None}
        return self._json("POST", "/snapshots", body, key=idempotency_key)

    # Changes

    def changes(
        self, table: str, since: str | int | None = None, until: str | int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Change sets after `since`, oldest first: `head` with its evidence, and `changes` with op, before, after.

        `since`, `until`: a leaf's sequence, a snapshot's id, a time or a name.
        """
        for page in self._pages(f"/tables/{quote(table)}/changes", {"since": since, "until": until}):
            yield from page["change_sets"]

    def watermark(self, consumer: str, table: str) -> int | None:
        """The sequence of the last leaf the consumer has dealt with; None if it has not begun."""
        found = self._json("GET", f"/watermarks/{quote(consumer)}/{quote(table)}").get("sequence")
        return None if found is None else int(found)

    def move_watermark(
        self, consumer: str, table: str, sequence: int, *, expected: int | None = None, holder: str = "client"
    ) -> None:
        """Asks for the mark to move there from where it is expected to stand; `watermark` tells whether it did."""
        body = {"sequence": sequence, "expected": expected, "holder": holder}
        self._send("PUT", f"/watermarks/{quote(consumer)}/{quote(table)}", body)

    # The timeline's public form

    def checkpoint(self) -> bytes:
        return self._send("GET", "/timeline/checkpoint").content

    def verifier_keys(self) -> list[str]:
        """The verifier keys, the newest first."""
        return self._send("GET", "/timeline/key").text.split()

    def tile(self, path: str) -> bytes:
        """`tile/0/x001/067`, `tile/entries/000.p/9`."""
        return self._send("GET", f"/timeline/{quote(path)}").content

    def consistency(self, old: int, new: int | None = None) -> dict[str, Any]:
        return self._json("GET", "/timeline/consistency", query={"old": old, "new": new})

    # Files

    def upload(self, table: str, name: str, data: bytes) -> str:
        """Puts a file into landing; its digest, by which `where_is` finds it. Sent twice it is ingested once."""
        digest = sha256(data).hexdigest()
        link = self._json("POST", "/ingest/uploads", {"table": table, "name": name, "sha256": digest})
        answer = self._attempt(lambda: self._http.put(link["url"], content=data, headers=link["headers"]))
        if answer.is_error:
            raise Problem(answer.status_code, "upload_refused", f"S3 did not take {name}: {answer.text[:300]}")
        return digest

    def where_is(self, digest: str) -> Placed:
        found: Placed = self._json("GET", f"/ingest/{digest}")  # type: ignore[assignment]
        return found

    # Queries

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        as_of: str | int | None = None,
        engine: Literal["auto", "lambda", "spark"] = "auto",
        wait_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> pa.Table:
        """The rows of one statement, as Arrow. One that becomes a job is waited for, `wait_s` at most: then `Pending`
        says which it is, and `query_rows` has its rows later. Sent again with the same key it is the same job."""
        body = {"sql": sql, "parameters": dict(parameters or {}), "as_of": as_of, "engine": engine}
        given = {name: value for name, value in body.items() if value is not None}
        answer = self._rows("POST", "/query", given, key=idempotency_key)
        return self._awaited(answer, wait_s) if answer.status_code == 202 else _read_arrow(answer)

    def query_status(self, query_id: str) -> dict[str, Any]:
        """How a query that became a job stands: `status` is running, done, failed or cancelled."""
        return self._json("GET", f"/queries/{quote(query_id)}", query={"rows": "false"})

    def query_rows(self, query_id: str, *, wait_s: float | None = None) -> pa.Table:
        """All rows of a query that became a job; waits for it like `query`."""
        return self._awaited(self._rows("GET", f"/queries/{quote(query_id)}"), wait_s, query_id)

    def cancel_query(self, query_id: str) -> None:
        self._send("DELETE", f"/queries/{quote(query_id)}")

    def _awaited(self, answer: httpx.Response, wait_s: float | None, query_id: str | None = None) -> pa.Table:
        waited = 0.0
        while answer.status_code == 202:
            query_id = str(answer.json()["id"])
            if wait_s is not None and waited >= wait_s:
                raise Pending(query_id)
            pause = float(answer.headers.get("retry-after", "1"))
            self._sleep(pause)
            waited += pause
            answer = self._rows("GET", f"/queries/{quote(query_id)}")
        tables = [_read_arrow(answer)]
        while (token := answer.headers.get("strandline-next")) is not None:
            assert query_id is not None
            answer = self._rows("GET", f"/queries/{quote(query_id)}", query={"page": token})
            tables.append(_read_arrow(answer))
        return pa.concat_tables(tables)

    def search(self, table: str, column: str, **wanted: Any) -> pa.Table:
        """`text`, `vector`, `mode` (vector, text, hybrid), `where`, `limit`: the nearest rows, as Arrow."""
        return _read_arrow(self._rows("POST", "/search", {"table": table, "column": column, **wanted}))

    # The service

    def health(self) -> dict[str, Any]:
        return self._json("GET", "/health")

    def metrics(self) -> dict[str, Any]:
        return self._json("GET", "/metrics-summary")

    def openapi(self) -> dict[str, Any]:
        return self._json("GET", "/openapi.json")

    # How requests are made

    def _write(self, table: str, rows: Any, query: Mapping[str, Any], key: str | None) -> Receipt:
        arrow = _as_arrow(rows)
        path = f"/tables/{quote(table)}/rows"
        if arrow is None:
            found = self._json("POST", path, {"rows": list(rows)}, query=query, key=key)
        else:
            found = self._send("POST", path, _write_arrow(arrow), query=query, key=key, media_type=ARROW).json()
        receipt: Receipt = found  # type: ignore[assignment]
        return receipt

    def _rows(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> httpx.Response:
        """An answer that may lie elsewhere: then it is fetched from there, without our token."""
        answer = self._send(method, path, body, query=query, key=key, accept=f"{ARROW}, application/json;q=0.5")
        if answer.status_code != 303:
            return answer
        there = self._attempt(lambda: self._http.get(answer.headers["location"]))
        if there.is_error:
            raise Problem(there.status_code, "result_lost", "the answer is no longer where it was: ask again")
        if "strandline-next" in answer.headers:  # where a page lies says nothing of the next one
            there.headers["strandline-next"] = answer.headers["strandline-next"]
        return there

    def _pages(self, path: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        token: str | None = None
        while True:
            page = self._json("GET", path, query={**query, "page": token})
            yield page
            token = page.get("next")
            if token is None:
                return

    def _json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        found: dict[str, Any] = self._send(method, path, body, query=query, key=key).json()
        return found

    def _send(
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

    def _attempt(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Sends until it is answered with something else than "later"; the last answer or error if it never is."""
        for attempt in range(self._attempts):
            last = attempt == self._attempts - 1
            try:
                answer = send()
            except httpx.TransportError:
                if last:
                    raise
                self._sleep(_pause(attempt, None))
                continue
            if answer.status_code not in AGAIN or last:
                return answer
            self._sleep(_pause(attempt, answer.headers.get("retry-after")))
        raise AssertionError("attempts must be at least 1")


def _pause(attempt: int, retry_after: str | None) -> float:
    """What the server asks for, and a little more so that not everybody comes back at once."""
    jitter = random.uniform(0, min(LONGEST_WAIT_S, 0.1 * 2**attempt))  # noqa: S311 - not a secret
    if retry_after is not None and retry_after.isdecimal():
        return min(float(retry_after), LONGEST_WAIT_S) + jitter
    return jitter


def _as_arrow(rows: Any) -> pa.Table | None:
    """None for rows that are plain Python values."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    return pa.table(rows) if hasattr(rows, "__arrow_c_stream__") else None


def _write_arrow(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def _read_arrow(answer: httpx.Response) -> pa.Table:
    with pa.ipc.open_stream(answer.content) as stream:
        return stream.read_all()


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _commit_id(index: int | None, snapshot_id: str | int | None) -> str:
    if (index is None) == (snapshot_id is None):
        raise ValueError("which commit: its index, or its snapshot's id, and not both")
    return str(index) if index is not None else f"snapshot-{snapshot_id}"


def _kind_of(status: int) -> str:
    """For API Gateway's own refusals, which name no kind."""
    return {401: "unauthenticated", 403: "denied", 404: "not_found", 413: "too_large", 429: "throttled"}.get(
        status, "unavailable" if status >= 500 else "invalid"
    )
