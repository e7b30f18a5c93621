"""`strandline api`: tables and their rows over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from catalog.errors import Invalid
from cli.endpoint import Key, TableName, Yes, connected
from cli.opened import add_command, ask
from cli.output import Output
from cli.row_files import RowFile, RowFormat
from cli.table_shape import MODE_HELP, PARTITION_HELP, WriteMode, changed_shape
from cli.words import columns, names


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
    add_command(group, rows, "api rows silver.tides --limit 5", "api rows silver.tides --where 'metres > 3'")


def list_(
    context: typer.Context, database: Annotated[str | None, typer.Argument(help="Only this database's tables.")] = None
) -> None:
    """The names of the tables you may read."""
    with connected(context) as (client, output):
        output.data(list(client.tables(database)))


def describe(
    context: typer.Context,
    table: TableName,
    schema: Annotated[int | None, typer.Option(min=0, help="Only this version of its schema.")] = None,
) -> None:
    """Shape, size, freshness and column statistics."""
    with connected(context) as (client, output):
        found = client.describe(table) if schema is None else client.schema(table, schema)
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
    mode: Annotated[WriteMode, typer.Option(help=MODE_HELP)] = WriteMode.COW,
    partition: Annotated[list[str], typer.Option(help=PARTITION_HELP)] = [],  # noqa: B006
    sort: Annotated[list[str], typer.Option(help="'at desc'; repeatable.")] = [],  # noqa: B006
    idempotency_key: Key = None,
) -> None:
    """Make a table."""
    with connected(context) as (client, output):
        made = client.create_table(
            table,
            columns(column),
            mode=mode.value,
            key=names(key),
            partition=partition,
            sort=sort,
            idempotency_key=idempotency_key,
        )
        output.data(made, f"{table} is made.")


def alter(
    context: typer.Context,
    table: TableName,
    add: Annotated[list[str], typer.Option(help="A new column, name:type; repeatable.")] = [],  # noqa: B006
    drop: Annotated[list[str], typer.Option(help="A column to take away; repeatable.")] = [],  # noqa: B006
    rename: Annotated[list[str], typer.Option(help="old=new; repeatable.")] = [],  # noqa: B006
    promote: Annotated[list[str], typer.Option(help="name:type; widens only. Repeatable.")] = [],  # noqa: B006
    partition: Annotated[list[str], typer.Option(help=f"{PARTITION_HELP} Or none.")] = [],  # noqa: B006
    sort: Annotated[list[str], typer.Option(help="The new order, 'at desc'; repeatable. Or none.")] = [],  # noqa: B006
    key: Annotated[list[str], typer.Option("--key", "-k", help="The new key, or none.")] = [],  # noqa: B006
    mode: Annotated[WriteMode | None, typer.Option(help=MODE_HELP)] = None,
    idempotency_key: Key = None,
) -> None:
    """Change a table's shape, all of it or nothing, in one commit."""
    asked = changed_shape(add, drop, rename, promote, partition, sort, key, mode)
    if not asked:
        raise Invalid(f"what should change about {table}? Say --add, --drop, --rename, --promote, --partition, …")
    with connected(context) as (client, output):
        made = client.change_table(table, idempotency_key=idempotency_key, **asked)
        output.data(made, f"{table} is changed.")


def drop(
    context: typer.Context,
    table: TableName,
    purge: Annotated[bool, typer.Option("--purge", help="Delete its files, too, for good.")] = False,
    yes: Yes = False,
    idempotency_key: Key = None,
) -> None:
    """Take a table from the catalog. Its history in the timeline stays."""
    if not yes:
        ask(context.obj, f"Drop {table}{' and delete its files' if purge else ''}?")
    with connected(context) as (client, output):
        client.drop_table(table, purge=purge, idempotency_key=idempotency_key)
        output.data({"table": table, "dropped": True}, f"{table} is dropped.")


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
    yes: Yes = False,
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


def _wrote(output: Output, receipt: Any) -> None:
    said = f"{receipt['table']}: {receipt['rows']} rows, snapshot {receipt.get('snapshot_id', 'unchanged')}"
    output.data(receipt, said + (" (done before)" if receipt.get("replayed") else ""))
