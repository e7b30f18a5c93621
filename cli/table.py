"""`strandline table`: the group, and the commands that look at tables or move between their snapshots."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cli import table_shape, table_writes
from cli.opened import add_command, ask, opened
from cli.words import AS_OF_HELP, as_of, before, shown_time

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from catalog.tables.describe import Description

TableName = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    said = "Tables: make them, write to them, change their shape, go back in time."
    group = typer.Typer(help=said, no_args_is_help=True)
    table_shape.register(group)
    table_writes.register(group)
    add_command(group, list_, "table list", "table list silver", "-o json table list", name="list")
    add_command(group, describe, "table describe silver.tides", "-o json table describe silver.tides")
    add_command(group, history, "table history silver.tides", "table history silver.tides --limit 5")
    add_command(
        group,
        snapshot,
        "table snapshot silver.tides before-repair",
        "table snapshot silver.tides q1 --as-of 2026-03-31",
        "table snapshot silver.tides q1 --remove",
    )
    add_command(
        group, rollback, "table rollback silver.tides before-repair", "table rollback silver.tides 2026-03-01T12:00Z"
    )
    add_command(
        group,
        expire,
        "table expire silver.tides --older-than 7d",
        "table expire silver.tides --older-than 2026-01-01",
    )
    add_command(group, compact, "table compact silver.tides", "table compact silver.tides --budget-mb 128")
    add_command(
        group,
        clone,
        "table clone silver.tides sandbox.tides",
        "table clone silver.tides sandbox.q1 --as-of 2026-03-31",
    )
    add_command(group, drop, "table drop sandbox.tides", "table drop sandbox.tides --purge --yes")
    app.add_typer(group, name="table")


def list_(
    context: typer.Context,
    database: Annotated[str | None, typer.Argument(help="Only this database's tables.")] = None,
) -> None:
    """The names of all tables."""
    with opened(context) as (lake, output):
        output.data(lake.tables.list(database))


def describe(context: typer.Context, table: TableName) -> None:
    """Shape, size, freshness and column statistics, from metadata alone."""
    with opened(context) as (lake, output):
        found = lake.tables.describe(table)
        if output.is_json:
            output.data(asdict(found))
            return
        output.data(_facts(found))
        output.caption("")
        columns = ("name", "type", "required", "nulls", "low", "high", "doc")
        output.table([{k: "" if v is None else v for k, v in asdict(c).items()} for c in found.columns], columns)


def history(
    context: typer.Context,
    table: TableName,
    limit: Annotated[int, typer.Option(min=1, help="How many snapshots, newest first.")] = 20,
) -> None:
    """The snapshots behind the table's state: what each did, how, and why so."""
    with opened(context) as (lake, output):
        refs = lake.tables.load(table).metadata.refs
        tags: dict[int, list[str]] = {}
        for name, ref in refs.items():
            tags.setdefault(ref.snapshot_id, []).append(name)
        found = [_row(one, tags.get(one.snapshot_id, [])) for one in lake.tables.history(table)[:limit]]
        output.data(found, escape("\n".join(map(_history_line, found)) or f"{table} has no snapshot yet."))


def snapshot(
    context: typer.Context,
    table: TableName,
    name: Annotated[str, typer.Argument(help="A word that keeps the snapshot from expiring.")],
    at: Annotated[str | None, typer.Option("--as-of", help=AS_OF_HELP, show_default="now")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the name away again.")] = False,
) -> None:
    """Name a snapshot, so that it stays and can be asked for by name."""
    with opened(context) as (lake, output):
        if remove:
            lake.tables.drop_snapshot(table, name)
            output.data({"table": table, "removed": name}, f"{table}: {name} names nothing any more.")
            return
        named = lake.tables.snapshot(table, name, as_of=as_of(lake, table, at))
        output.data(
            {"table": table, "name": name, "snapshot_id": named.snapshot_id},
            f"{table}: {name} is snapshot {named.snapshot_id} of {shown_time(named.timestamp_ms)}.",
        )


def rollback(
    context: typer.Context,
    table: TableName,
    to: Annotated[str, typer.Argument(help=AS_OF_HELP)],
) -> None:
    """Make an earlier state current again. Nothing is deleted: it can be taken back the same way."""
    with opened(context) as (lake, output):
        was = lake.tables.load(table).metadata.current_snapshot_id
        moment = as_of(lake, table, to)
        assert moment is not None
        now = lake.tables.rollback(table, moment)
        output.data(
            {"table": table, "snapshot_id": now.snapshot_id, "was": was},
            f"{table} is at snapshot {now.snapshot_id} of {shown_time(now.timestamp_ms)}; it was at {was}.",
        )


def expire(
    context: typer.Context,
    table: TableName,
    older_than: Annotated[str, typer.Option(help="An age (30m, 12h, 7d, 4w) or a time.")],
    retain_last: Annotated[int, typer.Option(min=1, help="How many of the newest stay in any case.")] = 1,
    yes: Yes = False,
) -> None:
    """Forget old snapshots and delete the files only they need. Stay: named ones, and those not yet in the timeline."""
    with opened(context) as (lake, output):
        cutoff = before(older_than)
        if not yes:
            ask(output, f"Forget the snapshots of {table} from before {cutoff:%Y-%m-%d %H:%M:%S %Z}?")
        with output.progress("expiring …"):
            gone = lake.tables.expire(table, older_than=cutoff, retain_last=retain_last)
        waiting = f" {gone.waiting} more wait for the timeline." if gone.waiting else ""
        output.data(
            {"table": table, "snapshots": gone.snapshots, "objects": len(gone.objects), "waiting": gone.waiting},
            f"{table}: {len(gone.snapshots)} snapshots expired, {len(gone.objects)} objects deleted.{waiting}",
        )


def compact(
    context: typer.Context,
    table: TableName,
    budget_mb: Annotated[int, typer.Option(min=1, help="How many megabytes of files are read at most.")] = 512,
) -> None:
    """Merge pending deletes and small files. Changes no row."""
    with opened(context) as (lake, output):
        with output.progress("compacting …"):
            receipt = lake.tables.compact(table, budget_bytes=budget_mb << 20)
        output.data(asdict(receipt), f"{table}: {receipt.reason}.")


def clone(
    context: typer.Context,
    table: TableName,
    target: Annotated[str, typer.Argument(help="The new table, DATABASE.TABLE.")],
    at: Annotated[str | None, typer.Option("--as-of", help=AS_OF_HELP, show_default="now")] = None,
) -> None:
    """A new table with the same rows, without copying them. What is written to either stays its own."""
    with opened(context) as (lake, output):
        lake.tables.clone(table, target, as_of=as_of(lake, table, at))
        rows = lake.tables.describe(target).rows
        output.data({"table": target, "of": table, "rows": rows}, f"{target}: {rows} rows of {table}.")


def drop(
    context: typer.Context,
    table: TableName,
    purge: Annotated[bool, typer.Option("--purge", help="Delete its files, too.")] = False,
    yes: Yes = False,
) -> None:
    """Take a table from the catalog. Its files stay, unless --purge says otherwise."""
    with opened(context) as (lake, output):
        if not yes:
            rows = lake.tables.describe(table).rows
            ask(output, f"Drop {table} with its {rows} rows{' and delete its files' if purge else ''}?")
        lake.tables.drop(table, purge=purge)
        output.data({"dropped": table, "purged": purge}, f"{table} is dropped.")


def _facts(found: Description) -> dict[str, Any]:
    facts = {
        "table": found.name,
        "uuid": found.uuid,
        "location": found.location,
        "mode": found.mode,
        "key": ", ".join(found.key) or "none",
        "partition": ", ".join(found.partition) or "none",
        "sort": ", ".join(found.sort) or "none",
        "rows": f"{found.rows:,}",
        "files": f"{found.files} ({found.bytes:,} bytes), {found.delete_files} with deletes",
        "deletes": f"{found.pending_deletes} pending",
        "snapshots": f"{found.snapshots}, the current one is {found.snapshot_id or 'none'}",
        "committed": shown_time(found.committed_ms) or "never",
        "names": ", ".join(f"{name} ({id_})" for name, id_ in found.tags.items()) or "none",
    }
    return facts | ({"compact": f"it is time: {found.needs_compaction}"} if found.needs_compaction else {})


def _row(found: Snapshot, names: list[str]) -> dict[str, Any]:
    from catalog.tables.commits import MODE_REASON, MODE_USED

    summary = found.summary
    noted = {} if summary is None else summary.additional_properties
    return {
        "snapshot_id": found.snapshot_id,
        "parent_id": found.parent_snapshot_id,
        "committed": shown_time(found.timestamp_ms),
        "operation": summary.operation.value if summary else "",
        "added": int(noted.get("added-records", 0)),
        "deleted": int(noted.get("deleted-records", 0)) + int(noted.get("added-position-deletes", 0)),
        "mode": noted.get(MODE_USED, ""),
        "names": " ".join(sorted(names)),
        "reason": noted.get(MODE_REASON, ""),
    }


def _history_line(row: dict[str, Any]) -> str:
    """One line, however long: a snapshot id that is cut off is good for nothing."""
    rows = f"+{row['added']} -{row['deleted']}"
    why = f"  {row['mode']}: {row['reason']}" if row["reason"] else ""
    names = f"  ({row['names']})" if row["names"] else ""
    return f"{row['snapshot_id']:>19}  {row['committed']}  {row['operation']:<9} {rows}{why}{names}"
