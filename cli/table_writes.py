"""`strandline table insert`, `upsert` and `delete`: rows from a file or stdin, into a table in one commit."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.errors import Invalid
from cli.opened import add_command, ask, opened
from cli.row_files import RowFile, RowFormat
from cli.words import names

if TYPE_CHECKING:
    import pyarrow as pa

    from catalog.lake import Lake
    from catalog.tables.commits import Receipt
    from cli.output import Output

TableName = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]
File = Annotated[
    str, typer.Argument(help="JSON lines, JSON, CSV, TSV or Parquet, also .gz and .zst; `-` is stdin.", metavar="FILE")
]
FormatOption = Annotated[
    RowFormat | None, typer.Option("--format", "-f", help="If the suffix does not say it.", show_default="by suffix")
]
Token = Annotated[str | None, typer.Option(help="Writes once, however often the command is run with the same token.")]


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
    """Add the file's rows, all or none. They are not compared with those in the table: upsert does that."""
    rows = RowFile.of(file, format_)
    with opened(context) as (lake, output):
        given = rows.table(_hint(lake, table))
        with output.progress(f"inserting {given.num_rows} rows …"), rows.faults_named():
            _tell(output, lake.tables.insert(table, given, token=token), "inserted")


def upsert(
    context: typer.Context,
    table: TableName,
    file: File,
    format_: FormatOption = None,
    key: Annotated[list[str], typer.Option("--key", "-k", help="Instead of the table's own key.")] = [],  # noqa: B006
    token: Token = None,
) -> None:
    """Add the file's rows, replacing those with the same key, in one commit."""
    rows = RowFile.of(file, format_)
    with opened(context) as (lake, output):
        given = rows.table(_hint(lake, table))
        with output.progress(f"upserting {given.num_rows} rows …"), rows.faults_named():
            _tell(output, lake.tables.upsert(table, given, names(key) or None, token=token), "upserted")


def delete(
    context: typer.Context,
    table: TableName,
    where: Annotated[str | None, typer.Option(help="A condition: metres > 3 and station = 'Brest'")] = None,
    keys: Annotated[str | None, typer.Option(help="Instead: a file with the keys of the rows to delete.")] = None,
    format_: FormatOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    token: Token = None,
) -> None:
    """Delete rows by a condition or by key. Says how many it would be and asks first."""
    if (where is None) == (keys is None):
        raise Invalid("delete what: --where with a condition, or --keys with a file, and not both")
    given = None if keys is None else RowFile.of(keys, format_)
    with opened(context) as (lake, output):
        if given is None:
            if not yes:
                # The narrowest look: the condition's columns are read anyway, and nothing else need be.
                count = lake.tables.plan_scan(table, where=where, columns=[_first_column(lake, table)]).count()
                ask(output, f"Delete {count} rows of {table}?")
            _tell(output, lake.tables.delete(table, where, token=token), "deleted")
            return
        rows = given.table(_hint(lake, table))
        if not yes:
            ask(output, f"Delete the rows of {table} with these {rows.num_rows} keys?")
        with given.faults_named():
            _tell(output, lake.tables.delete(table, keys=rows, token=token), "deleted")


def _hint(lake: Lake, table: str) -> pa.Schema:
    """The table's columns: they decide what text in a file is meant to be."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(lake.tables.load(table).schema(), include_field_ids=False)


def _first_column(lake: Lake, table: str) -> str:
    return lake.tables.load(table).schema().fields[0].name


def _tell(output: Output, receipt: Receipt, did: str) -> None:
    said = f"{receipt.table}: {receipt.rows} rows {did}"
    if did == "upserted":
        said += f", {receipt.matched} of them in place of others"
    if receipt.replayed:
        said += ", by an earlier run with this token"
    output.data(asdict(receipt), f"{said}. Snapshot {receipt.snapshot_id}.")
