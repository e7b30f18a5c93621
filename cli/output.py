"""How the command speaks: data on stdout as text or JSON, progress on stderr and only to a terminal.

Knows nothing of the lake. rich honours NO_COLOR and drops colour when stdout is a pipe.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from catalog.errors import LakeError


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Output:
    """One command's voice. `data` is what scripts read; everything else is for eyes."""

    def __init__(self, format_: Format = Format.TEXT) -> None:
        self.format = format_
        self._out = Console(highlight=False, soft_wrap=True)
        self._err = Console(stderr=True, highlight=False)

    @property
    def is_json(self) -> bool:
        return self.format is Format.JSON

    def data(self, value: Mapping[str, Any] | Sequence[Any], text: str | Table | None = None) -> None:
        """The answer: `value` as JSON, or `text` for people (by default the value, a key a line)."""
        if self.is_json:
            sys.stdout.write(json.dumps(value, default=str, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        elif text is not None:
            self._out.print(text)
        else:
            self._out.print(_lines(value))

    def table(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, title: str | None = None) -> None:
        rows = list(rows)
        grid = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for column in columns:
            grid.add_column(column.replace("_", " "))
        for row in rows:
            grid.add_row(*(escape(str(row.get(column, ""))) for column in columns))
        self.data(rows, grid)

    def caption(self, text: str) -> None:
        """A line for people only: silent in JSON."""
        if not self.is_json:
            self._out.print(text)

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[str], None]]:
        """A spinner on stderr while the block runs, if somebody can see it; what it gives says how far it is."""
        if not self._err.is_terminal:
            yield lambda more: None
            return
        with self._err.status(text) as status:
            yield lambda more: status.update(f"{text}  [dim]{escape(more)}[/]")

    def error(self, error: LakeError) -> None:
        if self.is_json:
            sys.stderr.write(json.dumps({"error": error.as_dict()}) + "\n")
        else:
            self._err.print(f"[bold red]{error.kind.name}[/]: {escape(error.message)}", soft_wrap=True)


def _lines(value: Mapping[str, Any] | Sequence[Any]) -> str:
    if isinstance(value, Mapping):
        width = max((len(key) for key in value), default=0)
        return "\n".join(f"{key:<{width}}  {item}" for key, item in value.items())
    return "\n".join(str(item) for item in value)
