"""Queries that run on Spark: submit, status, pages of the result, cancel. Keeps no state in this process.

After a crash between storing a query's record and starting its job run, the next status request starts the run, with
the same client token. A query is visible to the caller that submitted it, as long as that caller may read its tables,
and to administrators of everything; for everybody else it does not exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.access import Level, Role
from catalog.core.errors import Conflict, Internal, Invalid, LakeError, NotFound
from catalog.query.spark.job_runs import ENDED, SparkJobRuns
from catalog.query.spark.query_record import QueryRecord, QueryRecords, ResultPart

PAGE_ROWS = 100_000
PAGE_BYTES = 1 << 20
"""Size as Parquet. Parts are joined to a page while it stays below both limits."""
POLL_SECONDS = 0.5
_CANCELLED = "it was cancelled and its rows were deleted"

State = Literal["running", "done", "failed", "cancelled"]


class IdentifiedCaller(Protocol):
    """A caller whose subject tells which queries it submitted."""

    @property
    def subject(self) -> str: ...

    @property
    def roles(self) -> tuple[Any, ...]: ...

    def readable(self, tables: Any) -> list[str]: ...


@dataclass(frozen=True)
class QueryStatus:
    """The status of a query. `detail`: EMR's state while it runs, the reason if it failed."""

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
class ResultPage:
    """Some rows of a result, in its order. `next` is the token of the following page; None after the last."""

    rows: pa.Table
    next: int | None
    receipt: dict[str, Any]


class SparkQueries:
    def __init__(self, s3: Any, bucket: str, runs: Callable[[], SparkJobRuns]) -> None:
        self._s3, self._bucket, self._runs = s3, bucket, runs

    def submit(self, record: QueryRecord) -> QueryStatus:
        """Stores the record and starts its job run. Repeating an id returns the query that has it.

        Conflict if that is another query. Three requests.
        """
        records = self._records(record.id)
        if not records.create(record):
            existing = records.record()
            if existing is None or (existing.digest, existing.subject) != (record.digest, record.subject):
                raise Conflict(f"the id {record.id} belongs to another query: submit with a new id", subject=record.id)
            record = existing
        self._ensure_run(records, record)
        return self._status(records, record)

    def status(self, query_id: str, caller: IdentifiedCaller | None) -> QueryStatus:
        records, record = self._visible(query_id, caller)
        return self._status(records, record)

    def wait(self, query_id: str, caller: IdentifiedCaller | None, seconds: float) -> QueryStatus:
        """Polls until the query has ended or the time is over, and returns the status."""
        deadline = time.monotonic() + seconds
        records, record = self._visible(query_id, caller)
        while (status := self._status(records, record)).status == "running" and time.monotonic() < deadline:
            time.sleep(min(POLL_SECONDS, max(deadline - time.monotonic(), 0.0)))
        return status

    def page(self, query_id: str, at: int, caller: IdentifiedCaller | None) -> ResultPage:
        """The page that begins at part `at`. Conflict while the query runs, NotFound if it was cancelled, and the
        query's own error if it failed."""
        records, record = self._visible(query_id, caller)
        result = None if records.cancelled() else records.result()
        if result is None:
            raise _no_result(self._status(records, record))
        parts = [ResultPart(**part) for part in result["parts"]]
        if at < 0 or at > len(parts) or (parts and at == len(parts)):
            raise NotFound(f"query {query_id} has {len(parts)} parts, but not part {at}: use the next token of a page")
        end, rows, size = at, 0, 0
        while end < len(parts) and (
            end == at or (rows + parts[end].rows <= PAGE_ROWS and size + parts[end].bytes <= PAGE_BYTES)
        ):
            rows, size, end = rows + parts[end].rows, size + parts[end].bytes, end + 1
        tables = [_table(records.rows(part), record.schema) for part in parts[at:end]]
        page = pa.concat_tables(tables) if tables else record.schema.empty_table()
        return ResultPage(page, end if end < len(parts) else None, record.receipt)

    def cancel(self, query_id: str, caller: IdentifiedCaller | None) -> None:
        """Cancels the job run and deletes the rows. Idempotent."""
        records, _ = self._visible(query_id, caller)
        records.cancel()  # first: from now on no result is returned, whatever the run still writes
        run = records.run()
        if run is not None and self._runs().state(run)[0] not in ENDED:
            self._runs().cancel(run)
        records.delete_result()

    def vcpu_hours(self, query_id: str) -> float | None:
        """What the query's job run used; None while that is not known. Zero for a query that is no longer kept, or was
        cancelled before it had a run. Two requests, or three."""
        records = self._records(query_id)
        run = records.run()
        if run is None:
            return 0.0 if records.cancelled() or records.record() is None else None
        return self._runs().vcpu_hours(run)

    def record(self, query_id: str, caller: IdentifiedCaller | None) -> QueryRecord:
        return self._visible(query_id, caller)[1]

    def _records(self, query_id: str) -> QueryRecords:
        return QueryRecords(self._s3, self._bucket, query_id)

    def _visible(self, query_id: str, caller: IdentifiedCaller | None) -> tuple[QueryRecords, QueryRecord]:
        """The query's objects and its record. NotFound if the caller may not see it."""
        records = self._records(query_id)
        record = records.record()
        if record is None or not _may_see(record, caller):
            raise NotFound(
                f"there is no query {query_id}, or it is not yours: results are kept for a day", subject=query_id
            )
        return records, record

    def _ensure_run(self, records: QueryRecords, record: QueryRecord) -> str | None:
        """The id of the query's job run, which is started if there is none; None if the query was cancelled."""
        run = records.run()
        if run is None and not records.cancelled():
            run = self._runs().start(record.id)
            records.store_run(run)
        return run

    def _status(self, records: QueryRecords, record: QueryRecord) -> QueryStatus:
        if records.cancelled():
            return _query_status(record, "cancelled", _CANCELLED)
        if (ended := _ended_status(records, record)) is not None:
            return ended
        run = self._ensure_run(records, record)
        if run is None:
            return _query_status(record, "cancelled", _CANCELLED)
        state, details = self._runs().state(run)
        if state not in ENDED:
            return _query_status(record, "running", state.lower())
        # The run may have ended after the first look at its result; a result decides before the run's state.
        if (ended := _ended_status(records, record)) is not None:
            return ended
        if state == "CANCELLED":
            error: LakeError = Conflict(f"the run of query {record.id} was cancelled: {details or 'no reason given'}")
        else:
            error = Internal(f"the run of query {record.id} ended as {state.lower()} without a result: {details}")
        return _query_status(record, "failed", error.message, error=error)


def _ended_status(records: QueryRecords, record: QueryRecord) -> QueryStatus | None:
    """The status from the query's result or failure; None if it has neither."""
    result = records.result()
    if result is not None:
        seconds = round((result["ended_ms"] - record.submitted_ms) / 1000, 3)
        return _query_status(record, "done", "", rows=result["rows"], bytes=result["bytes"], seconds=seconds)
    failure = records.failure()
    if failure is None:
        return None
    # Whatever its kind in the job, requesting the rows again does not help: the query must be changed or resubmitted.
    is_invalid = failure["kind"] == Invalid.kind.name
    error = Invalid(failure["message"]) if is_invalid else Internal(f"query {record.id} failed: {failure['message']}")
    return _query_status(record, "failed", error.message, error=error)


def _query_status(record: QueryRecord, status: State, detail: str, **more: Any) -> QueryStatus:
    return QueryStatus(record.id, status, detail, record.submitted_ms, record.receipt, record.explanation, **more)


def _no_result(status: QueryStatus) -> LakeError:
    if status.status == "running":
        return Conflict(f"query {status.id} is not done yet ({status.detail}): try again later", subject=status.id)
    if status.status == "failed" and status.error is not None:
        return status.error
    return NotFound(f"query {status.id} has no rows: {status.detail or 'they were deleted'}", subject=status.id)


def _may_see(record: QueryRecord, caller: IdentifiedCaller | None) -> bool:
    if caller is None or Role(Level.ADMIN, "*") in caller.roles:  # None: a process with the lake's own credentials
        return True
    tables = sorted({read.table for read in record.reads})
    return record.subject == caller.subject and len(caller.readable(tables)) == len(tables)


def _table(body: bytes, schema: pa.Schema) -> pa.Table:
    """A part's rows; its columns are numbered in the file and named by the schema."""
    return pa.Table.from_arrays(pq.read_table(pa.BufferReader(body)).columns, names=schema.names)
