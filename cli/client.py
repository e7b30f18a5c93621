"""A client of the API: httpx and pyarrow, and nothing of the lake. Everything the API does, a method each.

Every write carries an idempotency key, so a request whose answer was lost is simply sent again. Pages are followed,
large answers fetched from where they lie, and problems raised as `Problem`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any, Literal, Self, TypedDict
from urllib.parse import quote

import httpx
import pyarrow as pa

from cli.connection import ARROW, Connection, Problem, as_arrow, read_arrow, write_arrow

__all__ = ["ARROW", "Client", "Commit", "Pending", "Placed", "Problem", "Receipt"]


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
        self._api = Connection(
            endpoint, token, timeout_s=timeout_s, attempts=attempts, transport=transport, sleep=sleep
        )

    def close(self) -> None:
        self._api.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Tables

    def tables(self, database: str | None = None) -> Iterator[str]:
        for page in self._api.pages("/tables", {"database": database}):
            yield from page["tables"]

    def describe(self, table: str) -> dict[str, Any]:
        return self._api.json("GET", f"/tables/{quote(table)}")

    def schema(self, table: str, version: int) -> dict[str, Any]:
        return self._api.json("GET", f"/tables/{quote(table)}/schemas/{version}")

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
        return self._api.json("POST", "/tables", {"name": name, "columns": dict(columns), **shape}, key=idempotency_key)

    def change_table(self, table: str, *, idempotency_key: str | None = None, **change: Any) -> dict[str, Any]:
        """`add`, `drop`, `rename`, `promote`, `partition`, `sort`, `key`, `mode`: all of it or none."""
        return self._api.json("PATCH", f"/tables/{quote(table)}", change, key=idempotency_key)

    def drop_table(self, table: str, *, purge: bool = False, idempotency_key: str | None = None) -> None:
        self._api.send("DELETE", f"/tables/{quote(table)}", query={"purge": str(purge).lower()}, key=idempotency_key)

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
        return read_arrow(self._api.rows("GET", f"/tables/{quote(table)}/rows", query=query))

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
        found: Receipt = self._api.json("POST", f"/tables/{quote(table)}/delete", which, key=idempotency_key)  # type: ignore[assignment]
        return found

    # History and proofs

    def commits(self, table: str, since: int = -1) -> Iterator[Commit]:
        """The table's leaves in the timeline, oldest first."""
        for page in self._api.pages(f"/tables/{quote(table)}/commits", {"since": since}):
            yield from page["commits"]

    def commit(self, index: int | None = None, *, snapshot_id: str | int | None = None) -> Commit:
        found: Commit = self._api.json("GET", f"/commits/{_commit_id(index, snapshot_id)}")  # type: ignore[assignment]
        return found

    def proof(self, index: int | None = None, *, snapshot_id: str | int | None = None) -> bytes:
        """A c2sp.org/tlog-proof@v1 file that carries its leaf along."""
        return self._api.send("GET", f"/commits/{_commit_id(index, snapshot_id)}/proof").content

    def snapshots(self, table: str | None = None) -> Iterator[dict[str, Any]]:
        for page in self._api.pages("/snapshots", {"table": table}):
            yield from page["snapshots"]

    def named_cut(self, name: str) -> int:
        """The index of the timeline that bears the name."""
        found = self._api.json("GET", "/snapshots", query={"name": name})["snapshots"][0]["index"]
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
        return self._api.json("POST", "/snapshots", body, key=idempotency_key)

    # Changes

    def changes(
        self, table: str, since: str | int | None = None, until: str | int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Change sets after `since`, oldest first: `head` with its evidence, and `changes` with op, before, after.

        `since`, `until`: a leaf's sequence, a snapshot's id, a time or a name.
        """
        for page in self._api.pages(f"/tables/{quote(table)}/changes", {"since": since, "until": until}):
            yield from page["change_sets"]

    def watermark(self, consumer: str, table: str) -> int | None:
        """The sequence of the last leaf the consumer has dealt with; None if it has not begun."""
        found = self._api.json("GET", f"/watermarks/{quote(consumer)}/{quote(table)}").get("sequence")
        return None if found is None else int(found)

    def move_watermark(
        self, consumer: str, table: str, sequence: int, *, expected: int | None = None, holder: str = "client"
    ) -> None:
        """Asks for the mark to move there from where it is expected to stand; `watermark` tells whether it did."""
        body = {"sequence": sequence, "expected": expected, "holder": holder}
        self._api.send("PUT", f"/watermarks/{quote(consumer)}/{quote(table)}", body)

    # The timeline's public form

    def checkpoint(self) -> bytes:
        return self._api.send("GET", "/timeline/checkpoint").content

    def verifier_keys(self) -> list[str]:
        """The verifier keys, the newest first."""
        return self._api.send("GET", "/timeline/key").text.split()

    def tile(self, path: str) -> bytes:
        """`tile/0/x001/067`, `tile/entries/000.p/9`."""
        return self._api.send("GET", f"/timeline/{quote(path)}").content

    def consistency(self, old: int, new: int | None = None) -> dict[str, Any]:
        return self._api.json("GET", "/timeline/consistency", query={"old": old, "new": new})

    # Files

    def upload(self, table: str, name: str, data: bytes) -> str:
        """Puts a file into landing; its digest, by which `where_is` finds it. Sent twice it is ingested once."""
        digest = sha256(data).hexdigest()
        link = self._api.json("POST", "/ingest/uploads", {"table": table, "name": name, "sha256": digest})
        answer = self._api.put(link["url"], data, link["headers"])
        if answer.is_error:
            raise Problem(answer.status_code, "upload_refused", f"S3 did not take {name}: {answer.text[:300]}")
        return digest

    def where_is(self, digest: str) -> Placed:
        found: Placed = self._api.json("GET", f"/ingest/{digest}")  # type: ignore[assignment]
        return found

    def rule(self, table: str) -> dict[str, Any]:
        """What the table's files should look like."""
        return self._api.json("GET", f"/tables/{quote(table)}/rule")

    def set_rule(self, table: str, **rule: Any) -> dict[str, Any]:
        """`columns`, `key`, `mode`, `unknown` (reject, ignore, evolve): replaces the rule that is there."""
        return self._api.json("PUT", f"/tables/{quote(table)}/rule", rule)

    def remove_rule(self, table: str) -> None:
        self._api.send("DELETE", f"/tables/{quote(table)}/rule")

    # Queries

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        as_of: str | int | None = None,
        verify: bool = False,
        fresh: bool = False,
        engine: Literal["auto", "lambda", "spark"] = "auto",
        wait_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> pa.Table:
        """The rows of one statement, as Arrow. `verify` checks every object read against the timeline, `fresh` reads
        what is not sequenced yet, too. One that becomes a job is waited for, `wait_s` at most: then `Pending` says
        which it is, and `query_rows` has its rows later. Sent again with the same key it is the same job."""
        moment = None if as_of is None else str(as_of)
        body: dict[str, Any] = {"sql": sql, "parameters": dict(parameters or {}), "as_of": moment, "engine": engine}
        body |= {"verify": verify, "fresh": fresh}
        given = {name: value for name, value in body.items() if value is not None}
        answer = self._api.rows("POST", "/query", given, key=idempotency_key)
        return self._awaited(answer, wait_s) if answer.status_code == 202 else read_arrow(answer)

    def query_status(self, query_id: str) -> dict[str, Any]:
        """How a query that became a job stands: `status` is running, done, failed or cancelled."""
        return self._api.json("GET", f"/queries/{quote(query_id)}", query={"rows": "false"})

    def query_rows(self, query_id: str, *, wait_s: float | None = None) -> pa.Table:
        """All rows of a query that became a job; waits for it like `query`."""
        return self._awaited(self._api.rows("GET", f"/queries/{quote(query_id)}"), wait_s, query_id)

    def cancel_query(self, query_id: str) -> None:
        self._api.send("DELETE", f"/queries/{quote(query_id)}")

    def _awaited(self, answer: httpx.Response, wait_s: float | None, query_id: str | None = None) -> pa.Table:
        waited = 0.0
        while answer.status_code == 202:
            query_id = str(answer.json()["id"])
            if wait_s is not None and waited >= wait_s:
                raise Pending(query_id)
            pause = float(answer.headers.get("retry-after", "1"))
            self._api.sleep(pause)
            waited += pause
            answer = self._api.rows("GET", f"/queries/{quote(query_id)}")
        tables = [read_arrow(answer)]
        while (token := answer.headers.get("strandline-next")) is not None:
            assert query_id is not None
            answer = self._api.rows("GET", f"/queries/{quote(query_id)}", query={"page": token})
            tables.append(read_arrow(answer))
        return pa.concat_tables(tables)

    def search(self, table: str, column: str, **wanted: Any) -> pa.Table:
        """`text`, `vector`, `mode` (vector, text, hybrid), `where`, `limit`: the nearest rows, as Arrow."""
        return read_arrow(self._api.rows("POST", "/search", {"table": table, "column": column, **wanted}))

    # The service

    def health(self) -> dict[str, Any]:
        return self._api.json("GET", "/health")

    def metrics(self) -> dict[str, Any]:
        return self._api.json("GET", "/metrics-summary")

    def openapi(self) -> dict[str, Any]:
        return self._api.json("GET", "/openapi.json")

    def _write(self, table: str, rows: Any, query: Mapping[str, Any], key: str | None) -> Receipt:
        arrow = as_arrow(rows)
        path = f"/tables/{quote(table)}/rows"
        if arrow is None:
            found = self._api.json("POST", path, {"rows": list(rows)}, query=query, key=key)
        else:
            found = self._api.send("POST", path, write_arrow(arrow), query=query, key=key, media_type=ARROW).json()
        receipt: Receipt = found  # type: ignore[assignment]
        return receipt


def _commit_id(index: int | None, snapshot_id: str | int | None) -> str:
    if (index is None) == (snapshot_id is None):
        raise ValueError("which commit: its index, or its snapshot's id, and not both")
    return str(index) if index is not None else f"snapshot-{snapshot_id}"
