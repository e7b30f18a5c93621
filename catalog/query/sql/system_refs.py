"""What shows the lake itself: SHOW, DESCRIBE and SUMMARIZE, which become a SELECT, and the functions that they read.

`FROM history('silver.tides')` is a reference to rows that the lake makes from its metadata and its timeline
(catalog/query/system). Their arguments are literals or parameters: they are needed before the statement is planned.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import Invalid
from catalog.core.point_in_time import PointInTime, parse_point_in_time

INFORMATION_SCHEMA = "information_schema"
INFORMATION_TABLES = frozenset({"tables", "columns"})
SYSTEM_FUNCTIONS = {
    "changes": (1, 3),
    "files": (1, 2),
    "history": (1, 1),
    "snapshots": (1, 1),
    "table_columns": (1, 2),
    "timeline": (0, 2),
}
"""The functions of the lake in FROM, with the least and the most arguments that they take."""
_SYNTAX = {
    "changes": "changes('<table>', since, until)",
    "files": "files('<table>', as_of)",
    "history": "history('<table>')",
    "snapshots": "snapshots('<table>')",
    "table_columns": "table_columns('<table>', as_of)",
    "timeline": "timeline(since, until)",
}
_BEFORE_SOURCE = frozenset({TokenType.FROM, TokenType.JOIN, TokenType.COMMA, TokenType.L_PAREN})
_SHOW_SYNTAX = (
    "SHOW shows TABLES [FROM <database>] [LIKE '<pattern>'], COLUMNS FROM <table>, SNAPSHOTS FROM <table>, or "
    "CHANGES FROM <table> [SINCE <position>] [UNTIL <position>]"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument that is a parameter of the statement, `$name` or `$1`."""

    name: str


@dataclass(frozen=True, slots=True)
class SystemRef:
    """One reference to rows of the lake itself. `start`:`end` is its span in the text, without an alias."""

    name: str
    arguments: tuple[Any, ...]
    start: int
    end: int
    aliased: bool

    def bound(self, parameters: Mapping[str, Any]) -> SystemRef:
        """The reference with its parameters' values."""
        values = []
        for argument in self.arguments:
            if isinstance(argument, Parameter):
                if argument.name not in parameters:
                    raise Invalid(f"the parameter ${argument.name} of {self.name}(…) has no value: pass one")
                values.append(parameters[argument.name])
            else:
                values.append(argument)
        return replace(self, arguments=tuple(values))

    @property
    def table(self) -> str:
        """The name in its first argument."""
        name = self.arguments[0]
        if not isinstance(name, str) or not name:
            raise Invalid(f"{self.name} takes a table's name in quotes first: write {_SYNTAX[self.name]}")
        return name

    def point(self, number: int) -> PointInTime | None:
        """The point in time of an argument; None if it is left out or NULL."""
        if len(self.arguments) <= number or self.arguments[number] is None:
            return None
        return parse_point_in_time(str(self.arguments[number]))


def rewrite(sql: str, tokens: Sequence[Token]) -> str | None:
    """The SELECT for a statement that shows the lake, or that has one in brackets; None if there is none."""
    if tokens[0].token_type == TokenType.SHOW:
        return _show(tokens[1:])
    parts: list[tuple[int, int, str]] = []
    for at, token in enumerate(tokens[:-1]):
        first = at == 0 or tokens[at - 1].token_type == TokenType.L_PAREN
        if not first or token.token_type not in (TokenType.DESCRIBE, TokenType.SUMMARIZE):
            continue
        after = tokens[at + 1]
        if after.token_type not in (TokenType.VAR, TokenType.IDENTIFIER) and not _is_plain_word(after):
            continue  # of a SELECT: DuckDB's own
        name, length = _name(tokens[at + 1 :])
        end = tokens[at + length].end + 1
        if token.token_type == TokenType.SUMMARIZE:
            parts.append((after.start, after.start, "SELECT * FROM "))
            continue
        following = tokens[at + length + 1].token_type if at + length + 1 < len(tokens) else None
        if following not in (None, TokenType.R_PAREN):
            raise Invalid(
                f"DESCRIBE ends after the table's name: for an earlier schema write FROM table_columns('{name}', 42)"
            )
        parts.append((token.start, end, _select("table_columns", name)))
    if not parts:
        return None
    for start, end, new in sorted(parts, reverse=True):
        sql = sql[:start] + new + sql[end:]
    return sql


def functions(tokens: Sequence[Token]) -> Iterator[SystemRef]:
    """The calls of the lake's functions in FROM, by their tokens."""
    for at, token in enumerate(tokens[:-1]):
        name = token.text.lower()
        if name not in SYSTEM_FUNCTIONS or tokens[at + 1].token_type != TokenType.L_PAREN:
            continue
        if at and tokens[at - 1].token_type not in _BEFORE_SOURCE:
            continue
        arguments, last = _arguments(tokens, at + 2, name)
        fewest, most = SYSTEM_FUNCTIONS[name]
        if not fewest <= len(arguments) <= most:
            raise Invalid(f"{name} is called with {len(arguments)} arguments: write {_SYNTAX[name]}", subject=name)
        following = tokens[last + 1].token_type if last + 1 < len(tokens) else None
        aliased = following in (TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER)
        yield SystemRef(name, arguments, token.start, tokens[last].end + 1, aliased)


def only_arguments(tokens: Sequence[Token], refs: Sequence[SystemRef]) -> frozenset[str]:
    """The names of the parameters that occur within the references, and nowhere else."""
    inside, outside = set[str](), set[str]()
    for token, after in itertools.pairwise(tokens):
        if token.token_type == TokenType.PARAMETER:
            within = any(ref.start <= token.start < ref.end for ref in refs)
            (inside if within else outside).add(after.text)
    return frozenset(inside - outside)


def _arguments(tokens: Sequence[Token], at: int, name: str) -> tuple[tuple[Any, ...], int]:
    """The arguments, and the number of the token that closes the bracket."""
    values: list[Any] = []
    while at < len(tokens):
        if tokens[at].token_type == TokenType.R_PAREN and not values:
            return (), at
        value, used = _argument(tokens[at : at + 2], name)
        values.append(value)
        at += used
        if at < len(tokens) and tokens[at].token_type == TokenType.R_PAREN:
            return tuple(values), at
        if at >= len(tokens) or tokens[at].token_type != TokenType.COMMA:
            break
        at += 1
    raise Invalid(f"the arguments of {name}(…) are literals or parameters: write {_SYNTAX[name]}", subject=name)


def _argument(tokens: Sequence[Token], name: str) -> tuple[Any, int]:
    if tokens:
        token, word = tokens[0], tokens[0].text.upper()
        if token.token_type == TokenType.STRING:
            return token.text, 1
        if token.token_type == TokenType.NUMBER and token.text.isdigit():
            return int(token.text), 1
        if token.token_type == TokenType.NULL:
            return None, 1
        if token.token_type == TokenType.PARAMETER and len(tokens) > 1:
            return Parameter(tokens[1].text), 2
        if word in ("TIMESTAMP", "TIMESTAMPTZ", "DATE") and len(tokens) > 1:
            return tokens[1].text, 2
    raise Invalid(f"the arguments of {name}(…) are literals or parameters: write {_SYNTAX[name]}", subject=name)


def _show(tokens: Sequence[Token]) -> str:
    words = [token.text.upper() for token in tokens]
    if not words:
        raise Invalid(f"there is nothing to show: {_SHOW_SYNTAX}")
    if words[0] in ("TABLES", "ALL") and (words[0] == "TABLES" or words[1:2] == ["TABLES"]):
        return _show_tables(tokens[1 if words[0] == "TABLES" else 2 :])
    kinds = {"COLUMNS": "table_columns", "SNAPSHOTS": "snapshots", "CHANGES": "changes"}
    if words[0] not in kinds or words[1:2] not in (["FROM"], ["IN"]) or len(tokens) < 3:
        raise Invalid(f"SHOW {' '.join(words[:2])} is not known: {_SHOW_SYNTAX}")
    name, length = _name(tokens[2:])
    rest = tokens[2 + length :]
    positions: list[str] = []
    for word in ("SINCE", "UNTIL") if words[0] == "CHANGES" else ():
        if rest and rest[0].text.upper() == word:
            value, used = _argument(rest[1:3], "changes")
            positions.append(_literal(value))
            rest = rest[1 + used :]
        else:
            positions.append("NULL")
    if rest:
        raise Invalid(f"SHOW {words[0]} has too much at {rest[0].text!r}: {_SHOW_SYNTAX}")
    return _select(kinds[words[0]], name, *positions)


def _show_tables(tokens: Sequence[Token]) -> str:
    conditions, rest = [], list(tokens)
    if len(rest) > 1 and rest[0].text.upper() in ("FROM", "IN"):
        conditions.append(f"table_schema = {_literal(rest[1].text.lower())}")
        rest = rest[2:]
    if len(rest) > 1 and rest[0].token_type == TokenType.LIKE and rest[1].token_type == TokenType.STRING:
        conditions.append(f"table_name LIKE {_literal(rest[1].text)}")
        rest = rest[2:]
    if rest:
        raise Invalid(f"SHOW TABLES has too much at {rest[0].text!r}: {_SHOW_SYNTAX}")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (
        "SELECT table_schema AS database, table_name AS name FROM information_schema.tables"  # noqa: S608
        f"{where} ORDER BY database, name"
    )


def _name(tokens: Sequence[Token]) -> tuple[str, int]:
    """The table's name at the start of the tokens, `table` or `database.table`, and how many tokens it takes."""
    if len(tokens) > 2 and tokens[1].token_type == TokenType.DOT:
        return f"{_folded(tokens[0])}.{_folded(tokens[2])}", 3
    return _folded(tokens[0]), 1


def _folded(token: Token) -> str:
    return token.text if token.token_type == TokenType.IDENTIFIER else token.text.lower()


def _is_plain_word(token: Token) -> bool:
    """A word that is a name here, though sqlglot has a token of its own for it, as `events` or `format`."""
    starts = (TokenType.SELECT, TokenType.FROM, TokenType.WITH, TokenType.VALUES, TokenType.TABLE)
    return token.text.isidentifier() and token.token_type not in (*starts, TokenType.STRING)


def _select(function: str, table: str, *arguments: str) -> str:
    return f"SELECT * FROM {function}({', '.join([_literal(table), *arguments])})"  # noqa: S608


def _literal(value: Any) -> str:
    if value is None or isinstance(value, int):
        return "NULL" if value is None else str(value)
    if isinstance(value, Parameter):
        return f"${value.name}"
    return "'" + str(value).replace("'", "''") + "'"
