"""A client of the HTTP API with one method per route. Needs httpx and pyarrow, and imports nothing of `catalog`.

Every write carries an idempotency key, so it is safe to repeat after a lost response. The client follows pages, fetches
large results from S3, and raises error responses as `Problem`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode

import httpx
import pyarrow as pa

from strandline.connection import ARROW, Connection, as_arrow, read_arrow, write_arrow
from strandline.errors import StrandlineError
from strandline.problems import Problem
from strandline.responses import Commit, FileStatus, Receipt, Written
from strandline.values import PointLike, key_value, position

__all__ = ["ARROW", "Client", "Pending", "Problem"]


class Pending(StrandlineError):
    """The query runs as a job and is not done yet. Pass `query_id` to `client.query_rows` later.

    >>> strandline.Pending("4f1c2d").query_id
    '4f1c2d'
    """

    kind = "pending"

    def __init__(self, query_id: str) -> None:
        next_step = f'client.query_rows("{query_id}") waits for its rows'
        super().__init__(f"query {query_id} runs as a job and is not done yet: {next_step}", status=202)
        self.query_id = query_id


class Client:
    """One lake behind one endpoint. Safe to share between threads.

    `attempts`: the most times a request is sent. Retried are 429, 500, 502, 503, 504 and connection errors, after the
    seconds of Retry-After, or else after a random pause that doubles. `transport` and `sleep` are for tests.
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
        """`add`, `drop`, `rename`, `promote`, `partition`, `sort`, `key`, `mode`: applied together in one commit."""
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
        as_of: PointLike | None = None,
        limit: int = 1000,
    ) -> pa.Table:
        """At most `limit` rows, as Arrow. `as_of`: an index of the timeline (42), a time (a datetime with a zone, or
        "2026-03-01T12:00:00Z"), a snapshot's name, or "snapshot:<id>"."""
        at = position(as_of)
        query = {"where": where, "columns": list(columns) if columns else None, "as_of": at, "limit": limit}
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
        body: dict[str, Any] = {"where": where} if where is not None else {}
        if keys is not None:
            body["keys"] = [dict(key) for key in keys]
        receipt: Receipt = self._api.json("POST", f"/tables/{quote(table)}/delete", body, key=idempotency_key)  # type: ignore[assignment]
        return receipt

    def erase(self, table: str, request: Mapping[str, Any], *, idempotency_key: str | None = None) -> Any:
        """Asks for rows to be erased: `keys` or `where`, `reason`, `accept_guessable`. Returns the request's status."""
        return self._api.json("POST", f"/tables/{quote(table)}/erasures", dict(request), key=idempotency_key)

    def erasure(self, table: str, id_: str) -> Any:
        return self._api.json("GET", f"/tables/{quote(table)}/erasures/{quote(id_)}")

    # History and proofs

    def commits(self, table: str, since: PointLike | None = None) -> Iterator[Commit]:
        """The table's leaves in the timeline after `since`, oldest first; `since` is as in `changes`."""
        for page in self._api.pages(f"/tables/{quote(table)}/commits", {"since": position(since)}):
            yield from page["commits"]

    def commit(self, index: int | None = None, *, snapshot_id: str | int | None = None) -> Commit:
        commit: Commit = self._api.json("GET", f"/commits/{_commit_id(index, snapshot_id)}")  # type: ignore[assignment]
        return commit

    def proof(self, index: int | None = None, *, snapshot_id: str | int | None = None) -> bytes:
        """A c2sp.org/tlog-proof@v1 file that includes its leaf."""
        return self._api.send("GET", f"/commits/{_commit_id(index, snapshot_id)}/proof").content

    def row_proof(
        self, table: str, row: Mapping[str, Any], at: PointLike | None = None, *, values: bool = True
    ) -> bytes:
        """A c2sp.org/tlog-proof@v1 file that shows whether the table had a row of this key at an index or a time."""
        key = quote(urlencode({name: str(value) for name, value in row.items()}), safe="")
        query = {"at": position(at), "values": str(values).lower()}
        return self._api.send("GET", f"/tables/{quote(table)}/rows/{key}/proof", query=query).content

    def answer_proof(
        self,
        table: str,
        keys: Mapping[str, Sequence[Any]],
        ranges: Mapping[str, tuple[Any, Any]],
        at: PointLike | None = None,
        *,
        values: bool = True,
    ) -> bytes:
        """A c2sp.org/tlog-proof@v1 file that shows all rows which the table had of these keys at an index or a time."""
        body: dict[str, Any] = {"values": values} | ({} if at is None else {"at": position(at)})
        body |= {"keys": {name: [key_value(one) for one in each] for name, each in keys.items()}}
        body |= {"ranges": {name: [key_value(one) for one in ends] for name, ends in ranges.items()}}
        return self._api.send("POST", f"/tables/{quote(table)}/rows/proof", body).content

    def snapshots(self, table: str | None = None) -> Iterator[dict[str, Any]]:
        for page in self._api.pages("/snapshots", {"table": table}):
            yield from page["snapshots"]

    def named_cut(self, name: str) -> int:
        """The timeline index of the cut with this name."""
        return int(self._api.json("GET", "/snapshots", query={"name": name})["snapshots"][0]["index"])

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
        fields = {"name": name, "table": table, "index": index}
        fields["snapshot_id"] = None if snapshot_id is None else str(snapshot_id)
        body = {field: value for field, value in fields.items() if value is not None}
        return self._api.json("POST", "/snapshots", body, key=idempotency_key)

    # Changes

    def changes(
        self, table: str, since: PointLike | None = None, until: PointLike | None = None
    ) -> Iterator[dict[str, Any]]:
        """Change sets after `since`, oldest first: `head` with its evidence, and `changes` with op, before, after.

        `since`, `until`: a point in time as in `rows`, or "sequence:<n>", a leaf's number in the table.
        """
        span = {"since": position(since), "until": position(until)}
        for page in self._api.pages(f"/tables/{quote(table)}/changes", span):
            yield from page["change_sets"]

    def change_sets(
        self,
        table: str,
        since: str | int | None = None,
        until: str | int | None = None,
        *,
        extends: int | None = None,
    ) -> Iterator[bytes]:
        """The same change sets as Arrow IPC streams, which keep every value's type; `strandline.verify` checks them.

        `extends`: the size of a checkpoint that you kept; the first change set proves that the log extends it.
        """
        token: str | None = None
        while True:
            query = {"since": since, "until": until, "page": token, "extends": extends if token is None else None}
            response = self._api.rows("GET", f"/tables/{quote(table)}/changes", query=query)
            if response.status_code == 204:
                return
            yield response.content
            token = response.headers["strandline-next"]

    def watermark(self, consumer: str, table: str) -> int | None:
        """The sequence of the last leaf the consumer has processed; None if it has not begun."""
        sequence = self._api.json("GET", f"/watermarks/{quote(consumer)}/{quote(table)}").get("sequence")
        return None if sequence is None else int(sequence)

    def move_watermark(
        self, consumer: str, table: str, sequence: int, *, expected: int | None = None, holder: str = "client"
    ) -> None:
        """Requests that the watermark move from `expected` to `sequence`; `watermark` tells whether it did."""
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
        """Puts a file into landing and returns its SHA-256, which `where_is` takes. `name` may be a path. The same
        bytes are ingested once, however often they are sent."""
        digest = sha256(data).hexdigest()
        link = self._api.json("POST", "/ingest/uploads", {"table": table, "name": name, "sha256": digest})
        response = self._api.put(link["url"], data, link["headers"])
        if response.is_error:
            raise Problem(response.status_code, "upload_refused", f"S3 refused {name}: {response.text[:300]}")
        return digest

    def where_is(self, digest: str) -> FileStatus:
        """What became of the file with this SHA-256; its `status` is `unknown` if nobody sent it."""
        status: FileStatus = self._api.json("GET", f"/ingest/{digest}")  # type: ignore[assignment]
        return status

    def rule(self, table: str) -> dict[str, Any]:
        """How the table's files become rows: `columns`, `key`, `mode`, `unknown`."""
        return self._api.json("GET", f"/tables/{quote(table)}/rule")

    def set_rule(self, table: str, **rule: Any) -> dict[str, Any]:
        """Replaces the table's rule: `columns`, `key`, `mode`, `unknown` (reject, ignore, evolve), `csv`."""
        return self._api.json("PUT", f"/tables/{quote(table)}/rule", rule)

    def remove_rule(self, table: str) -> None:
        self._api.send("DELETE", f"/tables/{quote(table)}/rule")

    # Queries

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        as_of: PointLike | None = None,
        verify: bool = False,
        fresh: bool = False,
        engine: Literal["auto", "lambda", "spark"] = "auto",
        wait_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> pa.Table:
        """The rows of one statement, as Arrow.

        `as_of` is a point in time as in `rows`, but for the whole statement. `verify` checks every object read against
        the timeline; `fresh` also reads commits that are not sequenced yet. A statement may run as a job: then this
        waits, at most `wait_s` seconds, and raises `Pending` after that; `query_rows` fetches the rows later. The same
        idempotency key names the same job.
        """
        at = position(as_of)
        options: dict[str, Any] = {"sql": sql, "parameters": dict(parameters or {}), "as_of": at, "engine": engine}
        options |= {"verify": verify, "fresh": fresh}
        body = {name: value for name, value in options.items() if value is not None}
        response = self._api.rows("POST", "/query", body, key=idempotency_key)
        return self._await_rows(response, wait_s) if response.status_code == 202 else read_arrow(response)

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> list[Written]:
        """Runs one statement that writes, or a transaction."""
        body = {"sql": sql, "parameters": dict(parameters or {})}
        return list(self._api.json("POST", "/statements", body, key=idempotency_key)["statements"])

    def query_status(self, query_id: str) -> dict[str, Any]:
        """The record of a query that runs as a job: `status` is running, done, failed or cancelled."""
        return self._api.json("GET", f"/queries/{quote(query_id)}", query={"rows": "false"})

    def query_rows(self, query_id: str, *, wait_s: float | None = None) -> pa.Table:
        """All rows of a query that runs as a job; waits for it as `query` does."""
        return self._await_rows(self._api.rows("GET", f"/queries/{quote(query_id)}"), wait_s, query_id)

    def cancel_query(self, query_id: str) -> None:
        self._api.send("DELETE", f"/queries/{quote(query_id)}")

    def _await_rows(self, response: httpx.Response, wait_s: float | None, query_id: str | None = None) -> pa.Table:
        waited = 0.0
        while response.status_code == 202:
            query_id = str(response.json()["id"])
            if wait_s is not None and waited >= wait_s:
                raise Pending(query_id)
            pause = float(response.headers.get("retry-after", "1"))
            self._api.sleep(pause)
            waited += pause
            response = self._api.rows("GET", f"/queries/{quote(query_id)}")
        tables = [read_arrow(response)]
        while (token := response.headers.get("strandline-next")) is not None:
            assert query_id is not None
            response = self._api.rows("GET", f"/queries/{quote(query_id)}", query={"page": token})
            tables.append(read_arrow(response))
        return pa.concat_tables(tables)

    def search(self, table: str, column: str, **options: Any) -> pa.Table:
        """The nearest rows, as Arrow, by `text`, `vector`, `mode` (vector, text, hybrid), `where`, `as_of`, `limit`."""
        return read_arrow(self._api.rows("POST", "/search", {"table": table, "column": column, **options}))

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
            body = self._api.json("POST", path, {"rows": list(rows)}, query=query, key=key)
        else:
            body = self._api.send("POST", path, write_arrow(arrow), query=query, key=key, media_type=ARROW).json()
        receipt: Receipt = body  # type: ignore[assignment]
        return receipt


def _commit_id(index: int | None, snapshot_id: str | int | None) -> str:
    if (index is None) == (snapshot_id is None):
        raise ValueError("pass either index or snapshot_id, and not both")
    return str(index) if index is not None else f"snapshot-{snapshot_id}"
