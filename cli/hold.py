"""`strandline hold`: legal holds. While a table has one, nothing that it held can be erased, expired or dropped."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from cli.lake_commands import add_command, confirm, opened

TableName = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Set, list and lift legal holds.", no_args_is_help=True)
    add_command(group, set_, "hold set silver.people --reason 'case 12'", name="set")
    add_command(group, list_, "hold list", name="list")
    add_command(group, lift, "hold lift silver.people --yes")
    app.add_typer(group, name="hold")


def set_(
    context: typer.Context,
    table: TableName,
    reason: Annotated[str, typer.Option(help="Why. Whoever is refused reads it.")],
) -> None:
    """Put a table under a legal hold: it cannot be erased from, expired or dropped."""
    with opened(context) as (lake, output):
        lake.tables.hold(table, reason)
        output.data({"table": table, "hold": reason}, escape(f"{table} is under a legal hold: {reason}"))


def list_(context: typer.Context) -> None:
    """List the tables under a legal hold, with the reasons."""
    with opened(context) as (lake, output):
        holds = lake.tables.holds()
        rows = [{"table": table, "hold": reason} for table, reason in sorted(holds.items())]
        lines = [f"{row['table']}: {row['hold']}" for row in rows] or ["No table is under a legal hold."]
        output.data(rows, escape("\n".join(lines)))


def lift(
    context: typer.Context,
    table: TableName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Lift a table's legal hold. The timeline keeps that it had one."""
    with opened(context) as (lake, output):
        if not yes:
            confirm(output, f"Lift the legal hold on {table}? Its data can then be erased, expired and dropped.")
        reason = lake.tables.lift_hold(table)
        text = f"{table} was under no legal hold." if reason is None else f"The hold on {table} is lifted: {reason}"
        output.data({"table": table, "lifted": reason}, escape(text))
