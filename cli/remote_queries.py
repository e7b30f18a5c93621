"""`strandline api`: queries and search over HTTP, and the results of queries that run as jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from catalog import Invalid
from cli.api_connection import Key, TableName, Yes, connected
from cli.lake_commands import add_command, confirm
from cli.query import Engine, parameters, values_of
from cli.times import AS_OF_HELP, past_point


def register(group: typer.Typer) -> None:
    add_command(
        group,
        query,
        "api query 'select count(*) from silver.tides'",
        "api query @report.sql --as-of q1",
        "api query 'select * from silver.tides where id = $id' --param id=7 --verify",
    )
    add_command(
        group,
        execute,
        "api execute 'delete from silver.tides where metres < 0' --yes",
        "api execute @monthly.sql --idempotency-key march --yes",
    )
    add_command(group, result, "api result 4f1c2d", "api result 4f1c2d --status", "api result 4f1c2d --cancel")
    add_command(
        group, search, "api search gold.notes text 'spring tides'", "api search gold.notes text ebb --mode text"
    )


def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(help="One SELECT; `@FILE` reads it from a file.")],
    as_of: Annotated[str | None, typer.Option(help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
    param: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for $NAME; JSON or text.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check every object read against the timeline.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Read each table's newest commit, sequenced or not.")] = False,
    engine: Annotated[Engine, typer.Option(help="auto chooses; lambda is the function, spark a job.")] = "auto",
    wait: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for a job.")] = None,
) -> None:
    """Run one SELECT. If it runs as a job that is not done in time, fetch it with `strandline api result ID`."""
    with connected(context) as (client, output):
        options: Any = {"as_of": as_of, "verify": verify, "fresh": fresh, "engine": engine, "wait_s": wait}
        rows = client.query(_statement(sql), parameters(param or ()), **options)
        output.answer(values_of(rows), rows.column_names)


def execute(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(help="A statement that writes, or BEGIN; …; COMMIT; `@FILE` reads a file.")],
    param: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for $NAME; JSON or text.")] = None,
    yes: Yes = False,
    idempotency_key: Key = None,
) -> None:
    """Run one statement that writes, or a transaction: all of it, or nothing."""
    text = _statement(sql)
    if not yes:
        confirm(context.obj, f"Run {text.strip()[:200]!r}?")
    with connected(context) as (client, output):
        done = client.execute(text, parameters(param or ()), idempotency_key=idempotency_key)
        columns = ["statement", "table", "rows", "snapshot_id"]
        output.answer([[one.get(column) for column in columns] for one in done], columns)


def _statement(sql: str) -> str:
    if not sql.startswith("@"):
        return sql
    try:
        return Path(sql[1:]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the statement in {sql[1:]} cannot be read: {error}") from None


def result(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="The query's id, as `api query` printed it.")],
    wait: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for it.")] = None,
    status: Annotated[bool, typer.Option("--status", help="Only show its status.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel it and delete its rows.")] = False,
) -> None:
    """Show the rows of a query that runs as a job."""
    with connected(context) as (client, output):
        if cancel:
            client.cancel_query(id)
            output.data({"id": id, "status": "cancelled"}, f"{id} is cancelled.")
        elif status:
            output.data(client.query_status(id))
        else:
            rows = client.query_rows(id, wait_s=wait)
            output.answer(values_of(rows), rows.column_names)


def search(
    context: typer.Context,
    table: TableName,
    column: Annotated[str, typer.Argument(help="The text column that has embeddings.")],
    text: Annotated[str, typer.Argument(help="What to look for.")],
    mode: Annotated[Literal["vector", "text", "hybrid"], typer.Option(help="By meaning, words or both.")] = "hybrid",
    where: Annotated[str | None, typer.Option(help="Only rows for which this is true.")] = None,
    as_of: Annotated[str | None, typer.Option(help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 10,
) -> None:
    """Show the rows of a table that are nearest to a text."""
    options = {"text": text, "mode": mode, "limit": limit}
    options |= {name: value for name, value in (("where", where), ("as_of", as_of)) if value is not None}
    with connected(context) as (client, output):
        rows = client.search(table, column, **options)
        output.answer(values_of(rows), rows.column_names)
