"""`strandline api`: what the lake proves, over HTTP: commits, changes, names, marks, the timeline's public form."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from catalog.errors import Invalid
from cli.endpoint import Key, TableName, connected
from cli.opened import add_command

Index = Annotated[int | None, typer.Argument(min=0, help="The leaf's index.")]
OfSnapshot = Annotated[str | None, typer.Option("--snapshot", help="Instead: the snapshot that the commit made.")]


def register(group: typer.Typer) -> None:
    add_command(group, commits, "api commits silver.tides", "api commits silver.tides --since 7")
    add_command(group, commit, "api commit 42", "api commit --snapshot 5551234")
    add_command(group, proof, "api proof 42 --to 42.tlog-proof", "api proof --snapshot 5551234")
    add_command(group, changes, "api changes silver.tides", "api changes silver.tides --since 3")
    add_command(group, mark, "api mark reports silver.tides", "api mark reports silver.tides --to 7 --expected 3")
    add_command(group, snapshots, "api snapshots", "api snapshots silver.tides", "api snapshots --cut close-of-day")
    add_command(group, snapshot, "api snapshot close-of-day", "api snapshot audited --table silver.tides")
    add_command(group, head, "api head", "api head --keys")
    add_command(group, consistency, "api consistency 100", "api consistency 100 --new 200")
    add_command(group, tile, "api tile tile/0/000.p/9 --to tile", "api tile tile/entries/000.p/9 --to entries")


def commits(
    context: typer.Context,
    table: TableName,
    since: Annotated[int, typer.Option(min=-1, help="Only leaves whose sequence is greater.")] = -1,
    limit: Annotated[int, typer.Option(min=1)] = 100,
) -> None:
    """A table's leaves in the timeline, oldest first."""
    with connected(context) as (client, output):
        found: list[Any] = list(islice(client.commits(table, since), limit))
        output.table(found, ("index", "sequence", "operation", "ref", "snapshot_id", "sequenced_ms"))


def commit(context: typer.Context, index: Index = None, snapshot: OfSnapshot = None) -> None:
    """One leaf of the timeline."""
    _one_of(index, snapshot)
    with connected(context) as (client, output):
        output.data(dict(client.commit(index, snapshot_id=snapshot)))


def proof(
    context: typer.Context,
    index: Index = None,
    snapshot: OfSnapshot = None,
    to: Annotated[Path | None, typer.Option(help="The file to write.", show_default="stdout")] = None,
) -> None:
    """A proof file that a commit is in the timeline; `strandline proof verify` checks it offline."""
    _one_of(index, snapshot)
    with connected(context) as (client, output):
        found = client.proof(index, snapshot_id=snapshot)
        if to is None:
            output.data({"proof": found.decode()}, escape(found.decode()))
            return
        to.write_bytes(found)
        output.data({"proof": str(to)}, f"{to} is written.")


def changes(
    context: typer.Context,
    table: TableName,
    since: Annotated[str | None, typer.Option(help="A leaf's sequence, a snapshot's id, a time or a name.")] = None,
    until: Annotated[str | None, typer.Option(help="The same; included.")] = None,
) -> None:
    """What each commit did to the rows, as JSON lines: one change set a line, with its evidence."""
    with connected(context) as (client, output):
        for one in client.changes(table, since, until):
            output.data(one, escape(json.dumps(one)))


def mark(
    context: typer.Context,
    consumer: Annotated[str, typer.Argument(help="Whose mark.")],
    table: TableName,
    to: Annotated[int | None, typer.Option(min=0, help="Move it to this leaf of the table.")] = None,
    expected: Annotated[int | None, typer.Option(min=0, help="Where it stands now; nowhere if not said.")] = None,
) -> None:
    """How far a consumer has come with a table; with --to, move it there a moment later."""
    with connected(context) as (client, output):
        if to is not None:
            client.move_watermark(consumer, table, to, expected=expected, holder="cli")
            output.data({"consumer": consumer, "table": table, "asked": to}, f"{consumer} was asked to move to {to}.")
            return
        stands = client.watermark(consumer, table)
        said = "has not begun" if stands is None else f"has come to leaf {stands}"
        output.data({"consumer": consumer, "table": table, "sequence": stands}, f"{consumer} {said} of {table}.")


def snapshots(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only this table's.")] = None,
    cut: Annotated[str | None, typer.Option(help="Instead: the cut of the whole lake with this name.")] = None,
) -> None:
    """Named snapshots, table by table."""
    with connected(context) as (client, output):
        if cut is not None:
            output.data({"name": cut, "index": client.named_cut(cut)})
            return
        output.table(list(client.snapshots(table)), ("table", "name", "snapshot_id"))


def snapshot(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name.")],
    table: Annotated[str | None, typer.Option(help="Whose snapshot; without one, a cut of the whole lake.")] = None,
    snapshot_id: Annotated[str | None, typer.Option("--snapshot", help="Which; the table's newest.")] = None,
    index: Annotated[int | None, typer.Option(min=0, help="Which cut of the lake; the newest.")] = None,
    idempotency_key: Key = None,
) -> None:
    """Give a snapshot a name, which keeps it from expiring; or a cut of the whole lake, a moment later."""
    with connected(context) as (client, output):
        made = client.name_snapshot(name, table, snapshot_id=snapshot_id, index=index, idempotency_key=idempotency_key)
        output.data(made)


def head(
    context: typer.Context,
    keys: Annotated[bool, typer.Option("--keys", help="The verifier keys instead, the newest first.")] = False,
) -> None:
    """The timeline's signed checkpoint, as anybody may read it."""
    with connected(context) as (client, output):
        if keys:
            found = client.verifier_keys()
            output.data(found, escape("\n".join(found)))
            return
        note = client.checkpoint().decode()
        output.data({"checkpoint": note}, escape(note.rstrip("\n")))


def consistency(
    context: typer.Context,
    old: Annotated[int, typer.Argument(min=1, help="The size of a checkpoint that was kept.")],
    new: Annotated[int | None, typer.Option(min=1, help="The later size; the newest.")] = None,
) -> None:
    """That the timeline of today begins with the one of then: both checkpoints and the hashes between them."""
    with connected(context) as (client, output):
        output.data(client.consistency(old, new))


def tile(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="tile/<level>/<number> or tile/entries/<number>, with .p/<width>.")],
    to: Annotated[Path, typer.Option(help="The file to write.")],
) -> None:
    """One tile of the published tree, byte for byte."""
    with connected(context) as (client, output):
        found = client.tile(path)
        to.write_bytes(found)
        output.data({"tile": path, "bytes": len(found), "to": str(to)}, f"{to} is written: {len(found)} bytes.")


def _one_of(index: int | None, snapshot: str | None) -> None:
    if (index is None) == (snapshot is None):
        raise Invalid("which commit: its index, or --snapshot, and not both")
