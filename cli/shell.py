r"""`strandline sql`: questions one after the other. Statements end with `;`, the shell's own commands begin with `\`.

History stays in memory unless a file is named. Reads from a pipe as from a person, without prompt or completion.
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

from catalog.errors import Invalid, LakeError, as_lake_error
from cli.opened import add_command, opened
from cli.output import Output
from cli.query import RowsFormat, moment, receipt_line, write

if TYPE_CHECKING:
    from catalog.lake import Lake

HELP = r"""\d [TABLE]      tables, or a table's columns
\explain [SQL]  where a query would run and why; alone: on or off for every query
\timing         on or off: how long each query took
\receipt        on or off: what each answer was made from
\verify         on or off: check every object read against the timeline
\asof [WHEN]    all queries as of @INDEX, a time or a name; alone: as of now
\format FORMAT  table, json or csv
\q              leave"""

KEYWORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "WITH", "RECURSIVE"),
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "ON", "USING", "UNION ALL", "INTERSECT", "EXCEPT"),
    *("AND", "OR", "NOT", "IN", "EXISTS", "BETWEEN", "LIKE", "IS NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST"),
    *("OVER", "PARTITION BY", "VERSION AS OF", "FOR SYSTEM_TIME AS OF TIMESTAMP", "EXPLAIN ROUTE"),
    *("count", "sum", "avg", "min", "max", "coalesce"),
)


_WORD = re.compile(r"[\w.]+")


def register(app: typer.Typer) -> None:
    add_command(app, sql, "sql", "sql --history ~/.strandline_history", "sql < questions.sql")


def sql(
    context: typer.Context,
    history: Annotated[Path | None, typer.Option(help="Keep what is typed in this file, too.")] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Every query as of @INDEX of the timeline, a time, or a name.")
    ] = None,
) -> None:
    """An interactive shell for SQL: history, completion of tables and columns, timing and explanations."""
    with opened(context) as (lake, output):
        shell = Shell(lake, output, moment(as_of))
        read = _prompt(lake, history) if sys.stdin.isatty() else _lines()
        failed = False
        for text in statements(read):
            try:
                failed = not shell.do(text) or failed
            except EOFError:
                break
        if failed and not sys.stdin.isatty():
            raise typer.Exit(1)


def statements(lines: Callable[[bool], str]) -> Iterator[str]:
    """Whole statements from lines: `lines(more)` gives one, and raises EOFError at the end."""
    held = ""
    while True:
        try:
            line = lines(bool(held))
        except EOFError:
            if held.strip():
                yield held.strip()
            return
        except KeyboardInterrupt:
            held = ""
            continue
        if not held and line.strip().startswith("\\"):
            yield line.strip()
            continue
        held += line + "\n"
        if held.rstrip().endswith(";"):
            yield held.strip()
            held = ""
        elif not held.strip():
            held = ""


class Shell:
    """The state of one session: what is shown, and as of when."""

    def __init__(self, lake: Lake, output: Output, as_of: Any = None) -> None:
        self._lake, self._output, self._as_of = lake, output, as_of
        self._format = RowsFormat.JSON if output.is_json else RowsFormat.TABLE
        self._on = {"timing": False, "explain": False, "receipt": False, "verify": False}

    def do(self, text: str) -> bool:
        """Runs a statement or a command; False if it failed, which it has said. EOFError ends the session."""
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
        word, _, rest = text[1:].rstrip(";").strip().partition(" ")
        rest = rest.strip()
        if word in ("q", "quit", "exit"):
            raise EOFError
        if word == "d":
            self._describe(rest)
        elif word == "explain" and rest:
            self._explain(rest)
        elif word in self._on and not rest:
            self._on[word] = not self._on[word]
            self._output.caption(f"{word} is {'on' if self._on[word] else 'off'}")
        elif word == "asof":
            self._as_of = moment(rest or None)
            self._output.caption(f"as of {rest or 'now'}")
        elif word == "format" and rest in ("table", "json", "csv"):
            self._format = RowsFormat(rest)
        elif word in ("?", "h", "help"):
            self._output.caption(escape(HELP))
        else:
            raise Invalid(f"{text!r} is no command of the shell: \\? lists them")

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

    kept = InMemoryHistory() if history is None else FileHistory(str(history.expanduser()))
    session: PromptSession[str] = PromptSession(history=kept, completer=completer(lake), complete_while_typing=False)
    return lambda more: session.prompt("      ... " if more else "strandline> ")


def completer(lake: Lake) -> Any:
    """Completes keywords, tables, and the columns of the tables named so far. Asks the catalog once a session."""
    from prompt_toolkit.completion import Completer, Completion

    class Names(Completer):
        def __init__(self) -> None:
            self._tables: list[str] | None = None
            self._columns: dict[str, list[str]] = {}

        def get_completions(self, document: Any, event: Any) -> Iterator[Any]:
            word = document.get_word_before_cursor(pattern=_WORD)
            for found in self._candidates(document.text, word):
                yield Completion(found, start_position=-len(word))

        def _candidates(self, text: str, word: str) -> list[str]:
            if self._tables is None:
                self._tables = lake.tables.list()
            named = [name for name in self._tables if name in text]
            columns = [column for name in named for column in self._of(name)]
            lower = word.lower()
            near = [name for name in (*columns, *self._tables, *KEYWORDS) if name.lower().startswith(lower)]
            tables = [name for name in self._tables if name.partition(".")[2].startswith(lower)]
            return list(dict.fromkeys([*near, *tables])) if word else named

        def _of(self, name: str) -> list[str]:
            if name not in self._columns:
                try:
                    self._columns[name] = [field.name for field in lake.tables.load(name).schema().fields]
                except LakeError:
                    self._columns[name] = []
            return self._columns[name]

    return Names()
