"""The `strandline` command: its global options, its subcommands, and the exit code of an error."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from catalog.core.errors import as_lake_error
from cli import (
    changes,
    cost,
    dev,
    doctor,
    environment,
    erase,
    hold,
    ingest,
    job,
    login,
    proof,
    prove,
    query,
    remote,
    shell,
    table,
    timeline,
    transfer,
    vectors,
    witness,
)
from cli.output import Format, Output
from cli.output_option import OUTPUT_HELP, accept_output_option

app = typer.Typer(
    name="strandline",
    help="A serverless, diskless, provable lakehouse.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 verification failed, 4 try again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"strandline {version('strandline')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    output: Annotated[Format, typer.Option("--output", "-o", help=OUTPUT_HELP)] = Format.TEXT,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    context.obj = Output(output)


dev.register(app)
environment.register(app)
login.register(app)
timeline.register(app)
ingest.register(app)
table.register(app)
transfer.register(app)
query.register(app)
shell.register(app)
changes.register(app)
vectors.register(app)
prove.register(app)
erase.register(app)
hold.register(app)
proof.register(app)
witness.register(app)
remote.register(app)
job.register(app)
cost.register(app)
doctor.register(app)
accept_output_option(app)


def main() -> None:
    """Runs the command. A LakeError sets the exit code; any other exception is reported as internal."""
    try:
        app()
    except Exception as error:
        lake_error = as_lake_error(error)
        Output(_requested_format()).error(lake_error)
        sys.exit(lake_error.kind.exit_code)


def _requested_format() -> Format:
    """The format that `-o` names, read from the arguments: an error may come before typer has parsed them."""
    words = sys.argv[1:]
    chosen = Format.TEXT
    for word, following in zip(words, [*words[1:], ""], strict=True):
        value = following if word in ("--output", "-o") else word.removeprefix("--output=").removeprefix("-o")
        if value != word and value in list(Format):
            chosen = Format(value)
    return chosen


if __name__ == "__main__":
    main()
