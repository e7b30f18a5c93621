"""`strandline api`: questions over HTTP, and answers that come later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from catalog.errors import Invalid
from cli.endpoint import TableName, connected
from cli.opened import add_command
from cli.query import Engine, parameters


def register(group: typer.Typer) -> None:
    add_command(
        group,
        query,
        "api query 'select count(*) from silver.tides'",
        "api query @report.sql --as-of q1",
        "api query 'select * from silver.tides where id = $id' --param id=7 --verify",
    )
    add_command(group, result, "api result 4f1c2d", "api result 4f1c2d --status", "api result 4f1c2d --cancel")
    add_command(
        group, search, "api search gold.notes text 'spring tides'", "api search gold.notes text ebb --mode text"
    )


def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(help="One SELECT; `@FILE` reads it from there.")],
    as_of: Annotated[str | None, typer.Option(help="A time, an index of the timeline, or a name.")] = None,
    param: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for $NAME; JSON or text.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check every object read against the timeline.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Read each table's newest commit, sequenced or not.")] = False,
    engine: Annotated[Engine, typer.Option(help="The cheapest place, the function alone, or a Spark job.")] = "auto",
    wait: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for a job.")] = None,
) -> None:
    """Run one statement. One that became a job and is not done in time is fetched with `strandline api result ID`."""
    with connected(context) as (client, output):
        options: Any = {"as_of": as_of, "verify": verify, "fresh": fresh, "engine": engine, "wait_s": wait}
        found = client.query(_statement(sql), parameters(param or ()), **options)
        output.table(found.to_pylist(), found.column_names)


def _statement(given: str) -> str:
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the statement in {given[1:]} cannot be read: {error}") from None


def result(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="The query's id, as `api query` printed it.")],
    wait: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for it.")] = None,
    status: Annotated[bool, typer.Option("--status", help="Only how it stands.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End it and forget its rows.")] = False,
) -> None:
    """The rows of a query that became a job."""
    with connected(context) as (client, output):
        if cancel:
            client.cancel_query(id)
            output.data({"id": id, "status": "cancelled"}, f"{id} is cancelled.")
        elif status:
            output.data(client.query_status(id))
        else:
            found = client.query_rows(id, wait_s=wait)
            output.table(found.to_pylist(), found.column_names)


def search(
    context: typer.Context,
    table: TableName,
    column: Annotated[str, typer.Argument(help="The text column that is embedded.")],
    text: Annotated[str, typer.Argument(help="What to look for.")],
    mode: Annotated[Literal["vector", "text", "hybrid"], typer.Option(help="By meaning, words or both.")] = "hybrid",
    where: Annotated[str | None, typer.Option(help="Only rows for which this is true.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 10,
) -> None:
    """The rows of a table that are nearest to a text."""
    wanted = {"text": text, "mode": mode, "limit": limit} | ({} if where is None else {"where": where})
    with connected(context) as (client, output):
        found = client.search(table, column, **wanted)
        output.table(found.to_pylist(), found.column_names)
