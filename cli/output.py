"""The command's output: data on stdout as text or JSON, progress on stderr if that is a terminal.

Does not use the lake. rich honours NO_COLOR and drops colour when stdout is a pipe.
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

from catalog import LakeError
from catalog.core.column_names import check_column_names


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Output:
    """The output of one command. Scripts read `data`; everything else is for people."""

    def __init__(self, format_: Format = Format.TEXT) -> None:
        self.format = format_
        self._out = Console(highlight=False, soft_wrap=True)
        self._err = Console(stderr=True, highlight=False)

    @property
    def is_json(self) -> bool:
        return self.format is Format.JSON

    def data(self, value: Mapping[str, Any] | Sequence[Any], text: str | Table | None = None) -> None:
        """Writes the result: `value` as JSON, or `text` for people (by default the value, one key per line)."""
        if self.is_json:
            sys.stdout.write(json.dumps(value, default=str, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        elif text is not None:
            self._out.print(text)
        else:
            self._out.print(_lines(value))

    def table(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, title: str | None = None) -> None:
        rows = list(rows)
        shown = ([escape(str(row.get(column, ""))) for column in columns] for row in rows)
        self.data(rows, _grid([column.replace("_", " ") for column in columns], shown, title))

    def answer(self, rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> None:
        """Writes the rows of a query, whose columns may share a name. Invalid if JSON would drop one."""
        if self.is_json:
            check_column_names(columns, "json", "leave out `-o json`")
            self.data([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            self.data([], _grid(columns, ([_cell(value) for value in row] for row in rows)))

    def caption(self, text: str) -> None:
        """Writes a line for people; nothing with `-o json`."""
        if not self.is_json:
            self._out.print(text)

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[str], None]]:
        """A spinner on stderr while the block runs, if that is a terminal; the yielded function shows progress."""
        if not self._err.is_terminal:
            yield lambda detail: None
            return
        with self._err.status(text) as status:
            yield lambda detail: status.update(f"{text}  [dim]{escape(detail)}[/]")

    def error(self, error: LakeError) -> None:
        if self.is_json:
            sys.stderr.write(json.dumps({"error": error.as_dict()}) + "\n")
        else:
            self._err.print(f"[bold red]{error.kind.name}[/]: {escape(error.message)}", soft_wrap=True)


def _cell(value: Any) -> str:
    """A value of a query's row; a null does not look like the text `NULL` on a terminal with styles."""
    return "[dim]NULL[/]" if value is None else escape(str(value))


def _grid(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """`rows` in rich's markup, headings as plain text."""
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        grid.add_column(escape(heading), overflow="fold")  # never cut off
    for row in rows:
        grid.add_row(*row)
    return grid


def _lines(value: Mapping[str, Any] | Sequence[Any]) -> str:
    if isinstance(value, Mapping):
        width = max((len(key) for key in value), default=0)
        return "\n".join(f"{key:<{width}}  {item}" for key, item in value.items())
    return "\n".join(str(item) for item in value)
