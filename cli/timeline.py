"""`strandline timeline`: read, prove, verify and copy the timeline. Never opens its database as a writer."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.errors import Invalid
from cli.opened import add_command, opened
from cli.output import Output

if TYPE_CHECKING:
    from catalog.lake import Lake
    from catalog.timeline.leaf import Leaf
    from catalog.timeline.verification import Report

COLUMNS = ("index", "sequenced", "table", "operation", "ref", "snapshot_id", "sequence")


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The Merkle timeline: every commit to every table.", no_args_is_help=True)

    add_command(group, log, "timeline log", "timeline log sales.orders --limit 5", "-o json timeline log")
    add_command(group, head, "timeline head", "timeline head --size 300", "timeline head > last.checkpoint")
    add_command(group, prove, "timeline prove 42", "timeline prove --snapshot 5551234 --to proof.tlog-proof")
    add_command(group, verify, "timeline verify", "timeline verify --deep", "timeline verify --since last.checkpoint")
    add_command(group, export, "timeline export copy/", "timeline export - > log.tar")
    add_command(group, compact, "timeline compact")
    app.add_typer(group, name="timeline")


def log(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="Only this table's leaves, by its name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many leaves, newest first.")] = 20,
) -> None:
    """The newest leaves of the timeline, or of one table."""
    with opened(context) as (lake, output):
        timeline = lake.timeline
        if table is None:
            size = timeline.head().checkpoint.size
            leaves = ((index, timeline.commit(index)) for index in reversed(range(size)))
            found = list(islice(leaves, limit))
        else:
            found = list(timeline.commits_since(table))[: -limit - 1 : -1]
        output.table([_row(index, leaf) for index, leaf in found], COLUMNS)


def head(
    context: typer.Context,
    size: Annotated[int | None, typer.Option(min=1, help="The checkpoint of an earlier size.")] = None,
) -> None:
    """The signed checkpoint, exactly as it was signed, and so fit to be kept and given to `verify --since`."""
    with opened(context) as (lake, output):
        signed = lake.timeline.head(size)
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
    snapshot: Annotated[int | None, typer.Option(help="Instead: the snapshot whose commit is proven.")] = None,
    table: Annotated[str | None, typer.Option(help="The snapshot's table, if two have one of this id.")] = None,
    to: Annotated[
        Path | None, typer.Option(help="The file to write; `-` is stdout.", show_default="INDEX.tlog-proof")
    ] = None,
) -> None:
    """Write a proof file that one commit is in the timeline. It carries the leaf along: one file says it all."""
    if (index is None) == (snapshot is None):
        raise Invalid("prove what: an index, or --snapshot, and not both")
    from catalog.merkle import proof as proof_file

    with opened(context) as (lake, output):
        timeline = lake.timeline
        if index is None:
            assert snapshot is not None
            index = timeline.find(snapshot, table)[0]
        proof = proof_file.read(timeline.proof(index))
        # Unauthenticated as `extra` itself is, its hash is what the proof is about: whoever checks hashes it.
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
            f"{path}: leaf {index}, {len(data)} bytes\nCheck it with: strandline proof verify {path} --key {key}",
        )


def verify(
    context: typer.Context,
    deep: Annotated[bool, typer.Option("--deep", help="Hash every object of every table, too.")] = False,
    since: Annotated[str | None, typer.Option(help="Verified before: a checkpoint's file, or its size.")] = None,
) -> None:
    """Check the tree, every checkpoint, every index and the published copy. Exit code 3 if anything is wrong."""
    from catalog.changes.roots import recount, recount_rows
    from catalog.timeline.store import Place, Reader
    from catalog.timeline.verification import Verifier

    with opened(context) as (lake, output):
        note = None if since is None else _since(since, lake)
        reader = Reader.open(Place.from_settings(lake.settings))
        verifier = Verifier(
            reader,
            lake.s3,
            lake.settings.bucket,
            lake.iceberg,
            lake.settings.origin,
            recount=recount,
            recount_rows=recount_rows,
        )
        try:
            with output.progress("verifying …"):
                report = verifier.verify(deep=deep, since=note)
        finally:
            reader.close()
        output.data(_report(report), _report_text(report, deep))
        if report.fault_count:
            raise typer.Exit(3)


def export(
    context: typer.Context,
    to: Annotated[Path, typer.Argument(help="A directory to write, made if need be; `-` is a tar on stdout.")],
) -> None:
    """Copy the public log: checkpoint, keys, tiles and entries, as strangers' tools read it."""
    from cli.log_copies import Directory, Tar, copy_log

    with opened(context) as (lake, output):
        target = Tar(sys.stdout.buffer) if to == Path("-") else Directory(to)
        with output.progress("exporting …"):
            copied = copy_log(lake, target)
        if to != Path("-"):
            output.data({"to": str(to), **asdict(copied)}, f"{to}: {copied.size} leaves, {copied.objects} files")


def compact(context: typer.Context) -> None:
    """Ask the sequencer to compact the timeline's database; it does so when it next looks at its queue."""
    from catalog.events import Compact

    with opened(context) as (lake, output):
        queue = lake.settings.moved_queue_url
        if queue is None:
            raise Invalid("the lake's queue is not known: set STRANDLINE_MOVED_QUEUE_URL")
        message = Compact()
        lake.client("sqs").send_message(QueueUrl=queue, MessageBody=message.model_dump_json())
        output.data(
            {"sent": "compact", "correlation_id": message.correlation_id},
            f"Asked. Its log lines carry the correlation id {message.correlation_id}.",
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


def _report_text(report: Report, deep: bool) -> str:
    looked = f"{report.leaves} leaves, {report.checkpoints} checkpoints, {report.tiles} tiles"
    if deep:
        looked += f", {report.objects} objects ({report.bytes} bytes)"
        looked += f", {report.uncovered} of no leaf" if report.uncovered else ""
    lines = [f"Timeline of {report.size} leaves" + (f", verified before up to {report.since}" if report.since else "")]
    lines.append(f"Looked at {looked}.")
    lines += [str(fault).replace("[", r"\[") for fault in report.faults]
    lines.append(f"{report.fault_count} faults." if report.fault_count else "Everything is as it was signed.")
    return "\n".join(lines)


def _write(output: Output, answer: dict[str, Any], raw: bytes) -> None:
    """JSON if asked for; else the bytes as they are, so that they can be kept."""
    if output.is_json:
        output.data(answer)
    else:
        _binary(raw)


def _binary(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
