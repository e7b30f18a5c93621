"""`strandline table create` and `alter`: a table's columns, key, partitions, order and mode."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from catalog.errors import Invalid
from cli.opened import add_command, opened
from cli.row_files import RowFile
from cli.words import columns, names, pairs, terms


class WriteMode(StrEnum):
    COW = "cow"
    MOR = "mor"
    HYBRID = "hybrid"


MODE_HELP = "cow rewrites touched files, mor keeps deletes beside them, hybrid chooses at each write."
PARTITION_HELP = "region, day(at), bucket(16, id), truncate(4, code), …; repeatable."
PropertyOption = Annotated[list[str], typer.Option("--property", help="name=value; repeatable.")]


def register(group: typer.Typer) -> None:
    add_command(
        group,
        create,
        "table create silver.tides --column station:string --column metres:double --key station --mode mor",
        "table create silver.tides --column at:timestamptz --partition 'day(at)' --sort 'at desc'",
        "table create silver.tides --like tides.parquet --key station",
    )
    add_command(
        group,
        alter,
        "table alter silver.tides --add gauge:string",
        "table alter silver.tides --rename metres=level --promote count:long",
        "table alter silver.tides --partition 'month(at)' --mode hybrid",
    )


def create(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The new table, DATABASE.TABLE.")],
    column: Annotated[list[str], typer.Option("--column", "-c", help="name:type; repeatable.")] = [],  # noqa: B006
    schema: Annotated[
        Path | None, typer.Option(help='A JSON file: {"name": "type", …}, or a schema as Iceberg writes it.')
    ] = None,
    like: Annotated[str | None, typer.Option(help="A Parquet, CSV or JSON lines file whose columns it gets.")] = None,
    key: Annotated[list[str], typer.Option("--key", "-k", help="A key column; repeatable, or a,b.")] = [],  # noqa: B006
    mode: Annotated[WriteMode, typer.Option(help=MODE_HELP)] = WriteMode.COW,
    partition: Annotated[list[str], typer.Option(help=PARTITION_HELP)] = [],  # noqa: B006
    sort: Annotated[list[str], typer.Option(help="'at desc'; repeatable.")] = [],  # noqa: B006
    property_: PropertyOption = [],  # noqa: B006
) -> None:
    """Make a table. Types are Iceberg's: long, double, string, date, timestamptz, decimal(10, 2), …"""
    wanted = _schema(column, schema, like)
    with opened(context) as (lake, output):
        made = lake.tables.create(
            table,
            wanted,
            mode=mode.value,
            key=names(key),
            partition=partition,
            sort=sort,
            properties=pairs(property_, "=", "property: write name=value"),
        )
        fields = {field.name: str(field.field_type) for field in made.schema().fields}
        answer = {"table": table, "uuid": str(made.metadata.table_uuid), "location": made.location(), "columns": fields}
        listed = ", ".join(f"{name} {kind}" for name, kind in fields.items())
        output.data(answer, f"{table} is made: {listed}.")


def alter(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")],
    add: Annotated[list[str], typer.Option(help="A new column, name:type; repeatable.")] = [],  # noqa: B006
    drop: Annotated[list[str], typer.Option(help="A column to take away; repeatable.")] = [],  # noqa: B006
    rename: Annotated[list[str], typer.Option(help="old=new; repeatable.")] = [],  # noqa: B006
    promote: Annotated[
        list[str], typer.Option(help="name:type, for example count:long; widens only. Repeatable.")
    ] = [],  # noqa: B006
    partition: Annotated[
        list[str], typer.Option(help=f"The new partitioning of what is written from now on: {PARTITION_HELP} Or none.")
    ] = [],  # noqa: B006
    sort: Annotated[list[str], typer.Option(help="The new order, 'at desc'; repeatable. Or none.")] = [],  # noqa: B006
    key: Annotated[list[str], typer.Option("--key", "-k", help="The new key, or none.")] = [],  # noqa: B006
    mode: Annotated[WriteMode | None, typer.Option(help=MODE_HELP)] = None,
    property_: PropertyOption = [],  # noqa: B006
    unset: Annotated[list[str], typer.Option(help="A property to take away; repeatable.")] = [],  # noqa: B006
) -> None:
    """Change a table's shape, all of it or nothing, in one commit. No data file is written or read."""
    asked = changed_shape(add, drop, rename, promote, partition, sort, key, mode)
    properties = pairs(property_, "=", "property: write name=value") | dict.fromkeys(unset)
    if properties:
        asked["properties"] = properties
    if not asked:
        raise Invalid(f"what should change about {table}? Say --add, --drop, --rename, --promote, --partition, …")
    with opened(context) as (lake, output):
        lake.tables.alter(table, **asked)
        fields = {field.name: str(field.field_type) for field in lake.tables.load(table).schema().fields}
        listed = ", ".join(f"{name} {kind}" for name, kind in fields.items())
        output.data({"table": table, "changed": asked, "columns": fields}, f"{table} now has {listed}.")


def changed_shape(
    add: list[str],
    drop: list[str],
    rename: list[str],
    promote: list[str],
    partition: list[str],
    sort: list[str],
    key: list[str],
    mode: WriteMode | None,
) -> dict[str, Any]:
    """What of a table's shape the options ask to change. An empty list asks for none, where that can be."""
    changed: dict[str, Any] = {
        "add": columns(add),
        "drop": names(drop),
        "rename": pairs(rename, "=", "renaming: write old=new"),
        "promote": columns(promote),
        "partition": terms(partition),
        "sort": terms(sort),
        "key": terms(names(key)),
        "mode": mode.value if mode else None,
    }
    return {name: value for name, value in changed.items() if value or (value == [] and name != "drop")}


def _schema(column: list[str], schema: Path | None, like: str | None) -> Any:
    if sum((bool(column), schema is not None, like is not None)) != 1:
        raise Invalid("which columns should it have? Say --column name:type, or --schema FILE, or --like FILE")
    if column:
        return columns(column)
    if like is not None:
        return RowFile.of(like).schema()
    assert schema is not None
    return _read_schema(schema)


def _read_schema(path: Path) -> Any:
    from pydantic import ValidationError
    from pyiceberg.schema import Schema

    try:
        found = json.loads(path.read_bytes())
        if isinstance(found, dict) and isinstance(found.get("fields"), list):
            return Schema.model_validate(found)
    except OSError as error:
        raise Invalid(f"the schema in {path} cannot be read: {error}") from None
    except (ValidationError, ValueError) as error:
        raise Invalid(f"{path} is no schema: {error}") from None
    if not isinstance(found, dict) or not found:
        raise Invalid(f'{path} is no schema: write {{"name": "type", …}}, or a schema as Iceberg has it')
    return found
