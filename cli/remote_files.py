"""`strandline api`: files on their way in, over HTTP, and the rules they go by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from catalog.errors import NotFound
from cli.endpoint import TableName, Yes, connected
from cli.opened import add_command, ask
from cli.table_shape import MODE_HELP, WriteMode
from cli.words import columns, names


def register(group: typer.Typer) -> None:
    add_command(group, upload, "api upload bronze.notes today.md")
    add_command(group, where, "api where 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    rules = typer.Typer(help="What a table's files should look like.", no_args_is_help=True)
    add_command(rules, set_rule, "api rule set bronze.tides --column id:long --key id --unknown evolve", name="set")
    add_command(rules, get_rule, "api rule get bronze.tides", name="get")
    add_command(rules, remove_rule, "api rule remove bronze.tides --yes", name="remove")
    group.add_typer(rules, name="rule")


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


def set_rule(
    context: typer.Context,
    table: TableName,
    column: Annotated[list[str], typer.Option(help="name:type, as Iceberg calls it; once for each.")] = [],  # noqa: B006
    key: Annotated[list[str], typer.Option(help="A key column: rows replace those that have it.")] = [],  # noqa: B006
    mode: Annotated[WriteMode, typer.Option(help=MODE_HELP)] = WriteMode.COW,
    unknown: Annotated[
        Literal["reject", "ignore", "evolve"], typer.Option(help="What becomes of columns it does not know.")
    ] = "reject",
) -> None:
    """Say what a table's files should look like. Replaces the rule that is there; the table may come later."""
    rule: dict[str, Any] = {"key": names(key), "mode": mode.value, "unknown": unknown}
    if column:
        rule["columns"] = columns(column)
    with connected(context) as (client, output):
        output.data(client.set_rule(table, **rule))


def get_rule(context: typer.Context, table: TableName) -> None:
    """The rule of a table, set by somebody or inferred from its first files."""
    with connected(context) as (client, output):
        output.data(client.rule(table))


def remove_rule(context: typer.Context, table: TableName, yes: Yes = False) -> None:
    """Forget a table's rule; the table stays, and its columns are what counts."""
    if not yes:
        ask(context.obj, f"Forget the rule of {table}?")
    with connected(context) as (client, output):
        client.remove_rule(table)
        output.data({"table": table, "removed": True}, f"The rule of {table} is forgotten.")
