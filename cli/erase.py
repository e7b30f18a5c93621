"""`strandline erase`: removes rows from every kept snapshot of a table, for good."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from catalog import Invalid
from cli.lake_commands import add_command, confirm, opened


def register(app: typer.Typer) -> None:
    add_command(
        app,
        erase,
        "erase silver.people --key id=17 --reason 'request 2026-114'",
        "erase silver.people --where \"email = 'ada@example.org'\" --reason 'request 2026-115' --yes",
    )


def key_of(pairs: list[str]) -> dict[str, str]:
    """Column -> value of a key that was given as column=value."""
    parts = [each.partition("=") for each in pairs]
    if any(not column or not equals for column, equals, _ in parts):
        raise Invalid("a key is column=value, for example --key id=17")
    return {column: value for column, _, value in parts}


def erase(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")],
    reason: Annotated[str, typer.Option(help="Why. It stays in the record: write no personal data.")],
    key: Annotated[
        list[str], typer.Option("--key", "-k", help="column=value; repeatable for a key of several columns.")
    ] = [],  # noqa: B006
    where: Annotated[str | None, typer.Option(help="Every key that ever had a row for which this is true.")] = None,
    accept_guessable: Annotated[
        bool, typer.Option("--accept-guessable", help="Also erase rows without a salt, whose digests can be guessed.")
    ] = False,
    max_gb: Annotated[float, typer.Option(min=0.001, help="Read at most so much of the table's files.")] = 2.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase rows from all kept snapshots of a table, with all versions of their files. It cannot be undone."""
    keys = [key_of(key)] if key else []
    with opened(context) as (lake, output):
        if not yes:
            confirm(output, f"Erase rows of {table} from all of its history? This cannot be undone.")
        eraser = lake.eraser
        eraser.max_bytes = int(max_gb * (1 << 30))
        with output.progress("erasing …"):
            result = eraser.erase(table, reason=reason, keys=keys, where=where, accept_guessable=accept_guessable)
        lines = [f"{table}: no row was found."]
        if result.index is not None:
            lines = [
                f"{table}: {result.rows} rows in {result.replaced} objects are erased, by leaf {result.index} of the "
                f"timeline; {result.purged} versions of objects were deleted."
            ]
        lines += [f"Left: {place}" for place in result.remains]
        output.data(asdict(result), escape("\n".join(lines)))
