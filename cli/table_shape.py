"""`strandline table create` and `alter`: a table's columns, key, partitions, sort order and mode."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from catalog import Invalid
from cli.lake_commands import add_command, opened
from cli.options import columns, names, pairs, terms
from cli.row_files import RowFile


class WriteMode(StrEnum):
    COW = "cow"
    MOR = "mor"
    HYBRID = "hybrid"


MODE_HELP = "cow rewrites files, mor writes position deletes, hybrid chooses for each write."
PARTITION_HELP = "region, day(at), bucket(16, id), truncate(4, code), …; repeatable."
PropertyOption = Annotated[list[str], typer.Option("--property", help="name=value; repeatable.")]

NO_CHANGE = "there is nothing to change in {table}: add --add, --drop, --rename, --promote, --partition, …"


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
    schema: Annotated[Path | None, typer.Option(help='A JSON file: {"name": "type", …}, or an Iceberg schema.')] = None,
    like: Annotated[str | None, typer.Option(help="A Parquet, CSV or JSON lines file with the same columns.")] = None,
    key: Annotated[list[str], typer.Option("--key", "-k", help="A key column; repeatable, or a,b.")] = [],  # noqa: B006
    mode: Annotated[WriteMode, typer.Option(help=MODE_HELP)] = WriteMode.COW,
    partition: Annotated[list[str], typer.Option(help=PARTITION_HELP)] = [],  # noqa: B006
    sort: Annotated[list[str], typer.Option(help="'at desc'; repeatable.")] = [],  # noqa: B006
    property_: PropertyOption = [],  # noqa: B006
) -> None:
    """Create a table. Types are Iceberg's: long, double, string, date, timestamptz, decimal(10, 2), …"""
    table_schema = _schema(column, schema, like)
    with opened(context) as (lake, output):
        created = lake.tables.create(
            table,
            table_schema,
            mode=mode.value,
            key=names(key),
            partition=partition,
            sort=sort,
            properties=pairs(property_, "=", "property: write name=value"),
        )
        fields = {field.name: str(field.field_type) for field in created.schema().fields}
        columns_text = ", ".join(f"{name} {type_}" for name, type_ in fields.items())
        answer = {"table": table, "uuid": str(created.metadata.table_uuid), "location": created.location()}
        output.data({**answer, "columns": fields}, f"{table} is created: {columns_text}.")


def alter(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")],
    add: Annotated[list[str], typer.Option(help="A new column, name:type; repeatable.")] = [],  # noqa: B006
    drop: Annotated[list[str], typer.Option(help="A column to drop; repeatable.")] = [],  # noqa: B006
    rename: Annotated[list[str], typer.Option(help="old=new; repeatable.")] = [],  # noqa: B006
    promote: Annotated[
        list[str], typer.Option(help="name:type, for example count:long; widens only. Repeatable.")
    ] = [],  # noqa: B006
    partition: Annotated[
        list[str], typer.Option(help=f"The partitioning of new files: {PARTITION_HELP} Or none.")
    ] = [],  # noqa: B006
    sort: Annotated[list[str], typer.Option(help="The new sort order, 'at desc'; repeatable. Or none.")] = [],  # noqa: B006
    key: Annotated[list[str], typer.Option("--key", "-k", help="The new key, or none.")] = [],  # noqa: B006
    mode: Annotated[WriteMode | None, typer.Option(help=MODE_HELP)] = None,
    property_: PropertyOption = [],  # noqa: B006
    unset: Annotated[list[str], typer.Option(help="A property to remove; repeatable.")] = [],  # noqa: B006
) -> None:
    """Change columns, partitions, sort order, key or mode, all in one commit. Reads and writes no data file."""
    changes = shape_changes(add, drop, rename, promote, partition, sort, key, mode)
    properties = pairs(property_, "=", "property: write name=value") | dict.fromkeys(unset)
    if properties:
        changes["properties"] = properties
    if not changes:
        raise Invalid(NO_CHANGE.format(table=table))
    with opened(context) as (lake, output):
        lake.tables.alter(table, **changes)
        fields = {field.name: str(field.field_type) for field in lake.tables.load(table).schema().fields}
        columns_text = ", ".join(f"{name} {type_}" for name, type_ in fields.items())
        output.data({"table": table, "changed": changes, "columns": fields}, f"{table} now has {columns_text}.")


def shape_changes(
    add: list[str],
    drop: list[str],
    rename: list[str],
    promote: list[str],
    partition: list[str],
    sort: list[str],
    key: list[str],
    mode: WriteMode | None,
) -> dict[str, Any]:
    """The changes that the options request. An empty list removes the partitioning, sort order or key."""
    changes: dict[str, Any] = {
        "add": columns(add),
        "drop": names(drop),
        "rename": pairs(rename, "=", "renaming: write old=new"),
        "promote": columns(promote),
        "partition": terms(partition),
        "sort": terms(sort),
        "key": terms(names(key)),
        "mode": mode.value if mode else None,
    }
    return {name: value for name, value in changes.items() if value or (value == [] and name != "drop")}


def _schema(column: list[str], schema: Path | None, like: str | None) -> Any:
    if sum((bool(column), schema is not None, like is not None)) != 1:
        raise Invalid("name the columns in one way: --column name:type, or --schema FILE, or --like FILE")
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
        schema = json.loads(path.read_bytes())
        if isinstance(schema, dict) and isinstance(schema.get("fields"), list):
            return Schema.model_validate(schema)
    except OSError as error:
        raise Invalid(f"the schema in {path} cannot be read: {error}") from None
    except (ValidationError, ValueError) as error:
        raise Invalid(f"{path} is not a schema: {error}") from None
    if not isinstance(schema, dict) or not schema:
        raise Invalid(f'{path} is not a schema: write {{"name": "type", …}}, or an Iceberg schema')
    return schema
