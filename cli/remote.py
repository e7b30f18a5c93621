"""`strandline api`: the lake over HTTP, with `--endpoint` and `--token`. Nothing of the lake is needed on this machine.

Without an endpoint it is the embedded cloud's, with a token that may do everything there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from catalog.errors import KINDS, Denied, Invalid, LakeError, NotFound, Unavailable
from cli.connect import ask_embedded_cloud
from cli.opened import add_command, ask
from cli.output import Output
from cli.row_files import RowFile, RowFormat
from cli.words import columns, names

if TYPE_CHECKING:
    from cli.client import Client, Problem

ENDPOINT, TOKEN = "STRANDLINE_ENDPOINT", "STRANDLINE_TOKEN"
TableName = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="Done once, however often it is sent.")]
Engine = Literal["auto", "lambda", "spark"]
_OURS = {"unauthenticated": Denied, "throttled": Unavailable, "too_large": Invalid}


@dataclass(frozen=True)
class Target:
    endpoint: str | None
    token: str | None


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The lake over its HTTP API.", no_args_is_help=True, callback=target)
    add_command(group, health, "api health", "api --endpoint https://lake.example health")
    add_command(group, list_, "api list", "api list silver", name="list")
    add_command(group, describe, "api describe silver.tides", "-o json api describe silver.tides")
    add_command(group, create, "api create silver.tides --column station:string --column metres:double --key station")
    add_command(group, insert, "api insert silver.tides today.csv", "api insert silver.tides - --format jsonl")
    add_command(group, upsert, "api upsert silver.tides today.csv --key station")
    add_command(group, delete, "api delete silver.tides 'metres > 3' --yes")
    add_command(group, rows, "api rows silver.tides --limit 5", "api rows silver.tides --where 'metres > 3'")
    add_command(group, query, "api query 'select count(*) from silver.tides'", "api query @report.sql --as-of q1")
    add_command(group, result, "api result 4f1c2d", "api result 4f1c2d --status", "api result 4f1c2d --cancel")
    add_command(group, commits, "api commits silver.tides", "api commits silver.tides --since 7")
    add_command(group, proof, "api proof 42 --to 42.tlog-proof", "api proof --snapshot 5551234")
    add_command(group, changes, "api changes silver.tides", "api changes silver.tides --since 3")
    add_command(group, upload, "api upload bronze.notes today.md")
    add_command(group, where, "api where 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    app.add_typer(group, name="api")


def target(
    context: typer.Context,
    endpoint: Annotated[
        str | None, typer.Option(envvar=ENDPOINT, help="The API's address.", show_default="the embedded cloud's")
    ] = None,
    token: Annotated[str | None, typer.Option(envvar=TOKEN, help="A token of the API's issuer.")] = None,
) -> None:
    context.meta["target"] = Target(endpoint, token)


@contextmanager
def connected(context: typer.Context) -> Iterator[tuple[Client, Output]]:
    """The client, and the API's problems as the lake's own errors: so with the same exit codes."""
    import httpx

    from cli.client import Client, Pending, Problem

    given: Target = context.meta["target"]
    if given.endpoint is None:
        found = ask_embedded_cloud("api")
        given = Target(found["endpoint"], given.token or found["token"])
    assert given.endpoint is not None
    try:
        with Client(given.endpoint, given.token) as client:
            yield client, context.obj
    except Problem as problem:
        raise _error(problem) from None
    except Pending as pending:
        said = f"query {pending.query_id} runs as a job: fetch it with `strandline api result {pending.query_id}`"
        raise Unavailable(said, subject=pending.query_id) from None
    except httpx.TransportError as error:
        raise Unavailable(f"{given.endpoint} does not answer: {error}", subject=given.endpoint) from None
    except httpx.InvalidURL as error:
        raise Invalid(f"{given.endpoint} is no address: {error}") from None


def _error(problem: Problem) -> LakeError:
    kinds = {kind.name: kind for kind in KINDS}
    found = _OURS.get(problem.kind)
    for known in LakeError.__subclasses__():
        if problem.kind in kinds and known.kind is kinds[problem.kind]:
            found = known
    said = f"{problem.detail} (request {problem.instance})" if problem.instance else problem.detail
    return (found or Invalid)(said)


def health(context: typer.Context) -> None:
    """Whether the API answers."""
    with connected(context) as (client, output):
        output.data(client.health())


def list_(
    context: typer.Context, database: Annotated[str | None, typer.Argument(help="Only this database's tables.")] = None
) -> None:
    """The names of the tables you may read."""
    with connected(context) as (client, output):
        output.data(list(client.tables(database)))


def describe(context: typer.Context, table: TableName) -> None:
    """Shape, size, freshness and column statistics."""
    with connected(context) as (client, output):
        found = client.describe(table)
        if output.is_json:
            output.data(found)
            return
        output.data({name: value for name, value in found.items() if name != "columns"})
        output.table(found["columns"], ("name", "type", "required", "nulls", "low", "high"))


def create(
    context: typer.Context,
    table: TableName,
    column: Annotated[list[str], typer.Option("--column", help="NAME:TYPE, in order.")],
    key: Annotated[list[str], typer.Option(help="Columns that tell rows apart.")] = [],  # noqa: B006
    partition: Annotated[list[str], typer.Option(help="`region`, `day(ts)`, `bucket(16, id)`.")] = [],  # noqa: B006
    idempotency_key: Key = None,
) -> None:
    """Make a table."""
    with connected(context) as (client, output):
        made = client.create_table(
            table, columns(column), key=names(key), partition=partition, idempotency_key=idempotency_key
        )
        output.data(made, f"{table} is made.")


def insert(
    context: typer.Context,
    table: TableName,
    file: Annotated[str, typer.Argument(help="A file of rows; `-` is stdin.")],
    format_: Annotated[RowFormat | None, typer.Option("--format", "-f", help="If the suffix does not say it.")] = None,
    idempotency_key: Key = None,
) -> None:
    """Add the file's rows, all or none."""
    read = RowFile.of(file, format_).table()
    with connected(context) as (client, output):
        _wrote(output, client.insert(table, read, idempotency_key=idempotency_key))


def upsert(
    context: typer.Context,
    table: TableName,
    file: Annotated[str, typer.Argument(help="A file of rows; `-` is stdin.")],
    format_: Annotated[RowFormat | None, typer.Option("--format", "-f", help="If the suffix does not say it.")] = None,
    key: Annotated[list[str], typer.Option(help="Default: the table's own.")] = [],  # noqa: B006
    idempotency_key: Key = None,
) -> None:
    """Add the file's rows, replacing those with the same key."""
    read = RowFile.of(file, format_).table()
    with connected(context) as (client, output):
        _wrote(output, client.upsert(table, read, names(key) or None, idempotency_key=idempotency_key))


def delete(
    context: typer.Context,
    table: TableName,
    where: Annotated[str, typer.Argument(help="Rows for which this is true.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    idempotency_key: Key = None,
) -> None:
    """Delete the rows a filter is true for."""
    if not yes:
        ask(context.obj, f"Delete the rows of {table} where {where}?")
    with connected(context) as (client, output):
        _wrote(output, client.delete(table, where, idempotency_key=idempotency_key))


def rows(
    context: typer.Context,
    table: TableName,
    where: Annotated[str | None, typer.Option(help="Only rows for which this is true.")] = None,
    column: Annotated[list[str], typer.Option("--column", help="Only these.")] = [],  # noqa: B006
    as_of: Annotated[str | None, typer.Option(help="A snapshot's id or name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 20,
) -> None:
    """A table's rows."""
    with connected(context) as (client, output):
        found = client.rows(table, where=where, columns=names(column) or None, as_of=as_of, limit=limit)
        output.table(found.to_pylist(), found.column_names)


def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(help="One SELECT; `@FILE` reads it from there.")],
    as_of: Annotated[str | None, typer.Option(help="A time, an index of the timeline, or a name.")] = None,
    engine: Annotated[Engine, typer.Option(help="The cheapest place, the function alone, or a Spark job.")] = "auto",
    wait: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for a job.")] = None,
) -> None:
    """Run one statement. One that became a job and is not done in time is fetched with `strandline api result ID`."""
    with connected(context) as (client, output):
        found = client.query(_statement(sql), as_of=as_of, engine=engine, wait_s=wait)
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


def commits(
    context: typer.Context,
    table: TableName,
    since: Annotated[int, typer.Option(min=-1, help="Only leaves whose sequence is greater.")] = -1,
    limit: Annotated[int, typer.Option(min=1)] = 100,
) -> None:
    """A table's leaves in the timeline, oldest first."""
    with connected(context) as (client, output):
        found: list[Any] = list(islice(client.commits(table, since), limit))
        output.table(found, ("index", "sequence", "operation", "ref", "snapshot_id", "sequenced_ms"))


def proof(
    context: typer.Context,
    index: Annotated[int | None, typer.Argument(min=0, help="The leaf's index.")] = None,
    snapshot: Annotated[str | None, typer.Option(help="Instead: the snapshot whose commit is proven.")] = None,
    to: Annotated[Path | None, typer.Option(help="The file to write.", show_default="stdout")] = None,
) -> None:
    """A proof file that a commit is in the timeline; `strandline proof verify` checks it offline."""
    if (index is None) == (snapshot is None):
        raise Invalid("prove what: an index, or --snapshot, and not both")
    with connected(context) as (client, output):
        found = client.proof(index, snapshot_id=snapshot)
        if to is None:
            output.data({"proof": found.decode()}, escape(found.decode()))
            return
        to.write_bytes(found)
        output.data({"proof": str(to)}, f"{to} is written.")


def changes(
    context: typer.Context,
    table: TableName,
    since: Annotated[str | None, typer.Option(help="A leaf's sequence, a snapshot's id, a time or a name.")] = None,
    until: Annotated[str | None, typer.Option(help="The same; included.")] = None,
) -> None:
    """What each commit did to the rows, as JSON lines: one change set a line, with its evidence."""
    with connected(context) as (client, output):
        for one in client.changes(table, since, until):
            output.data(one, escape(json.dumps(one)))


def upload(
    context: typer.Context,
    table: TableName,
    file: Annotated[Path, typer.Argument(help="Any file that can be ingested.", exists=True, dir_okay=False)],
) -> None:
    """Put a file into landing; `strandline api where DIGEST` tells what became of it."""
    with connected(context) as (client, output):
        digest = client.upload(table, file.name, file.read_bytes())
        output.data({"sha256": digest, "table": table}, digest)


def where(context: typer.Context, digest: Annotated[str, typer.Argument(help="SHA-256 of the file.")]) -> None:
    """Where a file is now, by its content."""
    with connected(context) as (client, output):
        found = client.where_is(digest)
        if found["status"] == "unknown":
            raise NotFound(f"nobody has sent a file with the digest {digest}, or not to a table you may read")
        output.data(dict(found))


def _wrote(output: Output, receipt: Any) -> None:
    said = f"{receipt['table']}: {receipt['rows']} rows, snapshot {receipt.get('snapshot_id', 'unchanged')}"
    output.data(receipt, said + (" (done before)" if receipt.get("replayed") else ""))
