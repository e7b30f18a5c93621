"""`strandline table`: the commands that show tables, and that manage snapshots and files."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cli import table_shape, table_writes
from cli.lake_commands import add_command, confirm, opened
from cli.options import format_time, parse_cutoff
from cli.times import AS_OF_HELP, past_point

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from catalog.tables import Description

TableName = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def register(app: typer.Typer) -> None:
    help_ = "Create, read, write and alter tables, and manage their snapshots."
    group = typer.Typer(help=help_, no_args_is_help=True)
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
    """List all tables."""
    with opened(context) as (lake, output):
        output.data(lake.tables.list(database))


def describe(context: typer.Context, table: TableName) -> None:
    """Show a table's columns, key, partitions, size, freshness and column statistics, from its metadata."""
    with opened(context) as (lake, output):
        description = lake.tables.describe(table)
        if output.is_json:
            output.data(asdict(description))
            return
        output.data(_facts(description))
        output.caption("")
        columns = ("name", "type", "required", "nulls", "low", "high", "doc")
        output.table([{k: "" if v is None else v for k, v in asdict(c).items()} for c in description.columns], columns)


def history(
    context: typer.Context,
    table: TableName,
    limit: Annotated[int, typer.Option(min=1, help="How many snapshots, newest first.")] = 20,
) -> None:
    """List a table's snapshots: the operation, the rows, the write mode and the reason for it."""
    with opened(context) as (lake, output):
        refs = lake.tables.load(table).metadata.refs
        tags: dict[int, list[str]] = {}
        for name, ref in refs.items():
            tags.setdefault(ref.snapshot_id, []).append(name)
        rows = [_row(each, tags.get(each.snapshot_id, [])) for each in lake.tables.history(table)[:limit]]
        output.data(rows, escape("\n".join(map(_history_line, rows)) or f"{table} has no snapshot yet."))


def snapshot(
    context: typer.Context,
    table: TableName,
    name: Annotated[str, typer.Argument(help="The name; it keeps the snapshot from expiring.")],
    at: Annotated[str | None, typer.Option("--as-of", help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the name.")] = False,
) -> None:
    """Name a snapshot, so that it does not expire and can be read by name."""
    with opened(context) as (lake, output):
        if remove:
            lake.tables.drop_snapshot(table, name)
            output.data({"table": table, "removed": name}, f"{table}: the name {name} is removed.")
            return
        named = lake.tables.snapshot(table, name, as_of=at)
        output.data(
            {"table": table, "name": name, "snapshot_id": named.snapshot_id},
            f"{table}: {name} is snapshot {named.snapshot_id} of {format_time(named.timestamp_ms)}.",
        )


def rollback(
    context: typer.Context,
    table: TableName,
    to: Annotated[str, typer.Argument(help=AS_OF_HELP, callback=past_point)],
) -> None:
    """Make an earlier snapshot current again. Nothing is deleted: another rollback undoes it."""
    with opened(context) as (lake, output):
        before = lake.tables.load(table).metadata.current_snapshot_id
        after = lake.tables.rollback(table, to)
        output.data(
            {"table": table, "snapshot_id": after.snapshot_id, "was": before},
            f"{table} is at snapshot {after.snapshot_id} of {format_time(after.timestamp_ms)}; it was at {before}.",
        )


def expire(
    context: typer.Context,
    table: TableName,
    older_than: Annotated[str, typer.Option(help="An age (30m, 12h, 7d, 4w) or a time.")],
    retain_last: Annotated[int, typer.Option(min=1, help="Always keep this many of the newest.")] = 1,
    yes: Yes = False,
) -> None:
    """Expire old snapshots and delete the files that only they use. Keeps named and not yet sequenced snapshots."""
    with opened(context) as (lake, output):
        cutoff = parse_cutoff(older_than)
        if not yes:
            confirm(output, f"Expire the snapshots of {table} from before {cutoff:%Y-%m-%d %H:%M:%S %Z}?")
        with output.progress("expiring …"):
            expired = lake.tables.expire(table, older_than=cutoff, retain_last=retain_last)
        waiting = f" {expired.waiting} more wait for the timeline." if expired.waiting else ""
        output.data(
            {
                "table": table,
                "snapshots": expired.snapshots,
                "objects": len(expired.objects),
                "waiting": expired.waiting,
            },
            f"{table}: {len(expired.snapshots)} snapshots expired, {len(expired.objects)} objects deleted.{waiting}",
        )


def compact(
    context: typer.Context,
    table: TableName,
    budget_mb: Annotated[int, typer.Option(min=1, help="Read at most this many megabytes of files.")] = 512,
) -> None:
    """Merge small files and apply pending position deletes. No row changes."""
    with opened(context) as (lake, output):
        with output.progress("compacting …"):
            receipt = lake.tables.compact(table, budget_bytes=budget_mb << 20)
        output.data(asdict(receipt), f"{table}: {receipt.reason}.")


def clone(
    context: typer.Context,
    table: TableName,
    target: Annotated[str, typer.Argument(help="The new table, DATABASE.TABLE.")],
    at: Annotated[str | None, typer.Option("--as-of", help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
) -> None:
    """Create a table over another's files, without copying them. Later writes to one do not affect the other."""
    with opened(context) as (lake, output):
        lake.tables.clone(table, target, as_of=at)
        rows = lake.tables.describe(target).rows
        output.data({"table": target, "of": table, "rows": rows}, f"{target}: {rows} rows of {table}.")


def drop(
    context: typer.Context,
    table: TableName,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete its files.")] = False,
    yes: Yes = False,
) -> None:
    """Remove a table from the catalog. Its files stay, unless --purge is set."""
    with opened(context) as (lake, output):
        if not yes:
            rows = lake.tables.describe(table).rows
            confirm(output, f"Drop {table} with its {rows} rows{' and delete its files' if purge else ''}?")
        lake.tables.drop(table, purge=purge)
        output.data({"dropped": table, "purged": purge}, f"{table} is dropped.")


def _facts(description: Description) -> dict[str, Any]:
    facts = {
        "table": description.name,
        "uuid": description.uuid,
        "location": description.location,
        "mode": description.mode,
        "key": ", ".join(description.key) or "none",
        "partition": ", ".join(description.partition) or "none",
        "sort": ", ".join(description.sort) or "none",
        "rows": f"{description.rows:,}",
        "files": f"{description.files} ({description.bytes:,} bytes), {description.delete_files} with deletes",
        "deletes": f"{description.pending_deletes} pending",
        "snapshots": f"{description.snapshots}, the current one is {description.snapshot_id or 'none'}",
        "committed": format_time(description.committed_ms) or "never",
        "names": ", ".join(f"{name} ({id_})" for name, id_ in description.tags.items()) or "none",
    }
    return facts | ({"compact": f"recommended: {description.needs_compaction}"} if description.needs_compaction else {})


def _row(snapshot: Snapshot, names: list[str]) -> dict[str, Any]:
    from catalog.tables import MODE_REASON, MODE_USED

    summary = snapshot.summary
    properties = {} if summary is None else summary.additional_properties
    return {
        "snapshot_id": snapshot.snapshot_id,
        "parent_id": snapshot.parent_snapshot_id,
        "committed": format_time(snapshot.timestamp_ms),
        "operation": summary.operation.value if summary else "",
        "added": int(properties.get("added-records", 0)),
        "deleted": int(properties.get("deleted-records", 0)) + int(properties.get("added-position-deletes", 0)),
        "mode": properties.get(MODE_USED, ""),
        "names": " ".join(sorted(names)),
        "reason": properties.get(MODE_REASON, ""),
    }


def _history_line(row: dict[str, Any]) -> str:
    """One line, not wrapped or truncated: a snapshot id must be complete to be copied."""
    rows = f"+{row['added']} -{row['deleted']}"
    mode = f"  {row['mode']}: {row['reason']}" if row["reason"] else ""
    names = f"  ({row['names']})" if row["names"] else ""
    return f"{row['snapshot_id']:>19}  {row['committed']}  {row['operation']:<9} {rows}{mode}{names}"
