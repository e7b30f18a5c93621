"""Opens the lake for a command, as late as possible: `--help` and usage errors need none. Also examples and prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from catalog import Invalid
from cli.lake_choice import use_lake
from cli.output import Output

if TYPE_CHECKING:
    from catalog import Lake


@contextmanager
def opened(context: typer.Context) -> Iterator[tuple[Lake, Output]]:
    use_lake()
    from catalog import load_settings, open_lake

    with closing(open_lake(load_settings())) as lake:
        yield lake, context.obj


def add_command(group: typer.Typer, command: Callable[..., None], *examples: str, name: str | None = None) -> None:
    """Adds a command with examples below its help."""
    shown = " · ".join(f"`strandline {example}`" for example in examples)
    group.command(name, epilog=f"Examples: {shown}")(command)


def confirm(output: Output, question: str) -> None:
    """Asks the user; anything but yes ends the command with exit code 1. With `-o json`, Invalid: pass `--yes`."""
    if output.is_json:
        raise Invalid(f"{question} Nothing was done: add --yes to confirm")
    typer.confirm(question, abort=True, err=True)


@contextmanager
def counting(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr, if that is a terminal; the yielded function updates its text."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(title) as status:
        yield lambda text: status.update(f"{title} {text}")


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar with rate and time left on stderr, if that is a terminal; the yielded function advances it by one."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda: None
        return
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)
