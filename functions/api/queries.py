"""Queries and search. The engines behind them are imported when asked for; an image without them says so."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path

from catalog.access.roles import Level
from catalog.errors import NotFound, Unavailable
from functions.api.app import JSON, asked, lake, serve
from functions.api.formats import ROWS_OUT, send_rows
from functions.api.models import Elsewhere, QueryIn, QueryOut, SearchIn
from functions.api.tables import allowed

QueryId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$")]
ROWS = {200: ROWS_OUT, 202: {JSON: QueryOut}, 303: {JSON: Elsewhere}}
SECONDS = 25.0
"""What a query may take: the function ends at 29, and the answer has to be written."""


@serve("POST /query", ROWS, problems=(403, 406, 409, 413, 415, 422), tag="query")
def run_query(query: QueryIn) -> Response[Any]:
    """Run one SELECT, over one cut of the timeline; the receipt says which. What is too large to run here is refused.

    `explain route select …` says where it would run and why.
    """
    with _engine("datafusion", "queries"):
        from catalog.query.engine import Limits, memory_of_process
        from catalog.query.statement import as_of_text

        found = lake().queries.run(
            query.sql,
            parameters=query.parameters or None,
            as_of=None if query.as_of is None else as_of_text(query.as_of),
            caller=asked().known(),
            verify=query.verify,
            fresh=query.fresh,
            limits=Limits(memory_of_process(), SECONDS),
        )
        rows = found.table()
    return send_rows(rows, more=False, receipt=found.receipt.as_dict())


@serve("GET /queries/{id}", ROWS, problems=(406, 422), tag="query")
def read_query(id: QueryId) -> Response[Any]:
    """The rows of a query that became a job, or how far it is."""
    raise NotFound(f"there is no query {id}: those that run here are answered at once", subject=id)


@serve("DELETE /queries/{id}", {204: {}}, problems=(403, 409, 422), tag="query")
def cancel_query(id: QueryId) -> Response[Any]:
    """Stop a query that became a job, and forget its rows."""
    raise NotFound(f"there is no query {id}: those that run here are answered at once", subject=id)


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
