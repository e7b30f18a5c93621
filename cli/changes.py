"""`strandline changes`: shows or writes a table's change feed with its proofs, and verifies a feed file offline."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.markup import escape
from typer.core import TyperGroup

from catalog import Invalid, Unverified
from catalog.core.point_in_time import FeedPosition, TableSequence, parse_feed_position
from cli.lake_commands import add_command, opened
from cli.options import format_time
from cli.times import POSITION_HELP, past_point

if TYPE_CHECKING:
    from catalog import Lake
    from catalog.changes import ChangeSet, Demand, FeedVerifier
    from catalog.merkle.note import VerifierKey
    from cli.output import Output
    from strandline.feed_files import FeedFormat

POLL_S = 1.0
SEQUENCE_HELP = "sequence:N, the number of a leaf in the table"
DEMAND_HELP = "Who must have computed each commit's changes: lake; or writer, which also accepts very large commits."
KEPT_HELP = "A file with a checkpoint that you kept: the feed must be in a log that extends it."
KEY_HELP = "The log's verifier key name+keyid+base64, or @FILE with one key per line. Repeatable."
POLICY_HELP = "A c2sp.org/tlog-policy file: the logs, and which witnesses must have cosigned."


class DemandChoice(StrEnum):
    """Who must have computed the root of a commit's changes."""

    LAKE = "lake"
    WRITER = "writer"

    @property
    def demand(self) -> Demand:
        return "lake" if self is DemandChoice.LAKE else "writer"


class _Feed(TyperGroup):
    """Makes `feed` the default subcommand: `changes TABLE` means `changes feed TABLE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["feed", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    help_ = "The changes of a table, commit by commit, with a proof that none is missing."
    group = typer.Typer(cls=_Feed, help=help_, no_args_is_help=True)
    add_command(
        group,
        feed,
        "changes silver.tides --since 2026-03-01",
        "changes silver.tides --since 42",
        "changes silver.tides --follow",
        "changes feed silver.tides --since sequence:3 --out feed.jsonl",
    )
    add_command(
        group,
        verify,
        "changes verify feed.jsonl --table silver.tides --key lake.example+1a2b3c4d+AQ…",
        "changes verify feed.arrows --table silver.tides --key @lake.vkey --since sequence:3 --until sequence:9",
        "changes verify feed.jsonl --table silver.tides --policy lake.policy",
    )
    app.add_typer(group, name="changes")


def feed(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")],
    since: Annotated[str | None, typer.Option(help=f"Only changes after: {POSITION_HELP}", callback=past_point)] = None,
    until: Annotated[str | None, typer.Option(help=f"Only changes up to: {POSITION_HELP}", callback=past_point)] = None,
    check: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check each commit against the signed timeline first.")
    ] = True,
    key: Annotated[
        list[str], typer.Option("--key", help=KEY_HELP, show_default="the keys that the lake itself states")
    ] = [],  # noqa: B006
    kept: Annotated[Path | None, typer.Option(help=KEPT_HELP)] = None,
    demand: Annotated[DemandChoice, typer.Option(help=DEMAND_HELP)] = DemandChoice.LAKE,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new commits, until Ctrl-C.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many changes; a truncated commit keeps its proof.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", "-f", help="text, or with proofs: jsonl, arrow.", show_default="text; jsonl in a file"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file; `changes verify` checks it.")] = None,
) -> None:
    """Show a table's changes, oldest first: + inserted, ~ updated, - deleted. Exit code 3 if one does not verify."""
    feed_format = _format(format_, out, context.obj)
    if follow and until is not None:
        raise Invalid("--follow and --until cannot be combined: leave one out")
    with opened(context) as (lake, output), ExitStack() as stack:
        first = None if since is None else parse_feed_position(since)
        last = None if until is None else parse_feed_position(until)
        is_verified = check or kept is not None
        verifier = _verifier(lake, table, first, key, kept, limit is not None, demand) if is_verified else None
        size = None if verifier is None or verifier.kept is None else verifier.kept.size
        sets = _limited(_change_sets(lake, table, first, last, follow, size), limit)
        stream = _open(out, follow, stack)
        commits = count = 0
        with suppress(KeyboardInterrupt):
            for changes in sets:
                if verifier is not None:
                    verifier.add(changes)
                _write(output, stream, changes, feed_format)
                commits, count = commits + 1, count + len(changes)
    summary = f"{count} changes in {commits} commits"
    verified: dict[str, Any] = {}
    if verifier is not None:
        summary += f", verified up to leaf {verifier.reached}"
        verified = {"verified": True, "reached": verifier.reached}
    if out is not None:
        output.data(
            {"table": table, "to": str(out), "commits": commits, "changes": count, **verified}, f"{out}: {summary}."
        )
    elif feed_format.value == "text":
        output.caption(f"{summary}.")


def verify(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A feed file, written by `changes --out`.")],
    key: Annotated[list[str], typer.Option("--key", help=KEY_HELP)] = [],  # noqa: B006
    policy: Annotated[Path | None, typer.Option(help=POLICY_HELP)] = None,
    table: Annotated[
        str | None,
        typer.Option(help="The table that the feed must be of: its name in the last commit."),
    ] = None,
    uuid: Annotated[
        str | None, typer.Option(help="The table's uuid: a new table under the same name has another.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help=f"Where it must begin: after {SEQUENCE_HELP}; sequence:-1 means the first leaf.")
    ] = None,
    until: Annotated[str | None, typer.Option(help=f"What it must reach: {SEQUENCE_HELP}.")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Allow commits with only some changes (--limit, a page, a key range).")
    ] = False,
    origin: Annotated[str | None, typer.Option(help="The log's name.", show_default="the name in the key")] = None,
    kept: Annotated[Path | None, typer.Option(help=KEPT_HELP)] = None,
    demand: Annotated[DemandChoice, typer.Option(help=DEMAND_HELP)] = DemandChoice.LAKE,
) -> None:
    """Verify a feed file offline, with a public key or a policy and without the lake. Exit code 3 if it fails.

    --table or --uuid names the table. No change and no commit may be missing, altered, repeated or reordered. Without
    --since and --until, nothing is proven about where the feed begins and ends.
    """
    if table is None and uuid is None:
        raise Invalid("name the table that the feed must be of: --table DATABASE.TABLE, --uuid UUID, or both")
    from catalog.changes import FeedVerifier
    from cli.proof import read_checkpoint, trust

    output: Output = context.obj
    first, last = _sequence(since), _sequence(until)
    keys, trusted = trust(key, policy)
    checkpoint = None if kept is None else read_checkpoint(kept, keys, trusted, origin)
    with output.progress("verifying …"):
        verified = _verify_file(
            file,
            first,
            last,
            partial,
            lambda begin: FeedVerifier(
                keys,
                table,
                uuid,
                begin,
                origin,
                kept=checkpoint,
                partial=partial,
                policy=trusted,
                demand=demand.demand,
            ),
        )
    output.data({"verified": True, **asdict(verified)}, escape(str(verified)))


@dataclass(frozen=True)
class _VerifiedFile:
    """What a feed file proves: every change of the table after leaf `since` up to leaf `reached`."""

    table: str | None
    table_uuid: str | None
    since: int
    reached: int
    commits: int
    changes: int

    def __str__(self) -> str:
        counts = f"{self.changes} changes in {self.commits} commits"
        leaves = f"from leaf {self.since + 1} to leaf {self.reached} of the table"
        return f"{self.table} (uuid {self.table_uuid}): {counts} are as they were signed, {leaves}."


def _verify_file(
    file: str, since: int | None, until: int | None, partial: bool, start: Callable[[int], FeedVerifier]
) -> _VerifiedFile:
    """Adds the file's change sets to the verifier that `start` makes; one change set in memory at a time."""
    from strandline.feed_files import read_sets

    verifier: FeedVerifier | None = None
    begin, commits, count = -1, 0, 0
    for changes in read_sets(file):
        if verifier is None:
            begin = _sequence_before(changes) if since is None else since
            verifier = start(begin)
        if changes.part is not None and not partial:
            message = f"{file}: leaf {changes.commit.index} has only {len(changes)} of {changes.count} changes"
            raise Unverified(f"{message}: add --partial if that is intended", subject=file)
        verifier.add(changes)
        commits, count = commits + 1, count + len(changes)
    if verifier is None:
        raise Unverified(f"{file} has no change set, so it proves nothing", subject=file)
    reached = verifier.finish(until)
    return _VerifiedFile(verifier.name, verifier.table_uuid, begin, reached, commits, count)


def _verifier(
    lake: Lake,
    table: str,
    since: FeedPosition | None,
    key_options: list[str],
    kept: Path | None,
    partial: bool,
    demand: DemandChoice,
) -> FeedVerifier:
    """A verifier for the table's feed after `since`, with the keys of the options, or else of the lake's keyring."""
    from catalog.changes import FeedVerifier, sequence_at
    from cli.proof import read_checkpoint, verifier_keys

    keys: list[VerifierKey] = verifier_keys(key_options) or [key for _, key in lake.timeline.source.keyring().keys]
    loaded, origin = lake.tables.load(table), lake.settings.origin
    begin = -1 if since is None else sequence_at(lake.timeline, loaded, since)
    checkpoint = None if kept is None else read_checkpoint(kept, keys, None, origin)
    uuid = str(loaded.metadata.table_uuid)
    return FeedVerifier(keys, None, uuid, begin, origin, kept=checkpoint, partial=partial, demand=demand.demand)


def _change_sets(
    lake: Lake,
    table: str,
    since: FeedPosition | None,
    until: FeedPosition | None,
    follow: bool,
    extends: int | None = None,
) -> Iterator[ChangeSet]:
    """The change sets; with `follow`, polls for new ones every second and never ends.

    Conflict if the table is dropped and made anew meanwhile: its changes would not lead on from the rows shown.
    """
    uuid = str(lake.tables.load(table).metadata.table_uuid)
    while True:
        for changes in lake.changes(table, since, until, table_uuid=uuid, extends=extends):
            assert changes.commit.sequence is not None
            assert changes.evidence is not None
            since, extends = TableSequence(changes.commit.sequence), changes.evidence.checkpoint_size
            yield changes
        if not follow:
            return
        time.sleep(POLL_S)


def _limited(sets: Iterator[ChangeSet], limit: int | None) -> Iterator[ChangeSet]:
    """At most `limit` changes. The last change set is truncated to a part that carries its own proof."""
    remaining = limit
    for changes in sets:
        if remaining is None or len(changes) <= remaining:
            yield changes
        else:
            yield changes.select(range(remaining))
        remaining = None if remaining is None else remaining - min(remaining, len(changes))
        if remaining == 0:
            return


def _format(name: str | None, out: Path | None, output: Output) -> FeedFormat:
    from strandline.feed_files import FeedFormat

    if name is not None:
        try:
            format_ = FeedFormat(name)
        except ValueError:
            raise Invalid(f"{name!r} is not a feed format: choose from {', '.join(FeedFormat)}") from None
        if format_ is FeedFormat.TEXT and out is not None:
            raise Invalid("text has no proofs: write the file with --format jsonl or --format arrow")
        return format_
    if out is not None:
        return FeedFormat.ARROW if out.suffix in (".arrow", ".arrows") else FeedFormat.JSONL
    return FeedFormat.JSONL if output.is_json else FeedFormat.TEXT


def _open(out: Path | None, follow: bool, stack: ExitStack) -> BinaryIO:
    """Stdout or a file. The file gets its name when it is complete; with `follow`, at once."""
    if out is None:
        return sys.stdout.buffer
    from cli.row_exports import partial_file

    if follow:
        return stack.enter_context(out.open("wb"))
    part = stack.enter_context(partial_file(out))
    return stack.enter_context(part.open("wb"))


def _write(output: Output, stream: BinaryIO, changes: ChangeSet, format_: FeedFormat) -> None:
    from cli.feed_text import text_lines
    from strandline.feed_files import FeedFormat, write_set

    if format_ is not FeedFormat.TEXT:
        write_set(stream, changes, format_)
        return
    for line in text_lines(changes, format_time(changes.commit.committed_ms)):
        output.caption(escape(line))


def _sequence(text: str | None) -> int | None:
    """The number in `sequence:N`. Offline there is no timeline to look up an index or a time in."""
    point = None if text is None else parse_feed_position(text)
    if point is not None and not isinstance(point, TableSequence):
        raise Invalid(f"{text!r} cannot be looked up offline: write {SEQUENCE_HELP}, for example sequence:3")
    return None if point is None else point.number


def _sequence_before(changes: ChangeSet) -> int:
    """The sequence before the feed's first leaf. The verifier checks the leaf that it is read from."""
    from catalog.changes import parse_leaf

    evidence = changes.evidence
    if evidence is None:
        return -1
    return parse_leaf(evidence.passed[0][0] if evidence.passed else evidence.leaf).sequence - 1
