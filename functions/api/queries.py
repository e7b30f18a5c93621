"""Queries, those that became jobs among them, and search.

The engines behind them are imported when asked for; an image without them says so.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from catalog.access.roles import Level
from catalog.errors import Unavailable
from functions.api.app import JSON, answer, asked, lake, serve
from functions.api.formats import ROWS_OUT, send_rows
from functions.api.models import Elsewhere, QueryIn, QueryOut, QueryRows, SearchIn
from functions.api.pages import read_token, write_token
from functions.api.tables import allowed

if TYPE_CHECKING:
    from catalog.query.submitted import Status

QueryId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$")]
Page = Annotated[str | None, Query(max_length=4096, description="`next` of the page before")]
ROWS = {200: ROWS_OUT, 202: {JSON: QueryOut}, 303: {JSON: Elsewhere}}
SECONDS = 25.0
"""What a query may take: the function ends at 29, and the answer has to be written."""
RETRY_AFTER = "2"


@serve("POST /query", ROWS, problems=(403, 406, 409, 413, 415, 422), tag="query")
def run_query(query: QueryIn) -> Response[Any]:
    """Run one SELECT, over one cut of the timeline; the receipt says which.

    What is too large to run here becomes a job: 202, with its place in `Location`. The same `Idempotency-Key` again is
    the same job. `explain route select …` says where it would run and why.
    """
    with _engine("datafusion", "queries"):
        from catalog.query.engine import Limits, memory_of_process
        from catalog.query.results import Answer
        from catalog.query.statement import as_of_text

        once, caller = asked().once(), asked().known()
        found = lake().queries.ask(
            query.sql,
            engine=query.engine,
            id=None if once is None else once.token[:32],
            parameters=query.parameters or None,
            as_of=None if query.as_of is None else as_of_text(query.as_of),
            caller=caller,
            verify=query.verify,
            fresh=query.fresh,
            limits=Limits(memory_of_process(), SECONDS),
        )
        if isinstance(found, Answer):
            return send_rows(found.table(), more=False, receipt=found.receipt.as_dict())
        if found.status == "running" and query.wait:
            found = lake().queries.wait(found.id, query.wait, caller)
    return _rows(found.id, None) if found.status == "done" else _told(found, 202)


@serve("GET /queries/{id}", {**ROWS, 200: {**ROWS_OUT, JSON: QueryRows}}, problems=(406, 409, 422), tag="query")
def read_query(
    id: QueryId,
    page: Page = None,
    rows: Annotated[bool, Query(description="false: only how it stands, whatever that is")] = True,
) -> Response[Any]:
    """The rows of a query that became a job, page by page; 202 while it runs, its own error if it failed."""
    with _engine("datafusion", "queries"):
        if page is not None and rows:
            return _rows(id, page)
        found = lake().queries.status(id, asked().known())
        if not rows:
            return _told(found, 200)
        return _told(found, 202) if found.status == "running" else _rows(id, None)


@serve("DELETE /queries/{id}", {204: {}}, problems=(403, 409, 422), tag="query")
def cancel_query(id: QueryId) -> Response[Any]:
    """Stop a query that became a job, and forget its rows. Done twice it is done once."""
    with _engine("datafusion", "queries"):
        lake().queries.cancel(id, asked().known())
    return answer(None, 204)


def _rows(id: str, page: str | None) -> Response[Any]:
    question = ["GET /queries", id]
    found = lake().queries.page(id, read_token(question, page) or 0, asked().known())
    following = None if found.next is None else write_token(question, found.next)
    return send_rows(found.rows, more=following is not None, receipt=found.receipt, following=following)


def _told(found: Status, status: int) -> Response[Any]:
    estimate = found.estimate
    told = QueryOut(
        id=found.id,
        status=found.status,
        detail=found.detail or None,
        reason=estimate["reason"] if estimate["route"] == "spark" else "it was asked for",
        submitted_ms=found.submitted_ms,
        estimated_bytes=estimate["bytes"],
        estimated_seconds=round(estimate["seconds"].get("spark", 0.0), 3),
        seconds=found.seconds,
        rows=found.rows,
        bytes=found.bytes,
        receipt=found.receipt,
    )
    headers = {"Cache-Control": "no-store"}
    if status == 202:
        headers |= {"Retry-After": RETRY_AFTER, "Location": f"queries/{found.id}"}
    return answer(told, status, headers)


@serve("POST /search", {200: ROWS_OUT, 303: {JSON: Elsewhere}}, problems=(403, 406, 409, 413, 415, 422), tag="query")
def search(wanted: SearchIn) -> Response[Any]:
    """The rows nearest in meaning to a text or vector, those with its words, or both; best first, with `score`."""
    allowed(Level.READ, wanted.table)
    with _engine("lancedb", "search"):
        rows = lake().vectors.search(
            f"{wanted.table}.{wanted.column}",
            wanted.text,
            vector=wanted.vector,
            mode=wanted.mode,
            k=wanted.limit,
            where=wanted.where,
            as_of=None if wanted.as_of is None else int(wanted.as_of),
        )
    return send_rows(rows, more=False)


@contextmanager
def _engine(package: str, what: str) -> Iterator[None]:
    if importlib.util.find_spec(package) is None:
        raise Unavailable(f"this deployment answers no {what}: its image has no {package}", subject=package)
    yield
