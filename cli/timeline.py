"""`strandline timeline`: reads, proves, verifies and copies the timeline. Never opens its database for writing."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog import Invalid
from cli.lake_commands import add_command, opened
from cli.output import Output
from cli.proof import KEY_HELP, POLICY_HELP, as_of_answer, as_of_text, proven_point, trust
from cli.times import relative_point

if TYPE_CHECKING:
    from catalog import Lake
    from catalog.merkle.policy import Policy
    from catalog.timeline import Leaf, Report

COLUMNS = ("index", "sequenced", "table", "operation", "ref", "snapshot_id", "sequence")


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Show, prove, verify and copy the Merkle timeline.", no_args_is_help=True)

    add_command(group, log, "timeline log", "timeline log sales.orders --limit 5", "-o json timeline log")
    add_command(group, head, "timeline head", "timeline head --size 300", "timeline head > last.checkpoint")
    add_command(group, prove, "timeline prove 42", "timeline prove --snapshot 5551234 --to proof.tlog-proof")
    add_command(
        group,
        prove_as_of,
        "timeline as-of sales.orders",
        "timeline as-of sales.orders --at 2026-03-01",
        "timeline as-of sales.orders --at 42 --to orders.as-of.json",
        name="as-of",
    )
    add_command(
        group,
        verify,
        "timeline verify",
        "timeline verify --deep",
        "timeline verify --since last.checkpoint",
        "timeline verify --policy lake.policy",
    )
    add_command(group, export, "timeline export copy/", "timeline export - > log.tar")
    add_command(group, publish, "timeline publish --git checkpoints/")
    add_command(group, compact, "timeline compact")
    app.add_typer(group, name="timeline")


def log(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only this table's leaves, by its name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many leaves, newest first.")] = 20,
) -> None:
    """List the newest leaves of the timeline, or of one table."""
    with opened(context) as (lake, output):
        timeline = lake.timeline
        if table is None:
            size = timeline.head().checkpoint.size
            leaves = ((index, timeline.commit(index)) for index in reversed(range(size)))
            newest = list(islice(leaves, limit))
        else:
            newest = list(timeline.commits_since(table))[: -limit - 1 : -1]
        output.table([_row(index, leaf) for index, leaf in newest], COLUMNS)


def head(
    context: typer.Context,
    size: Annotated[int | None, typer.Option(min=1, help="The checkpoint of an earlier size.")] = None,
) -> None:
    """Show the published checkpoint with its cosignatures, byte for byte. Keep it for `timeline verify --since`.

    With --size, the log's own note of that size, which has no cosignatures.
    """
    with opened(context) as (lake, output):
        signed = lake.timeline.public_head() if size is None else lake.timeline.head(size)
        keys = [str(key) for _, key in lake.timeline.source.keyring().keys]
        answer = {
            "origin": signed.checkpoint.origin,
            "size": signed.checkpoint.size,
            "root": signed.checkpoint.root.hex(),
            "checkpoint": signed.note.decode(),
            "keys": keys,
        }
        _write(output, answer, signed.note)


def prove(
    context: typer.Context,
    index: Annotated[int | None, typer.Argument(min=0, help="The leaf's index.")] = None,
    snapshot: Annotated[int | None, typer.Option(help="Instead: the id of the commit's snapshot.")] = None,
    table: Annotated[str | None, typer.Option(help="The snapshot's table, if two tables have this id.")] = None,
    to: Annotated[
        Path | None, typer.Option(help="The file to write; `-` is stdout.", show_default="INDEX.tlog-proof")
    ] = None,
) -> None:
    """Write a proof file that a commit is in the timeline. It includes the leaf."""
    if (index is None) == (snapshot is None):
        raise Invalid("name one commit: pass either its INDEX or --snapshot ID")
    from catalog.merkle import proof as proof_file

    with opened(context) as (lake, output):
        timeline = lake.timeline
        if index is None:
            assert snapshot is not None
            index = timeline.find(snapshot, table)[0]
        proof = proof_file.read(timeline.proof(index))
        # `extra` is not authenticated by itself, but the proof is about its hash, and the verifier hashes it.
        entry = timeline.source.entry(index, timeline.head().checkpoint.size)
        data = proof_file.write(replace(proof, extra=entry))
        if to == Path("-"):
            _binary(data)
            return
        path = to or Path(f"{index}{proof_file.FILE_SUFFIX}")
        path.write_bytes(data)
        key = str(lake.timeline.source.keyring().keys[-1][1])
        output.data(
            {"index": index, "file": str(path), "bytes": len(data), "key": key},
            f"{path}: leaf {index}, {len(data)} bytes\nVerify it with: strandline proof verify {path} --key {key}",
        )


def prove_as_of(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table's name, DATABASE.TABLE.")],
    at: Annotated[
        str | None,
        typer.Option(
            help="An index, or a time: `42`, `2026-03-01T12:00:00Z`, `yesterday`.",
            callback=relative_point,
            show_default="the newest index",
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="The file to write; `-` is stdout.", show_default="TABLE.as-of.json")
    ] = None,
) -> None:
    """Write a proof of which snapshot a table had at an index or time, or that there was no such table."""
    from catalog.timeline import write_as_of

    with opened(context) as (lake, output):
        timeline = lake.timeline
        head = timeline.published_head()
        asked = at or str(head.checkpoint.size - 1)
        as_of = timeline.prove_as_of(table, **proven_point(asked), head=head)
        data = write_as_of(as_of)
        if to == Path("-"):
            _binary(data)
            return
        path = to or Path(f"{table}.as-of.json")
        path.write_bytes(data)
        key = str(timeline.source.keyring().keys[-1][1])
        command = f"strandline proof as-of {path} --table {table} --at {asked} --key {key}"
        output.data(
            {**as_of_answer(as_of), "file": str(path), "bytes": len(data), "key": key},
            f"{path}: {len(data)} bytes\n{as_of_text(as_of)}\nVerify it with: {command}",
        )


def verify(
    context: typer.Context,
    deep: Annotated[bool, typer.Option("--deep", help="Also hash every object of every table.")] = False,
    since: Annotated[str | None, typer.Option(help="A checkpoint verified before: its file, or its size.")] = None,
    key: Annotated[list[str], typer.Option("--key", help=KEY_HELP, show_default="the lake's key list")] = [],  # noqa: B006
    policy: Annotated[Path | None, typer.Option(help=POLICY_HELP)] = None,
) -> None:
    """Verify the tree, every checkpoint, every index and the published log. Exit code 3 if there is a fault."""
    from catalog.changes import AUDIT_LIMIT, StateComputer, recount, recount_rows
    from catalog.timeline import StoreLocation, StoreReader, Verifier

    keys, trusted = trust(key, policy) if key or policy else (None, None)
    with opened(context) as (lake, output):
        note = None if since is None else _since(since, lake)
        reader = StoreReader.open(StoreLocation.from_settings(lake.settings))
        verifier = Verifier(
            reader,
            lake.s3,
            lake.settings.bucket,
            lake.iceberg,
            lake.settings.origin,
            keys,
            recount=recount,
            recount_rows=recount_rows,
            compute_state=StateComputer(AUDIT_LIMIT),
            policy=trusted,
        )
        try:
            with output.progress("verifying …"):
                report = verifier.verify(deep=deep, since=note)
        finally:
            reader.close()
        output.data(_report(report), _report_text(report, deep, trusted))
        if report.fault_count:
            raise typer.Exit(3)


def export(
    context: typer.Context,
    to: Annotated[Path, typer.Argument(help="A directory, created if missing; `-` is a tar on stdout.")],
) -> None:
    """Copy the published log (checkpoint, keys, tiles, entry bundles), which any tlog-tiles client can read."""
    from cli.log_copies import DirectoryTarget, TarTarget, copy_log

    with opened(context) as (lake, output):
        target = TarTarget(sys.stdout.buffer) if to == Path("-") else DirectoryTarget(to)
        with output.progress("exporting …"):
            copied = copy_log(lake, target)
        if to != Path("-"):
            output.data({"to": str(to), **asdict(copied)}, f"{to}: {copied.size} leaves, {copied.objects} files")


def publish(
    context: typer.Context,
    git: Annotated[Path, typer.Option("--git", help="A git work tree; a new repository if there is none.")],
) -> None:
    """Commit the published checkpoint to a git repository, if it extends the one before. Pushing is up to you.

    Exit code 3 if it does not extend it: then the repository stays as it is.
    """
    from cli.checkpoint_repository import CheckpointRepository

    with opened(context) as (lake, output):
        checkpoint, is_new = CheckpointRepository(git).publish(lake.timeline)
        done = "committed" if is_new else "is there already"
        output.data(
            {"to": str(git), "size": checkpoint.size, "committed": is_new},
            f"{git}: the checkpoint of {checkpoint.size} leaves {done}.",
        )


def compact(context: typer.Context) -> None:
    """Request that the sequencer compact the timeline's database on its next run."""
    from catalog.core.events import Compact

    with opened(context) as (lake, output):
        message = Compact()
        lake.request(message)
        output.data(
            {"sent": "compact", "correlation_id": message.correlation_id},
            f"Requested. The sequencer logs it with the correlation id {message.correlation_id}.",
        )


def _row(index: int, leaf: Leaf) -> dict[str, Any]:
    time = datetime.fromtimestamp(leaf.sequenced_ms / 1000, UTC)
    record = {name: value for name, value in json.loads(leaf.encode()).items() if name != "format"}
    return {"index": index, "sequenced": f"{time:%Y-%m-%d %H:%M:%S}.{time:%f}"[:23], **record}


def _since(text: str, lake: Lake) -> bytes:
    if text.isdecimal():
        return lake.timeline.head(int(text)).note
    try:
        return Path(text).read_bytes()
    except OSError as error:
        raise Invalid(f"the checkpoint {text} cannot be read: {error}") from None


def _report(report: Report) -> dict[str, Any]:
    record = asdict(report) | {"note": report.note.decode(), "faults": [fault.as_dict() for fault in report.faults]}
    return {"verified": not report.fault_count, **record}


def _report_text(report: Report, deep: bool, policy: Policy | None) -> str:
    checked = f"{report.leaves} leaves, {report.checkpoints} checkpoints, {report.tiles} tiles"
    if deep:
        checked += f", {report.objects} objects ({report.bytes} bytes)"
        checked += f", {report.uncovered} that no leaf covers" if report.uncovered else ""
        checked += f", the rows after {report.states} leaves"
        checked += "".join(f"; {each}" for each in report.erased)
    lines = [f"Timeline of {report.size} leaves" + (f", verified before up to {report.since}" if report.since else "")]
    lines.append(f"Checked {checked}.")
    if deep and report.uncounted:
        reason = "their changes are too large to compute, or have no exact result"
        lines.append(f"{report.uncounted} commits were not counted again: {reason}.")
    if deep and report.uncompared:
        reason = "they are not Parquet, or have no field ids"
        lines.append(f"The statistics of {report.uncompared} data files were not compared with their rows: {reason}.")
    if policy is not None and not report.fault_count and report.published_size:
        names = ", ".join(sorted(policy.cosigned_by(report.note))) or "no witness, and the policy demands none"
        lines.append(f"The checkpoint of {report.published_size} leaves is cosigned by {names}.")
    lines += [str(fault).replace("[", r"\[") for fault in report.faults]
    lines.append(f"{report.fault_count} faults." if report.fault_count else "Everything is as it was signed.")
    return "\n".join(lines)


def _write(output: Output, answer: dict[str, Any], raw: bytes) -> None:
    """With `-o json` the JSON; otherwise the exact bytes, so that they can be redirected to a file."""
    if output.is_json:
        output.data(answer)
    else:
        _binary(raw)


def _binary(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
