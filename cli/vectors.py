"""`strandline vectors` and `strandline search`: text columns made findable by meaning and by words."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.opened import add_command, ask, opened
from cli.words import AS_OF_HELP, as_of, names, shown_time

if TYPE_CHECKING:
    from catalog.vectors.head import Head

Id = Annotated[str, typer.Argument(help="The vector table, DATABASE.TABLE.COLUMN.")]


class Mode(StrEnum):
    VECTOR = "vector"
    TEXT = "text"
    HYBRID = "hybrid"


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Vector tables: text columns embedded for search, kept up from changes.", no_args_is_help=True
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
    words: Annotated[str, typer.Argument(help="What to look for, in your own words.")],
    mode: Annotated[Mode, typer.Option(help="By meaning, by words, or both ranks fused.")] = Mode.HYBRID,
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many rows.")] = 10,
    where: Annotated[str | None, typer.Option(help="Only rows that meet this condition.")] = None,
    moment: Annotated[str | None, typer.Option("--as-of", help=AS_OF_HELP)] = None,
) -> None:
    """The rows that answer best, best first."""
    with opened(context) as (lake, output):
        snapshot_id = None
        if moment is not None:
            from catalog.tables.history import find_snapshot

            table = lake.vectors.describe(id_).table
            wanted = as_of(lake, table, moment)
            assert wanted is not None
            snapshot_id = find_snapshot(lake.tables.catalogue.load(table), wanted).snapshot_id
        found = lake.vectors.search(id_, words, mode=mode.value, k=k, where=where, as_of=snapshot_id)
        rows = found.to_pylist()
        if not output.is_json:
            rows = [{name: _short(value) for name, value in row.items()} for row in rows]
        output.table(rows, [name for name in found.column_names if name != "source_snapshot"])


def create(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, DATABASE.TABLE. It needs a key.")],
    column: Annotated[str, typer.Argument(help="The text column to embed.")],
    columns: Annotated[list[str] | None, typer.Option("--column", help="Kept beside it, to filter and show.")] = None,
    embedder: Annotated[str, typer.Option(help="wordllama-256, or bedrock:MODEL on AWS.")] = "wordllama-256",
) -> None:
    """Embeds a column of a table, and from then on follows its changes."""
    with opened(context) as (lake, output), output.progress(f"embedding {table}.{column}"):
        output.data(_facts(lake.vectors.create(table, column, columns=names(columns or []), embedder=embedder)))


def list_(context: typer.Context) -> None:
    """Every vector table."""
    with opened(context) as (lake, output):
        output.data(lake.vectors.list())


def describe(context: typer.Context, id_: Id) -> None:
    """What it was made from, and how fresh it is."""
    with opened(context) as (lake, output):
        output.data(_facts(lake.vectors.describe(id_)))


def refresh(
    context: typer.Context,
    id_: Id,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Embed every row anew.")] = False,
) -> None:
    """Brings it to the table's newest snapshot."""
    with opened(context) as (lake, output), output.progress(f"refreshing {id_}"):
        output.data(_facts(lake.vectors.refresh(id_, rebuild=rebuild)))


def maintain(context: typer.Context, id_: Id) -> None:
    """Compacts it, brings its indexes up to date, and removes versions nobody needs."""
    with opened(context) as (lake, output), output.progress(f"maintaining {id_}"):
        output.data(_facts(lake.vectors.maintain(id_)))


def verify(context: typer.Context, id_: Id) -> None:
    """Compares Lance's manifests with the digests kept of them, and those with the timeline."""
    with opened(context) as (lake, output):
        found = lake.vectors.verify(id_)
        output.data({"verified": id_, "versions": found.versions, "sequenced": found.sequenced})


def drop(
    context: typer.Context, id_: Id, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Removes the vector table; the table it was made from is not touched."""
    with opened(context) as (lake, output):
        if not yes:
            ask(output, f"Remove the vector table {id_}?")
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
        "refreshed": shown_time(None if newest is None else newest.refreshed_ms),
        "searchable_snapshots": len(head.entries),
    }


def _short(value: Any) -> Any:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
