"""`strandline api`: uploads files, shows their status and edits rules, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from catalog import NotFound
from cli.api_connection import TableName, Yes, connected
from cli.lake_commands import add_command, confirm
from cli.options import columns, names, path_in_lake
from cli.table_shape import MODE_HELP, WriteMode


def register(group: typer.Typer) -> None:
    add_command(group, upload, "api upload bronze.notes today.md")
    add_command(group, where, "api where 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    rules = typer.Typer(help="The rules by which files become rows of a table.", no_args_is_help=True)
    add_command(rules, set_rule, "api rule set bronze.tides --column id:long --key id --unknown evolve", name="set")
    add_command(rules, get_rule, "api rule get bronze.tides", name="get")
    add_command(rules, remove_rule, "api rule remove bronze.tides --yes", name="remove")
    group.add_typer(rules, name="rule")


def upload(
    context: typer.Context,
    table: TableName,
    file: Annotated[Path, typer.Argument(help="Any file that can be ingested.", exists=True, dir_okay=False)],
) -> None:
    """Put a file into landing, named by its path as typed. `strandline api where DIGEST` shows what became of it."""
    with connected(context) as (client, output):
        digest = client.upload(table, path_in_lake(file), file.read_bytes())
        output.data({"sha256": digest, "table": table}, digest)


def where(context: typer.Context, digest: Annotated[str, typer.Argument(help="SHA-256 of the file.")]) -> None:
    """Show what became of a file, by its SHA-256."""
    with connected(context) as (client, output):
        file = client.where_is(digest)
        if file["status"] == "unknown":
            message = f"no file with the digest {digest} was sent to a table that you may read"
            raise NotFound(f"{message}: send it with `strandline api upload TABLE FILE`")
        output.data(dict(file))


def set_rule(
    context: typer.Context,
    table: TableName,
    column: Annotated[list[str], typer.Option(help="name:type, with an Iceberg type; repeatable.")] = [],  # noqa: B006
    key: Annotated[list[str], typer.Option(help="A key column, to replace rows by; repeatable.")] = [],  # noqa: B006
    mode: Annotated[WriteMode, typer.Option(help=MODE_HELP)] = WriteMode.COW,
    unknown: Annotated[
        Literal["reject", "ignore", "evolve"], typer.Option(help="For columns not in the rule.")
    ] = "reject",
) -> None:
    """Set the rule by which files become rows of a table. Replaces an existing rule; the table need not exist yet."""
    rule: dict[str, Any] = {"key": names(key), "mode": mode.value, "unknown": unknown}
    if column:
        rule["columns"] = columns(column)
    with connected(context) as (client, output):
        output.data(client.set_rule(table, **rule))


def get_rule(context: typer.Context, table: TableName) -> None:
    """Show the rule of a table: set by a user, or inferred from its first files."""
    with connected(context) as (client, output):
        output.data(client.rule(table))


def remove_rule(context: typer.Context, table: TableName, yes: Yes = False) -> None:
    """Remove a table's rule. The table stays, and its own columns decide from then on."""
    if not yes:
        confirm(context.obj, f"Remove the rule of {table}?")
    with connected(context) as (client, output):
        client.remove_rule(table)
        output.data({"table": table, "removed": True}, f"The rule of {table} is removed.")
