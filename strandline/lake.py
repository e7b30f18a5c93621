"""The lake as one caller sees it, over the HTTP API."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from strandline.client import Client
from strandline.endpoints import Endpoint, resolve
from strandline.errors import Invalid, NotFound, Unavailable
from strandline.ingest import IngestedFile, Ingestion
from strandline.problems import translated
from strandline.proofs import Proof
from strandline.responses import Commit, Receipt, Written
from strandline.row_proofs import AnswerProof, RowProof
from strandline.rows import Result, Rows
from strandline.table import Table
from strandline.values import parameters, point

_PAUSE_S = 0.2


def connect(
    endpoint: str | None = None,
    token: str | None = None,
    *,
    timeout_s: float = 35.0,
    attempts: int = 6,
    transport: httpx.BaseTransport | None = None,
) -> Lake:
    """Opens a lake. Sends no request yet.

    Endpoint and token come from the arguments; from STRANDLINE_ENDPOINT and STRANDLINE_TOKEN; from the profile that
    `strandline login` stored; or from the lake that `strandline dev` runs on this machine. The profile's token is sent
    only to the profile's endpoint. `attempts`: the most times a request is sent if the lake is overloaded or does not
    respond.

    >>> lake = strandline.connect()
    >>> "silver.tides" in lake.tables()
    True
    """
    return Lake(resolve(endpoint, token), timeout_s=timeout_s, attempts=attempts, transport=transport)


class Lake:
    """A lake behind its HTTP API. `connect` returns it; it is safe to share between threads.

    >>> with strandline.connect() as lake:
    ...     lake.sql("select count(*) as n from silver.tides").rows()
    [{'n': 2}]
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout_s: float = 35.0,
        attempts: int = 6,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._client = Client(endpoint.url, endpoint.token, timeout_s=timeout_s, attempts=attempts, transport=transport)

    @property
    def endpoint(self) -> str:
        """The API's address.

        >>> lake.endpoint.startswith("http")
        True
        """
        return self._endpoint.url

    @property
    def client(self) -> Client:
        """The HTTP client, with a method for each route: for routes that this class does not cover.

        >>> lake.client.health()["status"]
        'ok'
        """
        return self._client

    def close(self) -> None:
        """Closes the connections. `with strandline.connect() as lake:` does so at its end.

        >>> strandline.connect().close()
        """
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<strandline.Lake {self._endpoint.url} ({self._endpoint.source})>"

    def sql(
        self,
        sql: str,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        as_of: int | str | datetime | date | None = None,
        verify: bool = False,
        fresh: bool = False,
        engine: Literal["auto", "lambda", "spark"] = "auto",
        wait_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> Result:
        """Runs one SELECT. All its tables are read at one index of the timeline: the newest, or `as_of`.

        `params`: values for `$name`, or a list for `$1`, `$2`, …. `as_of`: an index, a time, or the name of a cut of
        the whole lake. `verify`: the lake checks every object it reads against the signed timeline. `fresh`: reads
        each table's newest commit, whether it is in the timeline yet or not. A large query runs as a job, and this
        waits for it; raises `Pending` if the job is not done after `wait_s` seconds.

        >>> lake.sql("select station from silver.tides where metres > $least", params={"least": 4}).rows()
        [{'station': 'Brest'}]
        >>> newest = lake.sql("select * from silver.tides").receipt["index"]
        >>> len(lake.sql("select * from silver.tides", as_of=newest))
        2
        """
        at = None if as_of is None else point(as_of)
        with translated(self.endpoint):
            table = self._client.query(
                sql,
                parameters(params),
                as_of=at,
                verify=verify,
                fresh=fresh,
                engine=engine,
                wait_s=wait_s,
                idempotency_key=idempotency_key,
            )
        return Result(table)

    def execute(
        self,
        sql: str,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> list[Written]:
        """Runs one statement that writes, or `BEGIN; …; COMMIT`: all of it, or nothing. Returns what each one did.

        INSERT, UPDATE, DELETE, MERGE, and CREATE, ALTER and DROP TABLE. With an idempotency key it takes effect once,
        however often it is sent. `commit` waits for the leaf of what it returns.

        >>> lake.execute("update silver.scratch set metres = metres + $more", {"more": 1})[0]["rows"]
        1
        >>> done = lake.execute("insert into silver.scratch values ('Leith', 5.5)", idempotency_key="leith-1")
        >>> lake.execute("insert into silver.scratch values ('Leith', 5.5)", idempotency_key="leith-1") == done
        True
        """
        with translated(self.endpoint):
            return self._client.execute(sql, parameters(params), idempotency_key=idempotency_key)

    def tables(self, database: str | None = None) -> list[str]:
        """The names of the tables that you may read.

        >>> "silver.tides" in lake.tables("silver")
        True
        """
        with translated(self.endpoint):
            return list(self._client.tables(database))

    def table(self, name: str) -> Table:
        """A table, to read and write. Sends no request yet.

        >>> lake.table("silver.tides").describe()["rows"]
        2
        """
        if name.count(".") != 1:
            raise Invalid(f"{name!r} is not a table name: write DATABASE.TABLE, like silver.tides")
        return Table(self, name)

    def create_table(
        self,
        name: str,
        columns: Mapping[str, str],
        *,
        key: Sequence[str] = (),
        mode: Literal["cow", "mor", "hybrid"] = "cow",
        partition: Sequence[str] = (),
        sort: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Table:
        """Creates an Iceberg table. `columns`: name to Iceberg type, in order. `key`: the columns that identify a row.

        `mode`: copy-on-write, merge-on-read, or hybrid, which chooses for each write. `partition`: `day(at)`,
        `bucket(16, id)`, `region`. `sort`: `at desc`.

        >>> lake.create_table("silver.levels", {"id": "long", "at": "timestamptz"}, key=["id"], partition=["day(at)"])
        <strandline.Table silver.levels>
        """
        if not isinstance(columns, Mapping):
            raise Invalid('columns is a dict, name to Iceberg type: write {"station": "string"}')
        shape: Any = {"key": key, "mode": mode, "partition": partition, "sort": sort}
        for option in ("key", "partition", "sort"):
            if isinstance(shape[option], str):
                raise Invalid(f"{option} is a list: write [{shape[option]!r}]")
        with translated(self.endpoint):
            self._client.create_table(name, columns, idempotency_key=idempotency_key, **shape)
        return Table(self, name)

    def drop_table(self, name: str, *, purge: bool = False) -> None:
        """Removes a table from the catalog; with `purge`, deletes its files too. Its history in the timeline stays.

        >>> _ = lake.create_table("silver.short_lived", {"id": "long"})
        >>> lake.drop_table("silver.short_lived")
        """
        with translated(self.endpoint):
            self._client.drop_table(name, purge=purge)

    def search(
        self,
        table: str,
        column: str,
        text: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        mode: Literal["vector", "text", "hybrid"] = "hybrid",
        where: str | None = None,
        limit: int = 10,
    ) -> Rows:
        """The rows of a table nearest to a text, best first, with `score`: by meaning (vector), words (text), or both.

        The column needs embeddings: `strandline vectors create silver.notes text`.

        >>> lake.search("silver.notes", "text", "spring tide", limit=1).rows()[0]["id"]
        1
        """
        options: dict[str, Any] = {"text": text, "vector": None if vector is None else list(vector), "where": where}
        present = {name: value for name, value in options.items() if value is not None}
        with translated(self.endpoint):
            return Rows(self._client.search(table, column, mode=mode, limit=limit, **present))

    def ingest(
        self,
        path: str | os.PathLike[str],
        table: str,
        *,
        timeout_s: float = 120.0,
        progress: Callable[[IngestedFile], None] | None = None,
    ) -> list[IngestedFile]:
        """Ingests a file, or all files of a folder, into a table; returns what became of each.

        The name of a file in a folder is its path relative to the folder; hidden files are skipped. A faulty file does
        not affect the others. Waits at most `timeout_s`: a file that takes longer has the status `landing` and is
        ingested later. `progress` is called with each file when it is sent and when its status is final. A file that is
        sent twice is ingested once.

        >>> import pathlib
        >>> pathlib.Path("exports/2026").mkdir(parents=True)
        >>> _ = pathlib.Path("exports/2026/monday.csv").write_text("station,metres\\nLeith,5.5\\n")
        >>> _ = pathlib.Path("exports/broken.csv").write_text("station,metres\\nLeith,")
        >>> for file in lake.ingest("exports", "bronze.levels"):
        ...     print(file.name, file.status)
        2026/monday.csv committed
        broken.csv ...
        """
        with translated(self.endpoint):
            return Ingestion(self._client, table, progress).run(Path(path), timeout_s)

    def commit(self, what: int | Mapping[str, Any] | Receipt, *, timeout_s: float = 30.0) -> Commit:
        """A commit in the timeline: by its index, or by a write's receipt. Waits until the sequencer has added it.

        >>> receipt = lake.table("silver.scratch").insert([{"station": "Hull", "metres": 1.5}])
        >>> lake.commit(receipt)["operation"]
        'append'
        """
        commit: Commit = self._when_sequenced(what, timeout_s, lambda id_: self._client.commit(**id_))
        return commit

    def prove(self, what: int | Mapping[str, Any] | Receipt, *, timeout_s: float = 30.0) -> Proof:
        """A proof file that a commit is in the timeline: by its index, a write's receipt, or a row of `history`.

        >>> proof = lake.prove(tides.history().rows()[0])
        >>> proof.verify(key=key, table="silver.tides", uuid=tides.uuid).operation
        'create'
        """
        return Proof(self._when_sequenced(what, timeout_s, lambda id_: self._client.proof(**id_)))

    def prove_row(
        self, table: str, key: Mapping[str, Any], at: int | str | datetime | date | None = None, *, values: bool = True
    ) -> RowProof:
        """A proof that the table had a row of this key at an index of the timeline or a time, or had none; now if not
        given. `key`: key column -> value. `values`: whether the proof shows the row, and not only its digest.

        >>> proof = lake.prove_row("silver.tides", {"station": "Atlantis"})
        >>> proof.verify(key=key, table="silver.tides", row={"station": "Atlantis"}, at=proof.index).exists
        False
        """
        with translated(self.endpoint):
            return RowProof(self._client.row_proof(table, key, None if at is None else point(at), values=values))

    def prove_answer(
        self,
        table: str,
        keys: Mapping[str, Sequence[Any]] | None = None,
        ranges: Mapping[str, tuple[Any, Any]] | None = None,
        at: int | str | datetime | date | None = None,
        *,
        values: bool = True,
    ) -> AnswerProof:
        """A proof of all rows that the table had of these keys at an index of the timeline or a time; now if not given.

        `keys`: key column -> values. `ranges`: key column -> first and last, of whole numbers or days. At most 1,000
        keys in all: every combination counts. `values`: whether the proof shows the rows, and not only their digests.

        >>> proof = lake.prove_answer("silver.tides", {"station": ["Brest", "Atlantis"]})
        >>> keys = {"station": ["Brest", "Atlantis"]}
        >>> len(proof.verify(key=key, table="silver.tides", keys=keys, at=proof.index).rows)
        1
        """
        with translated(self.endpoint):
            asked = None if at is None else point(at)
            return AnswerProof(self._client.answer_proof(table, keys or {}, ranges or {}, asked, values=values))

    def checkpoint(self) -> bytes:
        """The timeline's signed checkpoint: its size and root now. Keep it to check later that history only grew.

        >>> strandline.verify.checkpoint(lake.checkpoint(), key=key).size > 0
        True
        """
        with translated(self.endpoint):
            return self._client.checkpoint()

    def consistency(self, old_size: int) -> dict[str, Any]:
        """The newest checkpoint, and the consistency proof that it extends the tree of `old_size` leaves.

        >>> size = strandline.verify.checkpoint(lake.checkpoint(), key=key).size
        >>> lake.consistency(size)["new_size"] >= size
        True
        """
        with translated(self.endpoint):
            return self._client.consistency(old_size)

    def verifier_keys(self) -> list[str]:
        """The keys that, by the lake's own account, sign its checkpoints, the newest first.

        To verify without trusting the lake, get the key from elsewhere: a contract, or an earlier visit.

        >>> key in lake.verifier_keys()
        True
        """
        with translated(self.endpoint):
            return self._client.verifier_keys()

    def name_snapshot(self, name: str, table: str | None = None) -> dict[str, Any]:
        """Names the newest snapshot of a table, for `at`; without a table, a cut of the whole lake, for `as_of`.

        >>> scratch = lake.table("silver.scratch")
        >>> _ = lake.name_snapshot("before-repair", "silver.scratch")
        >>> len(scratch.at("before-repair").rows()) == len(scratch.rows())
        True
        """
        with translated(self.endpoint):
            return self._client.name_snapshot(name, table)

    def _when_sequenced(
        self, what: int | Mapping[str, Any] | Receipt, timeout_s: float, fetch: Callable[[Any], Any]
    ) -> Any:
        commit_id, deadline = _commit_id(what), time.monotonic() + timeout_s
        while True:
            try:
                with translated(self.endpoint):
                    return fetch(commit_id)
            except NotFound:
                if "index" in commit_id:
                    raise
                if time.monotonic() >= deadline:
                    message = f"snapshot {commit_id['snapshot_id']} is not in the timeline after {timeout_s:g} s"
                    raise Unavailable(f"{message}. {Unavailable.next_step}") from None
            time.sleep(_PAUSE_S)


def _commit_id(what: Any) -> dict[str, Any]:
    if isinstance(what, int) and not isinstance(what, bool):
        return {"index": what}
    if isinstance(what, Mapping):
        for name in ("index", "snapshot_id"):
            if what.get(name) is not None:
                return {name: what[name]}
        raise Invalid("this receipt has no snapshot: the write changed no row, so there is no commit")
    raise Invalid(f"{what!r} is not a commit: pass its index in the timeline, or the receipt of a write")
