"""`strandline api`: commits, proofs, changes, watermarks, named snapshots and the published log, over HTTP."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from catalog import Invalid
from cli.api_connection import Key, TableName, connected
from cli.lake_commands import add_command
from cli.prove import KEY_COLUMN_HELP, RANGE_HELP, VALUES_HELP, key_columns, key_set
from cli.times import POSITION_HELP, past_point

Index = Annotated[int | None, typer.Argument(min=0, help="The leaf's index.")]
OfSnapshot = Annotated[str | None, typer.Option("--snapshot", help="Instead: the id of the commit's snapshot.")]


def register(group: typer.Typer) -> None:
    add_command(group, commits, "api commits silver.tides", "api commits silver.tides --since sequence:7")
    add_command(group, commit, "api commit 42", "api commit --snapshot 5551234")
    add_command(group, proof, "api proof 42 --to 42.tlog-proof", "api proof --snapshot 5551234")
    add_command(
        group,
        row_proof,
        "api row-proof silver.tides --key station=Dover",
        "api row-proof silver.tides --key station=Dover --at 42 --to dover.tlog-proof",
        name="row-proof",
    )
    add_command(
        group,
        answer_proof,
        "api answer-proof silver.tides --key station=Dover --key station=Brest",
        "api answer-proof silver.tides --range hour=1..24 --at 42 --to day.tlog-proof",
        name="answer-proof",
    )
    add_command(group, changes, "api changes silver.tides", "api changes silver.tides --since sequence:3")
    add_command(group, mark, "api mark reports silver.tides", "api mark reports silver.tides --to 7 --expected 3")
    add_command(group, snapshots, "api snapshots", "api snapshots silver.tides", "api snapshots --cut close-of-day")
    add_command(group, snapshot, "api snapshot close-of-day", "api snapshot audited --table silver.tides")
    add_command(group, head, "api head", "api head --keys")
    add_command(group, consistency, "api consistency 100", "api consistency 100 --new 200")
    add_command(group, tile, "api tile tile/0/000.p/9 --to tile", "api tile tile/entries/000.p/9 --to entries")


def commits(
    context: typer.Context,
    table: TableName,
    since: Annotated[str | None, typer.Option(help=f"Only leaves after: {POSITION_HELP}", callback=past_point)] = None,
    limit: Annotated[int, typer.Option(min=1)] = 100,
) -> None:
    """List a table's leaves in the timeline, oldest first."""
    with connected(context) as (client, output):
        leaves: list[Any] = list(islice(client.commits(table, since), limit))
        output.table(leaves, ("index", "sequence", "operation", "ref", "snapshot_id", "sequenced_ms"))


def commit(context: typer.Context, index: Index = None, snapshot: OfSnapshot = None) -> None:
    """Show one leaf of the timeline."""
    _check_commit_id(index, snapshot)
    with connected(context) as (client, output):
        output.data(dict(client.commit(index, snapshot_id=snapshot)))


def proof(
    context: typer.Context,
    index: Index = None,
    snapshot: OfSnapshot = None,
    to: Annotated[Path | None, typer.Option(help="The file to write.", show_default="stdout")] = None,
) -> None:
    """Write a proof file that a commit is in the timeline; `strandline proof verify` verifies it offline."""
    _check_commit_id(index, snapshot)
    with connected(context) as (client, output):
        data = client.proof(index, snapshot_id=snapshot)
        if to is None:
            output.data({"proof": data.decode()}, escape(data.decode()))
            return
        to.write_bytes(data)
        output.data({"proof": str(to)}, f"{to} is written.")


def row_proof(
    context: typer.Context,
    table: TableName,
    key: Annotated[list[str], typer.Option("--key", help=KEY_COLUMN_HELP)],
    at: Annotated[str | None, typer.Option(help="An index, or a time.", show_default="now")] = None,
    to: Annotated[Path | None, typer.Option(help="The file to write.", show_default="stdout")] = None,
    values: Annotated[bool, typer.Option(help="Show the row in the proof, and not only its digest.")] = True,
) -> None:
    """Write a proof file that a table had a row, or had none; `strandline proof verify` verifies it offline."""
    with connected(context) as (client, output):
        data = client.row_proof(table, key_columns(key), at, values=values)
        if to is None:
            output.data({"proof": data.decode()}, escape(data.decode()))
            return
        to.write_bytes(data)
        output.data({"proof": str(to)}, f"{to} is written.")


def answer_proof(
    context: typer.Context,
    table: TableName,
    key: Annotated[list[str], typer.Option("--key", help=VALUES_HELP)] = [],  # noqa: B006
    ranges: Annotated[list[str], typer.Option("--range", help=RANGE_HELP)] = [],  # noqa: B006
    at: Annotated[str | None, typer.Option(help="An index, or a time.", show_default="now")] = None,
    to: Annotated[Path | None, typer.Option(help="The file to write.", show_default="stdout")] = None,
    values: Annotated[bool, typer.Option(help="Show the rows in the proof, and not only their digests.")] = True,
) -> None:
    """Write a proof file of all rows that a table had of some keys; `strandline proof verify` verifies it offline."""
    asked = key_set(key, ranges)
    with connected(context) as (client, output):
        data = client.answer_proof(table, asked.values, asked.ranges, at, values=values)
        if to is None:
            output.data({"proof": data.decode()}, escape(data.decode()))
            return
        to.write_bytes(data)
        output.data({"proof": str(to)}, f"{to} is written.")


def changes(
    context: typer.Context,
    table: TableName,
    since: Annotated[str | None, typer.Option(help=f"Only changes after: {POSITION_HELP}", callback=past_point)] = None,
    until: Annotated[str | None, typer.Option(help=f"Only changes up to: {POSITION_HELP}", callback=past_point)] = None,
) -> None:
    """Show the change sets of a table as JSON lines, each with its evidence."""
    with connected(context) as (client, output):
        for change_set in client.changes(table, since, until):
            output.data(change_set, escape(json.dumps(change_set)))


def mark(
    context: typer.Context,
    consumer: Annotated[str, typer.Argument(help="The consumer's name.")],
    table: TableName,
    to: Annotated[int | None, typer.Option(min=0, help="Move it to this sequence.")] = None,
    expected: Annotated[int | None, typer.Option(min=0, help="Its value now.", show_default="none yet")] = None,
) -> None:
    """Show a consumer's watermark for a table; with --to, request that it move. It moves a moment later."""
    with connected(context) as (client, output):
        if to is not None:
            client.move_watermark(consumer, table, to, expected=expected, holder="cli")
            text = f"Requested: strandline api mark {consumer} {table} shows whether it moved to {to}."
            output.data({"consumer": consumer, "table": table, "asked": to}, text)
            return
        sequence = client.watermark(consumer, table)
        state = "has not begun with" if sequence is None else f"has processed leaf {sequence} of"
        output.data({"consumer": consumer, "table": table, "sequence": sequence}, f"{consumer} {state} {table}.")


def snapshots(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only this table.")] = None,
    cut: Annotated[str | None, typer.Option(help="Instead: the cut of the whole lake with this name.")] = None,
) -> None:
    """List named snapshots, table by table."""
    with connected(context) as (client, output):
        if cut is not None:
            output.data({"name": cut, "index": client.named_cut(cut)})
            return
        output.table(list(client.snapshots(table)), ("table", "name", "snapshot_id"))


def snapshot(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name.")],
    table: Annotated[str | None, typer.Option(help="The snapshot's table.", show_default="a cut of the lake")] = None,
    snapshot_id: Annotated[str | None, typer.Option("--snapshot", help="Its id.", show_default="newest")] = None,
    index: Annotated[int | None, typer.Option(min=0, help="The index of the cut.", show_default="newest")] = None,
    idempotency_key: Key = None,
) -> None:
    """Name a snapshot, which keeps it from expiring; or a cut of the whole lake, whose name appears a moment later."""
    with connected(context) as (client, output):
        named = client.name_snapshot(name, table, snapshot_id=snapshot_id, index=index, idempotency_key=idempotency_key)
        output.data(named)


def head(
    context: typer.Context,
    keys: Annotated[bool, typer.Option("--keys", help="Instead: the verifier keys, the newest first.")] = False,
) -> None:
    """Show the timeline's signed checkpoint."""
    with connected(context) as (client, output):
        if keys:
            verifier_keys = client.verifier_keys()
            output.data(verifier_keys, escape("\n".join(verifier_keys)))
            return
        note = client.checkpoint().decode()
        output.data({"checkpoint": note}, escape(note.rstrip("\n")))


def consistency(
    context: typer.Context,
    old: Annotated[int, typer.Argument(min=1, help="The size of the old checkpoint.")],
    new: Annotated[int | None, typer.Option(min=1, help="The size of the new one.", show_default="newest")] = None,
) -> None:
    """Show the consistency proof that a new checkpoint extends an old one: both checkpoints and the hashes."""
    with connected(context) as (client, output):
        output.data(client.consistency(old, new))


def tile(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="tile/<level>/<number> or tile/entries/<number>, with .p/<width>.")],
    to: Annotated[Path, typer.Option(help="The file to write.")],
) -> None:
    """Write one tile of the published log to a file."""
    with connected(context) as (client, output):
        data = client.tile(path)
        to.write_bytes(data)
        output.data({"tile": path, "bytes": len(data), "to": str(to)}, f"{to} is written: {len(data)} bytes.")


def _check_commit_id(index: int | None, snapshot: str | None) -> None:
    if (index is None) == (snapshot is None):
        raise Invalid("name one commit: pass either its INDEX or --snapshot ID")
