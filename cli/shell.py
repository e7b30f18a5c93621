r"""`strandline sql`: an interactive SQL shell. Statements end with `;`, the shell's own commands begin with `\`.

History stays in memory unless --history names a file. From a pipe it reads without prompt and completion.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from catalog import Invalid, LakeError
from catalog.core.errors import as_lake_error
from catalog.core.point_in_time import PointInTime, parse_point_in_time
from cli.lake_commands import add_command, opened
from cli.output import Output
from cli.query import RowsFormat, receipt_line, write, write_records, write_statement
from cli.shell_text import statements
from cli.times import AS_OF_HELP, past_point

if TYPE_CHECKING:
    from catalog import Lake

HELP = r"""\d [TABLE]      list tables, or a table's columns; \dt [PATTERN] lists tables like silver.%
\x              on or off: one line for each column, for wide rows
\watch [S [N]]  run the last query again every S seconds (2), at most N times; Ctrl-C ends it
\explain [SQL]  show where a query would run and why; without SQL: on or off for every query
\timing         on or off: show how long each query took
\receipt        on or off: show each query's receipt
\verify         on or off: check every object read against the timeline
\asof [WHEN]    read as of an index (42), a time (2026-03-01T12:00:00Z) or a name; without WHEN: as of now
\format FORMAT  table, json or csv
\q              quit; `exit` and `help` work, too"""

KEYWORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "WITH", "RECURSIVE"),
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "ON", "USING", "UNION ALL", "INTERSECT", "EXCEPT"),
    *("AND", "OR", "NOT", "IN", "EXISTS", "BETWEEN", "LIKE", "IS NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST"),
    *("OVER", "PARTITION BY", "VERSION AS OF", "FOR SYSTEM_TIME AS OF TIMESTAMP", "EXPLAIN ROUTE"),
    *("count", "sum", "avg", "min", "max", "coalesce"),
)


_WORD = re.compile(r"[\w.]+")


def register(app: typer.Typer) -> None:
    add_command(
        app, sql, "sql", "sql --history ~/.strandline_history", "sql report.sql", "sql -c 'SHOW TABLES' -c 'SELECT 1'"
    )


def sql(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Run the statements in this file.", show_default="stdin")] = None,
    command: Annotated[list[str] | None, typer.Option("-c", "--command", help="Run this; repeatable.")] = None,
    history: Annotated[Path | None, typer.Option(help="Keep the history in this file.")] = None,
    as_of: Annotated[str | None, typer.Option(help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
) -> None:
    """Start an interactive SQL shell with history, completion of tables and columns, timing and explanations."""
    with opened(context) as (lake, output):
        shell = Shell(lake, output, None if as_of is None else parse_point_in_time(as_of))
        if file is not None and command:
            raise Invalid("give either a file or -c, and not both")
        lines = (
            [line for text in command or () for line in _command(text)] if file is None else _read(file).splitlines()
        )
        interactive = not (file or command) and sys.stdin.isatty()
        if interactive:
            output.caption(escape("Statements end with ; and \\? lists the shell's commands."))
        read = _prompt(lake, history) if interactive else _given(lines) if file or command else _lines()
        failed = False
        for text in statements(read):
            try:
                failed = not shell.do(text) or failed
            except EOFError:
                break
        if failed and not interactive:
            raise typer.Exit(1)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} cannot be read: {error}") from None


def _command(text: str) -> list[str]:
    """The lines of -c, which may leave out the last `;`."""
    return text.splitlines() if text.startswith("\\") else f"{text.rstrip().rstrip(';')};".splitlines()


def _given(lines: Sequence[str]) -> Callable[[bool], str]:
    rest = iter(lines)

    def read(more: bool) -> str:
        line = next(rest, None)
        if line is None:
            raise EOFError
        return line

    return read


class Shell:
    """The state of one session: its switches, format and point in time."""

    def __init__(self, lake: Lake, output: Output, as_of: PointInTime | None = None) -> None:
        self._lake, self._output, self._as_of = lake, output, as_of
        self._format = RowsFormat.JSON if output.is_json else RowsFormat.TABLE
        self._on = {"timing": False, "explain": False, "receipt": False, "verify": False, "x": False}
        self._last: str | None = None

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
        if self._write(text):
            return
        self._last = text
        if self._on["explain"]:
            self._explain(text)
        answer = self._lake.queries.run(text, as_of=self._as_of, verify=self._on["verify"])
        if self._on["x"] and self._format is RowsFormat.TABLE:
            write_records(answer, self._output)
        else:
            write(answer, self._format, None, self._output)
        if self._on["receipt"] or self._on["verify"]:
            self._output.caption(f"[dim]{escape(receipt_line(answer.receipt))}[/]")
        if self._on["timing"]:
            self._output.caption(f"[dim]{(time.perf_counter() - began) * 1000:.1f} ms[/]")

    def _write(self, text: str) -> bool:
        """Runs a statement that writes; False if the text is a query."""
        if self._as_of is not None or self._on["verify"]:
            plain = "read the newest commits: write \\asof, and turn \\verify off"
        else:
            plain = None
        return write_statement(self._lake, self._output, text, None, refusal=plain)

    def _watch(self, argument: str) -> None:
        numbers = argument.split()
        try:
            seconds, times = float(numbers[0]) if numbers else 2.0, int(numbers[1]) if len(numbers) > 1 else None
        except ValueError:
            raise Invalid("write \\watch, \\watch SECONDS or \\watch SECONDS TIMES") from None
        if self._last is None:
            raise Invalid("there is no query to watch: run one first")
        while True:
            self._query(self._last)
            times = None if times is None else times - 1
            if times is not None and times <= 0:
                return
            time.sleep(max(seconds, 0.1))

    def _command(self, text: str) -> None:
        word, _, argument = text[1:].rstrip(";").strip().partition(" ")
        argument = argument.strip()
        if word in ("q", "quit", "exit"):
            raise EOFError
        if word == "d":
            self._describe(argument)
        elif word == "dt":
            self._list(argument)
        elif word == "watch":
            self._watch(argument)
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
            self._list("")
            return
        fields = self._lake.tables.load(table).schema().fields
        rows = [
            {"column": f.name, "type": str(f.field_type), "required": "yes" if f.required else "", "doc": f.doc or ""}
            for f in fields
        ]
        self._output.table(rows, ["column", "type", "required", "doc"])

    def _list(self, pattern: str) -> None:
        """All tables, or those like a pattern with `%` and `_`."""
        wanted = re.compile(re.escape(pattern or "%").replace("%", ".*").replace("_", "."))
        names = [name for name in self._lake.tables.list() if wanted.fullmatch(name)]
        self._output.table([{"table": name} for name in names], ["table"])


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
