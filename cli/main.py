"""The `strandline` command: global options, error to exit code, and the commands of the other modules."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from catalog.errors import as_lake_error
from cli import changes, cost, dev, ingest, job, proof, query, remote, shell, table, timeline, transfer, vectors
from cli.output import Format, Output

app = typer.Typer(
    name="strandline",
    help="A serverless, diskless, provable lakehouse.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 proof failed, 4 worth trying again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def options(
    context: typer.Context,
    output: Annotated[Format, typer.Option("--output", "-o", help="How data is written to stdout.")] = Format.TEXT,
) -> None:
    context.obj = Output(output)


dev.register(app)
timeline.register(app)
ingest.register(app)
table.register(app)
transfer.register(app)
query.register(app)
shell.register(app)
changes.register(app)
vectors.register(app)
proof.register(app)
remote.register(app)
job.register(app)
cost.register(app)


def main() -> None:
    """Runs the command; a LakeError becomes its exit code, anything else is a defect and says so."""
    try:
        app()
    except Exception as error:
        known = as_lake_error(error)
        Output(_wanted_format()).error(known)
        sys.exit(known.kind.exit_code)


def _wanted_format() -> Format:
    """The errors of a command that never got its context still speak the asked-for language."""
    words = sys.argv[1:]
    json_asked = any(
        word in ("--output=json", "-ojson") or (word in ("--output", "-o") and after == "json")
        for word, after in zip(words, [*words[1:], ""], strict=True)
    )
    return Format.JSON if json_asked else Format.TEXT


if __name__ == "__main__":
    main()
