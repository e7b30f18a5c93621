"""`strandline table insert`, `upsert` and `delete`: each writes to a table in one commit."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from catalog import Invalid
from cli.lake_commands import add_command, confirm, opened
from cli.options import names
from cli.row_files import RowFile, RowFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from catalog import Lake
    from catalog.tables import Receipt
    from cli.output import Output

TableName = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]
File = Annotated[
    str, typer.Argument(help="JSON lines, JSON, CSV, TSV or Parquet, also .gz and .zst; `-` is stdin.", metavar="FILE")
]
FormatOption = Annotated[
    RowFormat | None, typer.Option("--format", "-f", help="The file's format.", show_default="by suffix")
]
Token = Annotated[str | None, typer.Option(help="An idempotency key: it commits at most once within a week.")]


def register(group: typer.Typer) -> None:
    add_command(
        group,
        insert,
        "table insert silver.tides today.jsonl",
        "table insert silver.tides - --format csv < today.csv",
        "table insert silver.tides today.parquet --token today",
    )
    add_command(
        group,
        upsert,
        "table upsert silver.tides corrections.csv",
        "table upsert silver.tides - --format jsonl --key station",
    )
    add_command(
        group,
        delete,
        "table delete silver.tides --where 'metres > 3'",
        "table delete silver.tides --keys gone.csv --yes",
    )


def insert(
    context: typer.Context, table: TableName, file: File, format_: FormatOption = None, token: Token = None
) -> None:
    """Insert the rows of a file, in one commit. Does not compare keys: use upsert for that."""
    source = RowFile.of(file, format_)
    with opened(context) as (lake, output):
        rows = source.table(_columns(lake, table))
        with output.progress(f"inserting {rows.num_rows} rows …"), source.faults_named():
            _write_receipt(output, lake.tables.insert(table, rows, token=token), "inserted")


def upsert(
    context: typer.Context,
    table: TableName,
    file: File,
    format_: FormatOption = None,
    key: Annotated[list[str], typer.Option("--key", "-k", help="A key column.", show_default="the table's key")] = [],  # noqa: B006
    token: Token = None,
) -> None:
    """Upsert the rows of a file, in one commit: each replaces the row with the same key."""
    source = RowFile.of(file, format_)
    with opened(context) as (lake, output):
        rows = source.table(_columns(lake, table))
        with output.progress(f"upserting {rows.num_rows} rows …"), source.faults_named():
            _write_receipt(output, lake.tables.upsert(table, rows, names(key) or None, token=token), "upserted")


def delete(
    context: typer.Context,
    table: TableName,
    where: Annotated[str | None, typer.Option(help="A condition: metres > 3 and station = 'Brest'")] = None,
    keys: Annotated[str | None, typer.Option(help="Instead: a file with the keys of the rows to delete.")] = None,
    format_: FormatOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    token: Token = None,
) -> None:
    """Delete rows by a condition or by key. Shows how many and asks for confirmation."""
    if (where is None) == (keys is None):
        raise Invalid("name the rows in one way: --where 'CONDITION', or --keys FILE")
    source = None if keys is None else RowFile.of(keys, format_)
    with opened(context) as (lake, output):
        if source is None:
            if not yes:
                # Reads the condition's columns and one more: a scan needs at least one column.
                count = lake.tables.plan_scan(table, where=where, columns=[_first_column(lake, table)]).count()
                confirm(output, f"Delete {count} rows of {table}?")
            _write_receipt(output, lake.tables.delete(table, where, token=token), "deleted")
            return
        rows = source.table(_columns(lake, table))
        if not yes:
            confirm(output, f"Delete the rows of {table} with these {rows.num_rows} keys?")
        with source.faults_named():
            _write_receipt(output, lake.tables.delete(table, keys=rows, token=token), "deleted")


def _columns(lake: Lake, table: str) -> pa.Schema:
    """The table's columns: their types decide how text in a file is decoded."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(lake.tables.load(table).schema(), include_field_ids=False)


def _first_column(lake: Lake, table: str) -> str:
    return lake.tables.load(table).schema().fields[0].name


def _write_receipt(output: Output, receipt: Receipt, verb: str) -> None:
    summary = f"{receipt.table}: {receipt.rows} rows {verb}"
    if verb == "upserted":
        summary += f", {receipt.matched} of them replaced an existing row"
    if receipt.replayed:
        summary += ", by an earlier run with this token"
    output.data(asdict(receipt), f"{summary}. Snapshot {receipt.snapshot_id}.")
