"""`strandline import` and `strandline export`: copies files on this machine into a table, and a table into files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from catalog.formats import ExportFormat
from cli.lake_commands import add_command, counting, opened
from cli.options import names
from cli.row_files import RowFormat, find_files
from cli.table_shape import WriteMode
from cli.times import AS_OF_HELP, past_point

COLUMNS = ("file", "status", "rows", "snapshot_id", "error")


def register(app: typer.Typer) -> None:
    add_command(
        app,
        import_,
        "import monday.csv tuesday.jsonl silver.tides",
        "import exports/2026/ silver.tides",
        "import corrections.parquet silver.tides --upsert",
        name="import",
    )
    add_command(
        app,
        export,
        "export silver.tides tides.parquet",
        "export silver.tides parts/ --rows-per-file 500000",
        "export silver.tides - --format jsonl --where 'metres > 3' --as-of 2026-03-01",
    )


def import_(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(help="Files or directories: JSON lines, JSON, CSV, TSV, Parquet, also .gz and .zst."),
    ],
    table: Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")],
    format_: Annotated[
        RowFormat | None, typer.Option("--format", "-f", help="The files' format.", show_default="by suffix")
    ] = None,
    upsert: Annotated[bool, typer.Option("--upsert", help="Replace rows with the same key.")] = False,
    key: Annotated[list[str], typer.Option("--key", "-k", help="The key of a new table, or to upsert by.")] = [],  # noqa: B006
    mode: Annotated[WriteMode, typer.Option(help="The mode of a new table.")] = WriteMode.COW,
) -> None:
    """Import files into a table, each once: another run imports only new and changed files.

    Creates a missing table from the files' columns. A file with an error is rejected as a whole, with the row and
    column of the error; the other files are imported, and the exit code is 2.
    """
    files = find_files(paths, format_)
    with opened(context) as (lake, output), counting("importing") as progress:
        from cli.imports import Import

        run = Import(lake.tables, table, progress, key=names(key), mode=mode.value)
        outcomes = run.run(files, upsert=upsert)
    rows = [asdict(outcome) for outcome in outcomes]
    total = sum(outcome.rows for outcome in outcomes if outcome.status == "imported")
    if output.is_json:
        output.data({"table": table, "created": run.created, "rows": total, "files": rows})
    else:
        output.table([{k: "" if v is None else v for k, v in row.items()} for row in rows], COLUMNS)
        output.caption(f"{table}: {total} rows imported.")
    if any(outcome.status == "refused" for outcome in outcomes):
        raise typer.Exit(2)


def export(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")],
    path: Annotated[str, typer.Argument(help="A file, a directory (ending in /) for parts, or `-` for stdout.")],
    format_: Annotated[
        ExportFormat | None,
        typer.Option("--format", "-f", help="The file's format.", show_default="by suffix"),
    ] = None,
    at: Annotated[str | None, typer.Option("--as-of", help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
    where: Annotated[
        str | None, typer.Option(help="Only rows that meet this SQL condition, for example 'metres > 3'.")
    ] = None,
    columns: Annotated[list[str], typer.Option("--columns", help="Only these columns, a,b; repeatable.")] = [],  # noqa: B006
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows.")] = None,
    rows_per_file: Annotated[int, typer.Option(min=1, help="The rows of each part in a directory.")] = 1_000_000,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files of an earlier export.")] = False,
) -> None:
    """Export a table, now or as of a point in time. Memory does not grow with the table."""
    from cli.row_exports import ExportTarget
    from cli.row_exports import export as write

    target = ExportTarget.of(path, format_)
    with opened(context) as (lake, output), counting("exporting") as progress:
        from catalog.tables import scan_batches, scan_schema

        scan = lake.tables.plan_scan(table, where=where, columns=names(columns) or None, as_of=at, limit=limit)
        done = write(
            scan_batches(scan, table),
            scan_schema(scan),
            target,
            rows_per_file=rows_per_file,
            overwrite=overwrite,
            progress=progress,
        )
        snapshot = scan.snapshot()
    if path != "-":
        answer = {"table": table, "to": path, "snapshot_id": snapshot.snapshot_id if snapshot else None, **asdict(done)}
        output.data(answer, f"{path}: {done.rows} rows of {table}, {done.bytes} bytes in {done.files} files.")
