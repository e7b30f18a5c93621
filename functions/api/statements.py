"""Statements that write: INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER, DROP, and transactions."""

from __future__ import annotations

import time
from typing import Any

from aws_lambda_powertools.event_handler import Response

from functions.api.app import JSON, caller, lake, serve
from functions.api.idempotency import Attempt, run_once
from functions.api.queries import ask, engine_of, metered
from functions.api.query_models import StatementIn, StatementOut, StatementsOut

STATEMENTS_ROUTE = "POST /statements"
SECONDS = 20.0
"""For all that a statement reads: it has to commit before the function ends after 29 seconds."""


@serve(STATEMENTS_ROUTE, {200: {JSON: StatementsOut}}, problems=(403, 409, 413, 415, 422), tag="query")
def run_statement(statement: StatementIn) -> Response[Any]:
    """Run one statement that writes, or `BEGIN; …; COMMIT`: all of it, or nothing.

    Needs `write` for the tables whose rows it changes, `admin` for those that it creates, alters or drops, and `read`
    for the others that it reads; in a transaction `write` for these, too. With an `Idempotency-Key` it takes effect
    once, however often the request is repeated.
    """
    caller().require_role("run statements")

    def run(attempt: Attempt) -> StatementsOut:
        from catalog.query import EngineLimits, Writes, default_memory_budget

        deadline = time.monotonic() + SECONDS

        def read(sql: str, **options: Any) -> Any:
            limits = EngineLimits(default_memory_budget(), max(deadline - time.monotonic(), 0.1))
            return ask(sql, parameters=statement.parameters or None, limits=limits, **options)

        done = Writes(lake().tables, read, caller()).run(statement.sql, attempt)
        return StatementsOut(
            statements=[
                StatementOut(statement=one.statement, table=one.table, rows=one.rows, snapshot_id=one.snapshot_id)
                for one in done
            ]
        )

    with engine_of("duckdb", "queries"), metered("lambda"):
        return run_once(run, 200)
