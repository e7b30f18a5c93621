"""The lake a command works on, opened as late as can be: `--help` and wrong words need none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from catalog.errors import Invalid
from cli.embedded import use_lake
from cli.output import Output

if TYPE_CHECKING:
    from catalog.lake import Lake


@contextmanager
def opened(context: typer.Context) -> Iterator[tuple[Lake, Output]]:
    use_lake()
    from catalog.lake import open_lake
    from catalog.settings import load_settings

    with closing(open_lake(load_settings())) as lake:
        yield lake, context.obj


def add_command(group: typer.Typer, command: Callable[..., None], *examples: str, name: str | None = None) -> None:
    """A command with its examples below its help."""
    said = " · ".join(f"`strandline {example}`" for example in examples)
    group.command(name, epilog=f"Examples: {said}")(command)


def ask(output: Output, question: str) -> None:
    """Goes on if the answer is yes; ends the command with 1 if not. A script must say `--yes` beforehand."""
    if output.is_json:
        raise Invalid(f"{question} Nothing was done: say --yes")
    typer.confirm(question, abort=True, err=True)


@contextmanager
def counting(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr whose text is told anew as the work goes on, if somebody can see it."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(title) as status:
        yield lambda text: status.update(f"{title} {text}")
