"""Queries that became jobs: submitted once, looked at, read page by page, cancelled. Nothing is kept in this process.

A crash between the query's record and its run is recovered by whoever looks next: the run is asked for again under the
same token. Only the caller that submitted a query is told of it, as long as it may read its tables, and who may
administer everything; to everybody else there is no such query.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.access.roles import Level, Role
from catalog.errors import Conflict, Internal, Invalid, LakeError, NotFound, Unverified
from catalog.query.spark_runs import ENDED, SparkRuns
from catalog.query.submissions import Asked, Part, Submission

PAGE_ROWS = 100_000
PAGE_BYTES = 1 << 20
"""Of Parquet: parts are put together to a page while they stay below both."""
POLL_SECONDS = 0.5

State = Literal["running", "done", "failed", "cancelled"]


class Reader(Protocol):
    """Who asks for a submitted query."""

    @property
    def subject(self) -> str: ...

    @property
    def roles(self) -> tuple[Any, ...]: ...

    def readable(self, tables: Any) -> list[str]: ...


@dataclass(frozen=True)
class Status:
    """How a query stands. `detail`: while it runs the engine's own word, of a failed one the reason."""

    id: str
    status: State
    detail: str
    submitted_ms: int
    receipt: dict[str, Any]
    estimate: dict[str, Any]
    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    error: LakeError | None = None


@dataclass(frozen=True)
class Page:
    """Some rows of an answer, in its order. `next` is where the following page begins; None after the last."""

    rows: pa.Table
    next: int | None
    receipt: dict[str, Any]


class Submitted:
    def __init__(self, s3: Any, bucket: str, runs: Callable[[], SparkRuns]) -> None:
        self._s3, self._bucket, self._runs = s3, bucket, runs

    def submit(self, asked: Asked) -> Status:
        """Keeps what was asked and starts its run; the same id asked again is the same query.

        Unverified if the id stands for another one. Three requests.
        """
        place = self._place(asked.id)
        if not place.create(asked):
            known = place.asked()
            if known is None or (known.digest, known.subject) != (asked.digest, asked.subject):
                raise Unverified(f"the id {asked.id} stands for another query: submit it under a new one")
            asked = known
        self._started(place, asked)
        return self._look(place, asked)

    def status(self, query_id: str, caller: Reader | None) -> Status:
        place, asked = self._known(query_id, caller)
        return self._look(place, asked)

    def wait(self, query_id: str, caller: Reader | None, seconds: float) -> Status:
        """The status once the query has ended, or as it is when the time is over."""
        deadline = time.monotonic() + seconds
        place, asked = self._known(query_id, caller)
        while (found := self._look(place, asked)).status == "running" and time.monotonic() < deadline:
            time.sleep(min(POLL_SECONDS, max(deadline - time.monotonic(), 0.0)))
        return found

    def page(self, query_id: str, at: int, caller: Reader | None) -> Page:
        """The page that begins at part `at`. Conflict while it runs, NotFound if it was cancelled, its own error if
        it failed."""
        place, asked = self._known(query_id, caller)
        result = None if place.cancelled() else place.result()
        if result is None:
            raise _no_rows(self._look(place, asked))
        parts = [Part(**one) for one in result["parts"]]
        if at < 0 or at > len(parts) or (parts and at == len(parts)):
            raise NotFound(f"query {query_id} has {len(parts)} parts, and none with the number {at}")
        end, rows, size = at, 0, 0
        while end < len(parts) and (
            end == at or (rows + parts[end].rows <= PAGE_ROWS and size + parts[end].bytes <= PAGE_BYTES)
        ):
            rows, size, end = rows + parts[end].rows, size + parts[end].bytes, end + 1
        tables = [_table(place.rows(part), asked.schema) for part in parts[at:end]]
        found = pa.concat_tables(tables) if tables else _empty(asked.schema)
        return Page(found, end if end < len(parts) else None, asked.receipt)

    def cancel(self, query_id: str, caller: Reader | None) -> None:
        """Asks the run to end and forgets the rows. Done twice it is done once."""
        place, _ = self._known(query_id, caller)
        place.cancel()  # first: from here on no result counts, whatever the run still writes
        run = place.run()
        if run is not None and self._runs().state(run)[0] not in ENDED:
            self._runs().cancel(run)
        place.forget()

    def asked(self, query_id: str, caller: Reader | None) -> Asked:
        return self._known(query_id, caller)[1]

    def _place(self, query_id: str) -> Submission:
        return Submission(self._s3, self._bucket, query_id)

    def _known(self, query_id: str, caller: Reader | None) -> tuple[Submission, Asked]:
        place = self._place(query_id)
        asked = place.asked()
        if asked is None or not _may_see(asked, caller):
            raise NotFound(
                f"there is no query {query_id}, or none of yours: results are kept for a day", subject=query_id
            )
        return place, asked

    def _started(self, place: Submission, asked: Asked) -> str | None:
        run = place.run()
        if run is None and not place.cancelled():
            run = self._runs().start(asked.id)
            place.started(run)
        return run

    def _look(self, place: Submission, asked: Asked) -> Status:
        if place.cancelled():
            return _status(asked, "cancelled", "it was cancelled, and its rows forgotten")
        if (found := _ended(place, asked)) is not None:
            return found
        run = self._started(place, asked)
        if run is None:
            return _status(asked, "cancelled", "it was cancelled, and its rows forgotten")
        state, details = self._runs().state(run)
        if state not in ENDED:
            return _status(asked, "running", state.lower())
        # It may have ended between the two looks: what it left counts more than how its process ended.
        if (found := _ended(place, asked)) is not None:
            return found
        if state == "CANCELLED":
            error: LakeError = Conflict(f"the run of query {asked.id} was ended: {details or 'nobody said why'}")
        else:
            error = Internal(f"the run of query {asked.id} {state.lower()} and left no result: {details}")
        return _status(asked, "failed", error.message, error=error)


def _ended(place: Submission, asked: Asked) -> Status | None:
    result = place.result()
    if result is not None:
        seconds = round((result["ended_ms"] - asked.submitted_ms) / 1000, 3)
        return _status(asked, "done", "", rows=result["rows"], bytes=result["bytes"], seconds=seconds)
    failure = place.failure()
    if failure is None:
        return None
    # Whatever kind it was in the job, asking again for its rows helps only if the query is mended or submitted anew.
    mended = failure["kind"] == Invalid.kind.name
    error = Invalid(failure["message"]) if mended else Internal(f"query {asked.id} failed: {failure['message']}")
    return _status(asked, "failed", error.message, error=error)


def _status(asked: Asked, status: State, detail: str, **more: Any) -> Status:
    return Status(asked.id, status, detail, asked.submitted_ms, asked.receipt, asked.explanation, **more)


def _no_rows(found: Status) -> LakeError:
    if found.status == "running":
        return Conflict(f"query {found.id} is not done yet ({found.detail}): ask again later", subject=found.id)
    if found.status == "failed" and found.error is not None:
        return found.error
    return NotFound(f"query {found.id} has no rows: {found.detail or 'they are gone'}", subject=found.id)


def _may_see(asked: Asked, caller: Reader | None) -> bool:
    if caller is None or Role(Level.ADMIN, "*") in caller.roles:  # None: who holds the lake's own credentials
        return True
    tables = sorted({one.table for one in asked.reads})
    return asked.subject == caller.subject and len(caller.readable(tables)) == len(tables)


def _table(body: bytes, schema: pa.Schema) -> pa.Table:
    found = pq.read_table(pa.BufferReader(body))
    return pa.Table.from_arrays(found.columns, names=schema.names)


def _empty(schema: pa.Schema) -> pa.Table:
    return schema.empty_table()
