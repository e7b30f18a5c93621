"""`strandline ingest plan|list|show|explain|retry`: what files would become, and what became of them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog import Invalid
from cli.lake_commands import add_command, opened
from cli.options import path_in_lake

if TYPE_CHECKING:
    from catalog import Lake
    from catalog.ingest import IngestPlan

Table = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]
Key = Annotated[str, typer.Argument(help="The file's landing/ key.")]
REPORT = ("source", "table", "reason", "bytes", "at")
RECORD = ("key", "state", "table", "rows", "reason", "at")


def register(group: typer.Typer) -> None:
    add_command(group, plan, "ingest plan trips.csv bronze.trips", "-o json ingest plan exports/ bronze.prices")
    add_command(group, list_files, "ingest list bronze.tides", "ingest list --quarantined", name="list")
    add_command(group, show, "ingest show landing/bronze/tides/tides.jsonl")
    add_command(group, explain, "ingest explain landing/bronze/tides/broken.jsonl")
    add_command(group, retry, "ingest retry landing/bronze/tides/broken.jsonl")


def find_files(paths: list[Path], root: Path | None) -> Iterator[tuple[str, Path]]:
    """Name and path of each file. A directory stands for the files below it, named by their path below it; hidden ones
    are skipped. Invalid for a path that does not exist."""
    for path in paths:
        if not path.is_dir():
            if not path.is_file():
                raise Invalid(f"there is no file or directory {path}: check the path", subject=str(path))
            yield path_in_lake(path, root), path
            continue
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path)
            if file.is_file() and not any(part.startswith(".") for part in name.parts):
                yield path_in_lake(file, root or path), file


def plan(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Files, or directories of files.")],
    table: Table,
    root: Annotated[Path | None, typer.Option(help="Name files by their path below this directory.")] = None,
) -> None:
    """Show what would become of files: columns and types, the key, doubtful columns, the first rows. Writes nothing.

    Exit code 1 if a file would be rejected.
    """
    with opened(context) as (lake, output):
        from catalog.ingest import plan_files

        openers = {name: lambda path=path: path.open("rb") for name, path in find_files(files, root)}
        made = plan_files(lake.tables, _rules(lake), table, openers)
        if output.is_json:
            output.data(asdict(made))
        else:
            _show_plan(made, output)
        if any(file.error for file in made.files):
            raise typer.Exit(1)


def list_files(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only files of this table.")] = None,
    quarantined: Annotated[bool, typer.Option("--quarantined", help="Only rejected files, with the reason.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most this many, the latest first.")] = 100,
) -> None:
    """List the files that were ingested, or those in quarantine, also of tables that do not exist."""
    with opened(context) as (lake, output):
        from catalog.ingest import list_quarantined, list_records

        if quarantined:
            output.table(list_quarantined(lake.s3, lake.settings.bucket, table, limit), REPORT)
            return
        records = list_records(lake.s3, lake.settings.bucket, table, limit)
        output.table([record.model_dump(mode="json", exclude_none=True) for record in records], RECORD)


def show(context: typer.Context, key: Key) -> None:
    """Show all that is known of a landed file."""
    with opened(context) as (lake, output):
        from catalog.ingest import find_by_key, find_report

        records = find_by_key(lake.s3, lake.settings.bucket, key)
        if not records:
            raise Invalid(f"{key} is not processed yet: try again", subject=key)
        shown = records[0].model_dump(mode="json", exclude_none=True)
        if records[0].state == "quarantined":
            shown["quarantine"] = find_report(lake.s3, lake.settings.bucket, key)
        output.data(shown)


def explain(context: typer.Context, key: Key) -> None:
    """Say what to change for a rejected file, and whether it would be accepted now. Writes nothing."""
    with opened(context) as (lake, output):
        from catalog.ingest import find_report, parse_key, plan_files

        report = find_report(lake.s3, lake.settings.bucket, key)
        found: dict[str, Any] = {"file": key, "reason": report["reason"], **report["position"]}
        if report["table"] and report["kept_as"]:
            body = lake.s3.get_object(Bucket=lake.settings.bucket, Key=report["kept_as"])["Body"].read()
            name = parse_key(key).name
            made = plan_files(lake.tables, _rules(lake), report["table"], {name: lambda: io.BytesIO(body)})
            error = made.files[0].error
            found["now"] = "it would be accepted" if error is None else f"it would be rejected again: {error}"
            found["next"] = (
                f"strandline ingest retry {key}" if error is None else "correct the file, then `strandline ingest put`"
            )
        output.data(found)


def retry(context: typer.Context, key: Key) -> None:
    """Ingest a rejected file again, for example after its table's rule was changed."""
    with opened(context) as (lake, output):
        from catalog.ingest import retry_file

        output.data({"key": key, "version": retry_file(lake.s3, lake.settings.bucket, key)})


def _show_plan(made: IngestPlan, output: Any) -> None:
    title = f"{made.table}: {'exists' if made.exists else 'would be created'}"
    keyed = f", key {', '.join(made.key)}" if made.key else ", no key: rows are appended"
    output.table([asdict(column) for column in made.columns], ("name", "type", "source", "doubt"), title=title + keyed)
    files = [{**asdict(file), "dialect": _dialect(file.dialect)} for file in made.files]
    output.table(files, ("name", "format", "rows", "dialect", "error"), title="files")
    if made.sample:
        output.table(made.sample, tuple(column.name for column in made.columns), title="first rows")


def _dialect(options: Any) -> str:
    if options is None:
        return ""
    return f"{options.encoding}, {options.delimiter!r}" + (f", dates {options.dates}" if options.dates else "")


def _rules(lake: Lake) -> Any:
    from catalog.ingest import RuleStore

    return RuleStore(lake.s3, lake.settings.bucket, lake.tables)
