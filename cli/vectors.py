"""`strandline vectors` and `strandline search`: embeds text columns, and searches them by meaning and by words."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.lake_commands import add_command, confirm, opened
from cli.options import format_time, names
from cli.times import AS_OF_HELP, past_point

if TYPE_CHECKING:
    from catalog.core.vector_head import Head

Id = Annotated[str, typer.Argument(help="The vector table, DATABASE.TABLE.COLUMN.")]


class Mode(StrEnum):
    VECTOR = "vector"
    TEXT = "text"
    HYBRID = "hybrid"


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Manage vector tables: embeddings of text columns that follow the table's changes.", no_args_is_help=True
    )
    add_command(group, create, "vectors create silver.notes text", "vectors create silver.notes text --column title")
    add_command(group, list_, "vectors list", "-o json vectors list", name="list")
    add_command(group, describe, "vectors describe silver.notes.text")
    add_command(group, refresh, "vectors refresh silver.notes.text", "vectors refresh silver.notes.text --rebuild")
    add_command(group, maintain, "vectors maintain silver.notes.text")
    add_command(group, verify, "vectors verify silver.notes.text")
    add_command(group, drop, "vectors drop silver.notes.text --yes")
    app.add_typer(group, name="vectors")
    add_command(
        app,
        search,
        'search silver.notes.text "how do tides work"',
        'search silver.notes.text "neap tide" --mode text -k 3 --where "stars >= 4"',
        'search silver.notes.text "tides" --as-of 2026-03-01',
    )


def search(
    context: typer.Context,
    id_: Annotated[str, typer.Argument(metavar="VECTORS", help="The vector table, DATABASE.TABLE.COLUMN.")],
    words: Annotated[str, typer.Argument(help="The text to search for.")],
    mode: Annotated[Mode, typer.Option(help="By meaning, by words, or both.")] = Mode.HYBRID,
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many rows.")] = 10,
    where: Annotated[str | None, typer.Option(help="Only rows that meet this SQL condition.")] = None,
    at: Annotated[str | None, typer.Option("--as-of", help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
) -> None:
    """Show the rows nearest to a text, best first."""
    with opened(context) as (lake, output):
        matches = lake.vectors.search(id_, words, mode=mode.value, k=k, where=where, as_of=at)
        rows = matches.to_pylist()
        if not output.is_json:
            rows = [{name: _short(value) for name, value in row.items()} for row in rows]
        output.table(rows, [name for name in matches.column_names if name != "source_snapshot"])


def create(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, DATABASE.TABLE. It needs a key.")],
    column: Annotated[str, typer.Argument(help="The text column to embed.")],
    columns: Annotated[list[str] | None, typer.Option("--column", help="Also store this column; repeatable.")] = None,
    embedder: Annotated[str, typer.Option(help="wordllama-256, or bedrock:MODEL on AWS.")] = "wordllama-256",
) -> None:
    """Embed a column of a table. The embeddings then follow the table's changes."""
    with opened(context) as (lake, output), output.progress(f"embedding {table}.{column}"):
        output.data(_facts(lake.vectors.create(table, column, columns=names(columns or []), embedder=embedder)))


def list_(context: typer.Context) -> None:
    """List the vector tables."""
    with opened(context) as (lake, output):
        output.data(lake.vectors.list())


def describe(context: typer.Context, id_: Id) -> None:
    """Show a vector table's source, size and freshness."""
    with opened(context) as (lake, output):
        output.data(_facts(lake.vectors.describe(id_)))


def refresh(
    context: typer.Context,
    id_: Id,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Embed every row again.")] = False,
) -> None:
    """Update a vector table to the newest snapshot of its table."""
    with opened(context) as (lake, output), output.progress(f"refreshing {id_}"):
        output.data(_facts(lake.vectors.refresh(id_, rebuild=rebuild)))


def maintain(context: typer.Context, id_: Id) -> None:
    """Compact a vector table, update its indexes, and remove old versions."""
    with opened(context) as (lake, output), output.progress(f"maintaining {id_}"):
        output.data(_facts(lake.vectors.maintain(id_)))


def verify(context: typer.Context, id_: Id) -> None:
    """Check Lance's manifests against their stored digests, and those against the timeline."""
    with opened(context) as (lake, output):
        report = lake.vectors.verify(id_)
        output.data({"verified": id_, "versions": report.versions, "sequenced": report.sequenced})


def drop(
    context: typer.Context,
    id_: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove a vector table. Its source table does not change."""
    with opened(context) as (lake, output):
        if not yes:
            confirm(output, f"Remove the vector table {id_}?")
        lake.vectors.drop(id_)
        output.data({"dropped": id_})


def _facts(head: Head) -> dict[str, Any]:
    newest = head.newest
    return {
        "id": head.id,
        "table": head.table,
        "column": head.column,
        "key": ", ".join(head.key),
        "columns": ", ".join(head.columns),
        "embedder": head.embedder,
        "rows": 0 if newest is None else newest.rows,
        "snapshot_id": None if newest is None else newest.snapshot_id,
        "refreshed": format_time(None if newest is None else newest.refreshed_ms),
        "searchable_snapshots": len(head.entries),
    }


def _short(value: Any) -> Any:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
