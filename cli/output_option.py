"""`-o/--output` after a command's name, with the meaning that it has before it. The last one counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from cli.output import Format, Output

OUTPUT_HELP = "The format of data on stdout."


def accept_output_option(app: typer.Typer) -> None:
    """Gives every command of the app the option, those of its groups included. Call it after all are registered."""
    for command in app.registered_commands:
        command.cls = _CommandWithOutput
    for group in app.registered_groups:
        if group.typer_instance is not None:
            accept_output_option(group.typer_instance)


def _choose(context: typer.Context, format_: Format | None) -> None:
    if format_ is not None:
        context.obj = Output(format_)


def _declaration(
    output: Annotated[
        Format | None,
        typer.Option("--output", "-o", help=OUTPUT_HELP, callback=_choose, expose_value=False, show_default="text"),
    ] = None,
) -> None: ...


def _option(declaration: Callable[..., None]) -> Any:
    app = typer.Typer(add_completion=False)
    app.command()(declaration)
    return get_command(app).params[0]


class _CommandWithOutput(TyperCommand):
    def __init__(self, *words: Any, params: list[Any] | None = None, **options: Any) -> None:
        super().__init__(*words, params=[*(params or ()), _option(_declaration)], **options)
