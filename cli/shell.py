r"""`strandline sql`: an interactive SQL shell. Statements end with `;`, the shell's own commands begin with `\`.

History stays in memory unless --history names a file. From a pipe it reads without prompt and completion.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from catalog import Invalid, LakeError
from catalog.core.errors import as_lake_error
from catalog.core.point_in_time import PointInTime, parse_point_in_time
from cli.lake_commands import add_command, opened
from cli.output import Output
from cli.query import RowsFormat, receipt_line, write
from cli.times import AS_OF_HELP, past_point

if TYPE_CHECKING:
    from catalog import Lake

HELP = r"""\d [TABLE]      list tables, or a table's columns
\explain [SQL]  show where a query would run and why; without SQL: on or off for every query
\timing         on or off: show how long each query took
\receipt        on or off: show each query's receipt
\verify         on or off: check every object read against the timeline
\asof [WHEN]    read as of an index (42), a time (2026-03-01T12:00:00Z) or a name; without WHEN: as of now
\format FORMAT  table, json or csv
\q              quit"""

KEYWORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "WITH", "RECURSIVE"),
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "ON", "USING", "UNION ALL", "INTERSECT", "EXCEPT"),
    *("AND", "OR", "NOT", "IN", "EXISTS", "BETWEEN", "LIKE", "IS NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST"),
    *("OVER", "PARTITION BY", "VERSION AS OF", "FOR SYSTEM_TIME AS OF TIMESTAMP", "EXPLAIN ROUTE"),
    *("count", "sum", "avg", "min", "max", "coalesce"),
)


_WORD = re.compile(r"[\w.]+")


def register(app: typer.Typer) -> None:
    add_command(app, sql, "sql", "sql --history ~/.strandline_history", "sql < report.sql")


def sql(
    context: typer.Context,
    history: Annotated[Path | None, typer.Option(help="Keep the history in this file.")] = None,
    as_of: Annotated[str | None, typer.Option(help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
) -> None:
    """Start an interactive SQL shell with history, completion of tables and columns, timing and explanations."""
    with opened(context) as (lake, output):
        shell = Shell(lake, output, None if as_of is None else parse_point_in_time(as_of))
        read = _prompt(lake, history) if sys.stdin.isatty() else _lines()
        failed = False
        for text in statements(read):
            try:
                failed = not shell.do(text) or failed
            except EOFError:
                break
        if failed and not sys.stdin.isatty():
            raise typer.Exit(1)


def statements(read_line: Callable[[bool], str]) -> Iterator[str]:
    """Complete statements from lines. `read_line(more)` returns a line, and raises EOFError at the end."""
    buffer = ""
    while True:
        try:
            line = read_line(bool(buffer))
        except EOFError:
            if buffer.strip():
                yield buffer.strip()
            return
        except KeyboardInterrupt:
            buffer = ""
            continue
        if not buffer and line.strip().startswith("\\"):
            yield line.strip()
            continue
        buffer += line + "\n"
        if buffer.rstrip().endswith(";"):
            yield buffer.strip()
            buffer = ""
        elif not buffer.strip():
            buffer = ""


class Shell:
    """The state of one session: its switches, format and point in time."""

    def __init__(self, lake: Lake, output: Output, as_of: PointInTime | None = None) -> None:
        self._lake, self._output, self._as_of = lake, output, as_of
        self._format = RowsFormat.JSON if output.is_json else RowsFormat.TABLE
        self._on = {"timing": False, "explain": False, "receipt": False, "verify": False}

    def do(self, text: str) -> bool:
        """Runs a statement or a command; after an error, prints it and returns False. EOFError ends the session."""
        try:
            self._command(text) if text.startswith("\\") else self._query(text)
        except EOFError:
            raise
        except KeyboardInterrupt:
            self._output.caption("cancelled")
        except Exception as error:
            self._output.error(as_lake_error(error))
            return False
        return True

    def _query(self, text: str) -> None:
        began = time.perf_counter()
        if self._on["explain"]:
            self._explain(text)
        answer = self._lake.queries.run(text, as_of=self._as_of, verify=self._on["verify"])
        write(answer, self._format, None, self._output)
        if self._on["receipt"] or self._on["verify"]:
            self._output.caption(f"[dim]{escape(receipt_line(answer.receipt))}[/]")
        if self._on["timing"]:
            self._output.caption(f"[dim]{(time.perf_counter() - began) * 1000:.1f} ms[/]")

    def _command(self, text: str) -> None:
        word, _, argument = text[1:].rstrip(";").strip().partition(" ")
        argument = argument.strip()
        if word in ("q", "quit", "exit"):
            raise EOFError
        if word == "d":
            self._describe(argument)
        elif word == "explain" and argument:
            self._explain(argument)
        elif word in self._on and not argument:
            self._on[word] = not self._on[word]
            self._output.caption(f"{word} is {'on' if self._on[word] else 'off'}")
        elif word == "asof":
            self._as_of = parse_point_in_time(argument) if argument else None
            self._output.caption(f"as of {argument or 'now'}")
        elif word == "format" and argument in ("table", "json", "csv"):
            self._format = RowsFormat(argument)
        elif word in ("?", "h", "help"):
            self._output.caption(escape(HELP))
        else:
            raise Invalid(f"{text!r} is not a command of the shell: \\? lists them")

    def _explain(self, text: str) -> None:
        explained = self._lake.queries.explain(text, as_of=self._as_of)
        self._output.data(explained.as_dict(), escape("\n".join(explained.lines())))

    def _describe(self, table: str) -> None:
        if not table:
            self._output.table([{"table": name} for name in self._lake.tables.list()], ["table"])
            return
        fields = self._lake.tables.load(table).schema().fields
        rows = [
            {"column": f.name, "type": str(f.field_type), "required": "yes" if f.required else "", "doc": f.doc or ""}
            for f in fields
        ]
        self._output.table(rows, ["column", "type", "required", "doc"])


def _lines() -> Callable[[bool], str]:
    def read(more: bool) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    return read


def _prompt(lake: Lake, history: Path | None) -> Callable[[bool], str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    entries = InMemoryHistory() if history is None else FileHistory(str(history.expanduser()))
    session: PromptSession[str] = PromptSession(history=entries, completer=completer(lake), complete_while_typing=False)
    return lambda more: session.prompt("      ... " if more else "strandline> ")


def completer(lake: Lake) -> Any:
    """Completes keywords, tables, and the columns of the tables in the statement. Lists the tables once per session."""
    from prompt_toolkit.completion import Completer, Completion

    class Names(Completer):
        def __init__(self) -> None:
            self._tables: list[str] | None = None
            self._columns: dict[str, list[str]] = {}

        def get_completions(self, document: Any, event: Any) -> Iterator[Any]:
            word = document.get_word_before_cursor(pattern=_WORD)
            for candidate in self._candidates(document.text, word):
                yield Completion(candidate, start_position=-len(word))

        def _candidates(self, text: str, word: str) -> list[str]:
            if self._tables is None:
                self._tables = lake.tables.list()
            named = [name for name in self._tables if name in text]
            columns = [column for name in named for column in self._columns_of(name)]
            lower = word.lower()
            matches = [name for name in (*columns, *self._tables, *KEYWORDS) if name.lower().startswith(lower)]
            tables = [name for name in self._tables if name.partition(".")[2].startswith(lower)]
            return list(dict.fromkeys([*matches, *tables])) if word else named

        def _columns_of(self, name: str) -> list[str]:
            if name not in self._columns:
                try:
                    self._columns[name] = [field.name for field in lake.tables.load(name).schema().fields]
                except LakeError:
                    self._columns[name] = []
            return self._columns[name]

    return Names()
