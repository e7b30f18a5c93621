"""`strandline api`: tables and their rows, over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from catalog import Invalid
from cli.api_connection import Key, TableName, Yes, connected
from cli.erase import key_of
from cli.lake_commands import add_command, confirm
from cli.options import columns, names
from cli.output import Output
from cli.query import values_of
from cli.row_files import RowFile, RowFormat
from cli.table_shape import MODE_HELP, NO_CHANGE, PARTITION_HELP, WriteMode, shape_changes
from cli.times import AS_OF_HELP, past_point

FormatOption = Annotated[
    RowFormat | None, typer.Option("--format", "-f", help="The file's format.", show_default="by suffix")
]


def register(group: typer.Typer) -> None:
    add_command(group, list_, "api list", "api list silver", name="list")
    add_command(group, describe, "api describe silver.tides", "api describe silver.tides --schema 0")
    add_command(group, create, "api create silver.tides --column station:string --column metres:double --key station")
    add_command(
        group, alter, "api alter silver.tides --add gauge:string", "api alter silver.tides --rename metres=level"
    )
    add_command(group, drop, "api drop silver.tides --yes", "api drop silver.tides --purge --yes")
    add_command(group, insert, "api insert silver.tides today.csv", "api insert silver.tides - --format jsonl")
    add_command(group, upsert, "api upsert silver.tides today.csv --key station")
    add_command(group, delete, "api delete silver.tides 'metres > 3' --yes")
    add_command(group, erase, "api erase silver.people --key id=17 --reason 'request 2026-114' --yes")
    add_command(group, erasure, "api erasure silver.people 0c9a8a528d2b4c0e9d0a3f6f1f0a5b11")
    add_command(group, rows, "api rows silver.tides --limit 5", "api rows silver.tides --where 'metres > 3'")


def list_(
    context: typer.Context, database: Annotated[str | None, typer.Argument(help="Only this database's tables.")] = None
) -> None:
    """List the tables that you may read."""
    with connected(context) as (client, output):
        output.data(list(client.tables(database)))


def describe(
    context: typer.Context,
    table: TableName,
    schema: Annotated[int | None, typer.Option(min=0, help="Only this schema, by its id.")] = None,
) -> None:
    """Show a table's columns, key, partitions, size, freshness and column statistics."""
    with connected(context) as (client, output):
        description = client.describe(table) if schema is None else client.schema(table, schema)
        if output.is_json:
            output.data(description)
            return
        output.data({name: value for name, value in description.items() if name != "columns"})
        output.table(description["columns"], ("name", "type", "required", "nulls", "low", "high"))


def create(
    context: typer.Context,
    table: TableName,
    column: Annotated[list[str], typer.Option("--column", help="NAME:TYPE, in order.")],
    key: Annotated[list[str], typer.Option(help="A key column; repeatable, or a,b.")] = [],  # noqa: B006
    mode: Annotated[WriteMode, typer.Option(help=MODE_HELP)] = WriteMode.COW,
    partition: Annotated[list[str], typer.Option(help=PARTITION_HELP)] = [],  # noqa: B006
    sort: Annotated[list[str], typer.Option(help="'at desc'; repeatable.")] = [],  # noqa: B006
    idempotency_key: Key = None,
) -> None:
    """Create a table."""
    with connected(context) as (client, output):
        table_info = client.create_table(
            table,
            columns(column),
            mode=mode.value,
            key=names(key),
            partition=partition,
            sort=sort,
            idempotency_key=idempotency_key,
        )
        output.data(table_info, f"{table} is created.")


def alter(
    context: typer.Context,
    table: TableName,
    add: Annotated[list[str], typer.Option(help="A new column, name:type; repeatable.")] = [],  # noqa: B006
    drop: Annotated[list[str], typer.Option(help="A column to drop; repeatable.")] = [],  # noqa: B006
    rename: Annotated[list[str], typer.Option(help="old=new; repeatable.")] = [],  # noqa: B006
    promote: Annotated[list[str], typer.Option(help="name:type; widens only. Repeatable.")] = [],  # noqa: B006
    partition: Annotated[list[str], typer.Option(help=f"{PARTITION_HELP} Or none.")] = [],  # noqa: B006
    sort: Annotated[list[str], typer.Option(help="The new sort order, 'at desc'; repeatable. Or none.")] = [],  # noqa: B006
    key: Annotated[list[str], typer.Option("--key", "-k", help="The new key, or none.")] = [],  # noqa: B006
    mode: Annotated[WriteMode | None, typer.Option(help=MODE_HELP)] = None,
    idempotency_key: Key = None,
) -> None:
    """Change a table's columns, partitions, sort order, key or mode, all in one commit."""
    changes = shape_changes(add, drop, rename, promote, partition, sort, key, mode)
    if not changes:
        raise Invalid(NO_CHANGE.format(table=table))
    with connected(context) as (client, output):
        table_info = client.change_table(table, idempotency_key=idempotency_key, **changes)
        output.data(table_info, f"{table} is changed.")


def drop(
    context: typer.Context,
    table: TableName,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete its files.")] = False,
    yes: Yes = False,
    idempotency_key: Key = None,
) -> None:
    """Remove a table from the catalog. Its history in the timeline stays."""
    if not yes:
        confirm(context.obj, f"Drop {table}{' and delete its files' if purge else ''}?")
    with connected(context) as (client, output):
        client.drop_table(table, purge=purge, idempotency_key=idempotency_key)
        output.data({"table": table, "dropped": True}, f"{table} is dropped.")


def insert(
    context: typer.Context,
    table: TableName,
    file: Annotated[str, typer.Argument(help="A file of rows; `-` is stdin.")],
    format_: FormatOption = None,
    idempotency_key: Key = None,
) -> None:
    """Insert the rows of a file, in one commit."""
    file_rows = RowFile.of(file, format_).table()
    with connected(context) as (client, output):
        _write_receipt(output, client.insert(table, file_rows, idempotency_key=idempotency_key))


def upsert(
    context: typer.Context,
    table: TableName,
    file: Annotated[str, typer.Argument(help="A file of rows; `-` is stdin.")],
    format_: FormatOption = None,
    key: Annotated[list[str], typer.Option(help="A key column.", show_default="the table's key")] = [],  # noqa: B006
    idempotency_key: Key = None,
) -> None:
    """Upsert the rows of a file: each replaces the row with the same key."""
    file_rows = RowFile.of(file, format_).table()
    with connected(context) as (client, output):
        _write_receipt(output, client.upsert(table, file_rows, names(key) or None, idempotency_key=idempotency_key))


def delete(
    context: typer.Context,
    table: TableName,
    where: Annotated[str, typer.Argument(help="An SQL condition: rows that meet it are deleted.")],
    yes: Yes = False,
    idempotency_key: Key = None,
) -> None:
    """Delete the rows that meet a condition."""
    if not yes:
        confirm(context.obj, f"Delete the rows of {table} where {where}?")
    with connected(context) as (client, output):
        _write_receipt(output, client.delete(table, where, idempotency_key=idempotency_key))


def erase(
    context: typer.Context,
    table: TableName,
    reason: Annotated[str, typer.Option(help="Why. It stays in the timeline: write no personal data.")],
    key: Annotated[
        list[str], typer.Option("--key", "-k", help="column=value; repeatable for a key of several columns.")
    ] = [],  # noqa: B006
    where: Annotated[str | None, typer.Option(help="Every key that ever had a row for which this is true.")] = None,
    accept_guessable: Annotated[
        bool, typer.Option("--accept-guessable", help="Also erase rows without a salt, whose digests can be guessed.")
    ] = False,
    yes: Yes = False,
    idempotency_key: Key = None,
) -> None:
    """Ask for rows to be erased from all of a table's history. It cannot be undone."""
    keys = [key_of(key)] if key else None
    if not yes:
        confirm(context.obj, f"Erase rows of {table} from all of its history? This cannot be undone.")
    request: dict[str, Any] = {"keys": keys, "where": where, "reason": reason, "accept_guessable": accept_guessable}
    with connected(context) as (client, output):
        status = client.erase(table, request, idempotency_key=idempotency_key)
        output.data(status, f"Requested. See `strandline api erasure {table} {status['id']}`.")


def erasure(
    context: typer.Context, table: TableName, request_id: Annotated[str, typer.Argument(help="The request's id.")]
) -> None:
    """Show what became of a request to erase rows."""
    with connected(context) as (client, output):
        output.data(client.erasure(table, request_id))


def rows(
    context: typer.Context,
    table: TableName,
    where: Annotated[str | None, typer.Option(help="Only rows that meet this SQL condition.")] = None,
    column: Annotated[list[str], typer.Option("--column", help="Only this column; repeatable.")] = [],  # noqa: B006
    as_of: Annotated[str | None, typer.Option(help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 20,
) -> None:
    """Show a table's rows."""
    with connected(context) as (client, output):
        result = client.rows(table, where=where, columns=names(column) or None, as_of=as_of, limit=limit)
        output.answer(values_of(result), result.column_names)


def _write_receipt(output: Output, receipt: Any) -> None:
    summary = f"{receipt['table']}: {receipt['rows']} rows, snapshot {receipt.get('snapshot_id', 'unchanged')}"
    output.data(receipt, summary + (" (committed by an earlier request)" if receipt.get("replayed") else ""))
