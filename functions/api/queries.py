"""Queries, including those that run as jobs on Spark, and search.

The engines are imported on first use; in an image without them the response is 503.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from catalog import Invalid, LakeError, Unavailable, query_workers
from catalog.access import Level, Measured
from functions.api.app import JSON, caller, current_request, lake, respond, serve, usage_meter
from functions.api.models import Elsewhere
from functions.api.page_tokens import read_token, write_token
from functions.api.problems import limit_refusal
from functions.api.query_models import QueryIn, QueryOut, QueryRows, SearchIn
from functions.api.row_formats import ROWS_OUT, check_sendable, send_rows
from functions.api.tables import authorize

if TYPE_CHECKING:
    from catalog.query import Answer, QueryStatus, QueryWorkers

log = logging.getLogger(__name__)

QueryId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$")]
Page = Annotated[str | None, Query(max_length=4096, description="`next` of the page before")]
ROWS = {200: ROWS_OUT, 202: {JSON: QueryOut}, 303: {JSON: Elsewhere}}
SECONDS = 25.0
"""The time limit of a query: the function ends after 29 seconds, and the response has to be written."""
RETRY_AFTER = "2"
QUERY_ROUTE = "POST /query"
SPARK_VCPUS, SPARK_START_S = 16, 60
"""What a job is counted with: EMR Serverless's default workers, and the time until they run."""


@serve(QUERY_ROUTE, ROWS, problems=(403, 406, 409, 413, 415, 422), tag="query")
def run_query(query: QueryIn) -> Response[Any]:
    """Run one SELECT over one cut of the timeline; the receipt says which.

    A query that is too large to run here becomes a job: the response is 202, with its path in `Location`. Repeating the
    request with the same `Idempotency-Key` returns the same job. `explain route select …` says where a query would run,
    and why.
    """
    caller().require_role("run queries")
    with engine_of("duckdb", "queries"), metered(query.engine) as (engine, measured):
        from catalog.query import Answer, EngineLimits, default_memory_budget, is_write

        if is_write(query.sql):
            raise Invalid("a statement that writes is not a query: send it to POST /statements")
        idempotent = current_request().idempotent()
        result = ask(
            query.sql,
            engine=engine,
            id=None if idempotent is None else idempotent.token[:32],
            parameters=query.parameters or None,
            as_of=query.as_of,
            caller=caller(),
            verify=query.verify,
            fresh=query.fresh,
            limits=EngineLimits(default_memory_budget(), SECONDS),
        )
        if isinstance(result, Answer):
            measured.scanned_bytes = result.receipt.bytes
            check_sendable(result.schema)
            return send_rows(result.table(), more=False, receipt=result.receipt.as_dict())
        if result.status == "running":  # not one that a repeated request found ended
            measured.spark_vcpu_seconds = SPARK_VCPUS * (SPARK_START_S + result.estimate["seconds"].get("spark", 0.0))
            measured.spark_query_id = result.id
        if result.status == "running" and query.wait:
            result = lake().queries.wait(result.id, query.wait, caller())
    return _rows(result.id, None) if result.status == "done" else _status(result, 202)


@serve("GET /queries/{id}", {**ROWS, 200: {**ROWS_OUT, JSON: QueryRows}}, problems=(406, 409, 422), tag="query")
def read_query(
    id: QueryId,
    page: Page = None,
    rows: Annotated[bool, Query(description="false: only the status of the query")] = True,
) -> Response[Any]:
    """The rows of a query that became a job, page by page; 202 while it runs, its error if it failed."""
    with engine_of("duckdb", "queries"):
        if page is not None and rows:
            return _rows(id, page)
        query = lake().queries.status(id, caller())
        if query.status != "running" and (meter := usage_meter()) is not None:
            meter.settle(caller(), _vcpu_hours)
        if not rows:
            return _status(query, 200)
        return _status(query, 202) if query.status == "running" else _rows(id, None)


@serve("DELETE /queries/{id}", {204: {}}, problems=(403, 409), tag="query")
def cancel_query(id: QueryId) -> Response[Any]:
    """Stop a query that became a job, and delete its rows. Idempotent."""
    with engine_of("duckdb", "queries"):
        lake().queries.cancel(id, caller())
    return respond(None, 204)


@contextmanager
def metered(engine: str) -> Iterator[tuple[str, Measured]]:
    """Counts the query against the caller's limits; Refusal (429) beyond one. With nothing left for Spark, a query
    that may choose runs here or not at all."""
    meter = usage_meter()
    if meter is None:
        yield engine, Measured()
        return
    with meter.query(caller()) as (excess, usage, measured):
        if engine == "spark" or meter.spark_is_used_up(caller(), usage):
            usage = meter.settle(caller(), _vcpu_hours)  # by what its jobs used, as far as that is known
        used_up = meter.spark_is_used_up(caller(), usage)
        excess = excess or (used_up if engine == "spark" else None)
        if excess is not None:
            raise limit_refusal(excess)
        yield "lambda" if used_up and engine == "auto" else engine, measured


def _vcpu_hours(query_id: str) -> float | None:
    try:
        return lake().spark_queries.vcpu_hours(query_id)
    except LakeError as error:  # EMR or S3 does not respond: the estimate counts
        log.warning("job not settled", extra={"reason": error.message, "query": query_id})
        return None


def ask(sql: str, **options: Any) -> Answer | QueryStatus:
    """Runs the statement in a worker, unless the settings say in this process."""
    if not lake().settings.query_workers:
        return lake().queries.ask(sql, **options)
    return _workers().ask(sql, seen_size=_seen_size(), **options)


@cache
def _workers() -> QueryWorkers:
    return query_workers(lake().settings)


def _seen_size() -> int | None:
    """The size of the timeline that this process has read; None if it has not. Whoever was told of a commit here sees
    it in a query. No request."""
    if "timeline" not in vars(lake()):
        return None
    try:
        return lake().timeline.head().checkpoint.size
    except LakeError:
        return None


def _rows(id: str, page: str | None) -> Response[Any]:
    scope = ["GET /queries", id]
    result = lake().queries.page(id, read_token(scope, page) or 0, caller())
    following = None if result.next is None else write_token(scope, result.next)
    return send_rows(result.rows, more=following is not None, receipt=result.receipt, following=following)


def _status(query: QueryStatus, status: int) -> Response[Any]:
    estimate = query.estimate
    shown = QueryOut(
        id=query.id,
        status=query.status,
        detail=query.detail or None,
        reason=estimate["reason"] if estimate["route"] == "spark" else "the request has engine=spark",
        submitted_ms=query.submitted_ms,
        estimated_bytes=estimate["bytes"],
        estimated_seconds=round(estimate["seconds"].get("spark", 0.0), 3),
        seconds=query.seconds,
        rows=query.rows,
        bytes=query.bytes,
        receipt=query.receipt,
    )
    headers = {"Cache-Control": "no-store"}
    if status == 202:
        headers |= {"Retry-After": RETRY_AFTER, "Location": f"queries/{query.id}"}
    return respond(shown, status, headers)


@serve("POST /search", {200: ROWS_OUT, 303: {JSON: Elsewhere}}, problems=(403, 406, 409, 413, 415, 422), tag="query")
def search(query: SearchIn) -> Response[Any]:
    """The rows nearest in meaning to a text or vector, those with its words, or both; best first, with `score`."""
    authorize(Level.READ, query.table)
    with engine_of("lancedb", "search"):
        rows = lake().vectors.search(
            f"{query.table}.{query.column}",
            query.text,
            vector=query.vector,
            mode=query.mode,
            k=query.limit,
            where=query.where,
            as_of=query.as_of,
        )
    return send_rows(rows, more=False)


@contextmanager
def engine_of(package: str, what: str) -> Iterator[None]:
    """Unavailable if this image has no such package."""
    if importlib.util.find_spec(package) is None:
        raise Unavailable(f"this deployment does not support {what}: its image has no {package}", subject=package)
    yield
