"""`strandline changes`: a table's change feed with its proofs, and a feed file checked offline."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.markup import escape
from typer.core import TyperGroup

from catalog.errors import Invalid, Unverified
from cli.opened import add_command, opened
from cli.words import moment, shown_time

if TYPE_CHECKING:
    from catalog.changes.feed import ChangeSet
    from catalog.lake import Lake
    from catalog.merkle.note import VerifierKey
    from cli.feed_files import FeedFormat
    from cli.output import Output

POLL_S = 1.0
AT_HELP = "a snapshot id, a leaf's number in the table, a time (2026-03-01T12:00Z), a name, or @INDEX of the timeline"
KEY_HELP = "The log's verifier key name+keyid+base64, or @FILE with one a line. Repeatable."


class _Feed(TyperGroup):
    """`changes TABLE` is `changes feed TABLE`: what one wants nearly always need not be said."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["feed", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    said = "What changed in a table, commit by commit, with proof that nothing was left out."
    group = typer.Typer(cls=_Feed, help=said, no_args_is_help=True)
    add_command(
        group,
        feed,
        "changes silver.tides --since 2026-03-01 --verify",
        "changes silver.tides --since @42",
        "changes silver.tides --follow",
        "changes feed silver.tides --since 3 --out feed.jsonl",
    )
    add_command(
        group,
        verify,
        "changes verify feed.jsonl --key lake.example+1a2b3c4d+AQ…",
        "changes verify feed.arrows --key @lake.vkey --since 3 --until 9",
    )
    app.add_typer(group, name="changes")


def feed(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")],
    since: Annotated[str | None, typer.Option(help=f"Only what came after: {AT_HELP}.")] = None,
    until: Annotated[str | None, typer.Option(help=f"Only up to: {AT_HELP}.")] = None,
    check: Annotated[
        bool, typer.Option("--verify", help="Check each commit against the signed timeline before it is shown.")
    ] = False,
    key: Annotated[list[str], typer.Option("--key", help=f"With --verify: {KEY_HELP}")] = [],  # noqa: B006
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more, until Ctrl-C.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many changes; a cut commit keeps its proof.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", "-f", help="text, or with all proofs: jsonl, arrow.", show_default="text; jsonl in a file"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A file to write, which `changes verify` checks.")] = None,
) -> None:
    """What changed, oldest first: + inserted, ~ updated, - deleted. Exit code 3 if --verify finds anything wrong."""
    wanted = _format(format_, out, context.obj)
    if follow and until is not None:
        raise Invalid("--follow has no end, and --until is one: say one of them")
    with opened(context) as (lake, output), ExitStack() as stack:
        first = None if since is None else moment(since)
        sets = _cut(_sets(lake, table, first, None if until is None else moment(until), follow), limit)
        checked = _Checked(lake, table, first, key) if check else None
        stream = _target(out, follow, stack)
        commits = count = 0
        with suppress(KeyboardInterrupt):
            for changes in sets:
                if checked is not None:
                    checked.check(changes)
                _show(output, stream, changes, wanted)
                commits, count = commits + 1, count + len(changes)
    told = f"{count} changes in {commits} commits" + (
        "" if checked is None else f", verified up to leaf {checked.reached}"
    )
    if out is not None:
        answer = {"table": table, "to": str(out), "commits": commits, "changes": count}
        output.data(
            answer | ({} if checked is None else {"verified": True, "reached": checked.reached}), f"{out}: {told}."
        )
    elif wanted.value == "text":
        output.caption(f"{told}.")


def verify(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A feed that `changes --out` wrote.")],
    key: Annotated[list[str], typer.Option("--key", help=KEY_HELP)],
    since: Annotated[
        int | None, typer.Option(help="The table's leaf after which it must begin; -1: with the table's first.")
    ] = None,
    until: Annotated[int | None, typer.Option(help="The table's leaf that it must reach.")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Commits may be shown in part: by --limit, a page, a key range.")
    ] = False,
    origin: Annotated[str | None, typer.Option(help="The log's name; by default that of the key that signed.")] = None,
) -> None:
    """Check a feed offline, with a public key and nothing of the lake. Exit code 3 if anything is wrong.

    No change may be missing, altered, repeated or moved, nor a commit. Where the feed begins and ends is its maker's
    word, unless --since and --until say where it must.
    """
    from catalog.changes.verifier import verify_feed
    from cli.feed_files import read_sets
    from cli.proof import verifier_keys

    output: Output = context.obj
    keys, found = verifier_keys(key), {"commits": 0, "changes": 0}
    begins = since
    with output.progress("verifying …"):
        reached: int | None = None
        for changes in read_sets(file):
            if begins is None:
                begins = _before(changes)
            if changes.part is not None and not partial:
                raise Unverified(
                    f"{file}: of leaf {changes.commit.index}, {len(changes)} of {changes.count} changes are shown: say "
                    "--partial if that was asked for",
                    subject=file,
                )
            reached = verify_feed([changes], keys, since=begins if reached is None else reached, origin=origin)
            found["commits"] += 1
            found["changes"] += len(changes)
            table = changes.commit.table
        if reached is None:
            raise Invalid(f"{file} holds no change set: there is nothing to check", subject=file)
        verify_feed([], keys, since=reached, until=until)
    answer = {"verified": True, "table": table, "since": begins, "reached": reached, **found}
    told = f"{table}: {found['changes']} changes in {found['commits']} commits are as they were signed"
    output.data(answer, escape(f"{told}, from leaf {(begins or 0) + 1} to leaf {reached} of the table."))


class _Checked:
    """Holds a feed to the timeline, commit by commit: none may be missing between two that are shown."""

    def __init__(self, lake: Lake, table: str, since: Any, given: list[str]) -> None:
        from catalog.changes.sequenced import position
        from cli.proof import verifier_keys

        self._keys: list[VerifierKey] = verifier_keys(given) or [key for _, key in lake.timeline.source.keyring().keys]
        self._origin = lake.settings.origin
        self.reached = -1 if since is None else position(lake.timeline, lake.tables.load(table), since)

    def check(self, changes: ChangeSet) -> None:
        from catalog.changes.verifier import verify_feed

        reached = verify_feed([changes], self._keys, since=self.reached, origin=self._origin)
        assert reached is not None
        self.reached = reached


def _sets(lake: Lake, table: str, since: Any, until: Any, follow: bool) -> Iterator[ChangeSet]:
    """The change sets; when following, those that come, looked for every second."""
    while True:
        for changes in lake.changes(table, since, until):
            since = changes.commit.sequence
            yield changes
        if not follow:
            return
        time.sleep(POLL_S)


def _cut(sets: Iterator[ChangeSet], limit: int | None) -> Iterator[ChangeSet]:
    """Ends with the change that the limit falls on; what is shown of its commit is proven to be a part of it."""
    left = limit
    for changes in sets:
        if left is None or len(changes) <= left:
            yield changes
        else:
            yield changes.select(range(left))
        left = None if left is None else left - min(left, len(changes))
        if left == 0:
            return


def _format(given: str | None, out: Path | None, output: Output) -> FeedFormat:
    from cli.feed_files import FeedFormat

    if given is not None:
        try:
            found = FeedFormat(given)
        except ValueError:
            raise Invalid(f"{given!r} is no format of a feed: choose from {', '.join(FeedFormat)}") from None
        if found is FeedFormat.TEXT and out is not None:
            raise Invalid("text carries no proofs: a file is jsonl or arrow")
        return found
    if out is not None:
        return FeedFormat.ARROW if out.suffix in (".arrow", ".arrows") else FeedFormat.JSONL
    return FeedFormat.JSONL if output.is_json else FeedFormat.TEXT


def _target(out: Path | None, follow: bool, stack: ExitStack) -> BinaryIO:
    """Stdout, or a file that is whole when it gets its name; one that is followed grows under it."""
    if out is None:
        return sys.stdout.buffer
    from cli.row_exports import beside

    if follow:
        return stack.enter_context(out.open("wb"))
    part = stack.enter_context(beside(out, keep=True))
    return stack.enter_context(part.open("wb"))


def _show(output: Output, stream: BinaryIO, changes: ChangeSet, wanted: FeedFormat) -> None:
    from cli.feed_files import FeedFormat, text_lines, write_set

    if wanted is not FeedFormat.TEXT:
        write_set(stream, changes, wanted)
        return
    for line in text_lines(changes, shown_time(changes.commit.committed_ms)):
        output.caption(escape(line))


def _before(changes: ChangeSet) -> int:
    """The table's leaf before the feed's first one, as the evidence has it; checked with it right after."""
    import json

    evidence = changes.evidence
    if evidence is None:
        return -1
    first = evidence.passed[0][0] if evidence.passed else evidence.leaf
    try:
        return int(json.loads(first)["sequence"]) - 1
    except (ValueError, KeyError, TypeError):
        return -1
