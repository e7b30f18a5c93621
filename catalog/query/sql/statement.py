"""Parses a statement: one SELECT, the tables it references, and the point in time of each AS OF clause.

The text is never regenerated from the syntax tree: the engine gets what the user wrote, except for the spans that are
replaced, such as AS OF clauses. So the engine's own parser decides what the dialect allows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import Invalid
from catalog.core.point_in_time import Moment, PointInTime, parse_point_in_time, parse_time
from catalog.query.sql.dialect import DIALECT
from catalog.query.sql.limits import check_bytes, check_tokens, check_tree, refuse_recursion
from catalog.query.sql.search_operators import SearchOperator, folded, operators
from catalog.query.sql.system_refs import (
    INFORMATION_SCHEMA,
    INFORMATION_TABLES,
    SYSTEM_FUNCTIONS,
    SystemRef,
    functions,
    only_arguments,
    rewrite,
)

# sqlglot logs a warning for a statement that it does not know; here that is an error with its own message.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_MAX_CACHED_LENGTH = 8 * 1024

# Functions in FROM that make rows from their arguments alone; any other could read data that was not granted.
_ROW_SOURCES = frozenset({"generate_series", "range", "unnest", "json_each", "json_tree"})
# Their results depend on more than the snapshots: queries with them are never cached.
_VOLATILE = frozenset(
    {
        "age", "ago", "current_date", "current_localtime", "current_localtimestamp", "current_time",
        "current_timestamp", "gen_random_uuid", "get_current_time", "get_current_timestamp", "localtime",
        "localtimestamp", "now", "pg_conf_load_time", "pg_postmaster_start_time", "random", "sample", "tablesample",
        "today", "transaction_timestamp", "uuid", "uuidv4", "uuidv7",
    }
)  # fmt: skip
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:(?P<kind>ROUTE|ANALYZE)\s+)?", re.IGNORECASE)
_TIME_WORDS = frozenset({"SYSTEM_TIME", "TIMESTAMP"})
_VERSION_WORDS = _TIME_WORDS | {"SYSTEM_VERSION", "VERSION"}
_ZONE = re.compile(r"([Zz]|[+-][0-9]{2}:[0-9]{2})$")


class ExplainKind(StrEnum):
    """What an EXPLAIN shows: where the query would run; also the engine's plan; or what happened when it ran."""

    ROUTE = "route"
    PLAN = "plan"
    ANALYZE = "analyze"


@dataclass(frozen=True, slots=True)
class TableRef:
    """One reference to a table. `start`:`end` is the span of its name in the text, without alias and AS OF clause."""

    database: str | None
    table: str
    start: int
    end: int
    aliased: bool
    as_of: PointInTime | None = None

    @property
    def written(self) -> str:
        return f"{self.database}.{self.table}" if self.database else self.table


@dataclass(frozen=True)
class Statement:
    """`text` is the query with its AS OF clauses replaced by spaces; `tree` is its sqlglot syntax tree."""

    text: str
    tree: exp.Expr
    refs: tuple[TableRef, ...]
    normalised: str
    volatile: bool
    explain: ExplainKind | None = None
    searches: tuple[SearchOperator, ...] = ()
    qualifiers: tuple[tuple[int, int, str], ...] = ()
    """The spans of `database.` in `database.table.column`, to be removed: the engine's tables have no database."""
    system: tuple[SystemRef, ...] = ()
    """The references to rows of the lake itself, such as `history('t')`."""
    arguments: frozenset[str] = frozenset()
    """The parameters that only such references name: the engine does not get them."""


def parse(sql: str) -> Statement:
    """Parses one query, an EXPLAIN of one, or a statement that shows the lake. Invalid, with line and
    column, for anything else.

    Caches short texts: a query with parameters is often sent again.
    """
    return _cached_parse(sql) if len(sql) <= _MAX_CACHED_LENGTH else _parse(sql)


def _parse(sql: str) -> Statement:
    check_bytes(sql)
    explain = _EXPLAIN.match(sql)
    if explain:
        sql = " " * explain.end() + sql[explain.end() :]  # spaces, so that positions stay those of the whole text
    tokens = _tokens(sql)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        sql = sql[: tokens[-1].start]
        tokens = tokens[:-1]
    if not tokens:
        raise Invalid("the query is empty: write a SELECT")
    check_tokens(tokens)
    written = sql
    if (rewritten := rewrite(sql, tokens)) is not None:
        sql = rewritten
        tokens = _tokens(sql)
    versions, text = _blank_versions(tokens, sql)
    tree = _parse_query(text)
    named = sorted(_refs(tree, versions), key=lambda ref: ref.start)
    refs = tuple(ref for ref in named if ref.database != INFORMATION_SCHEMA)
    system = (*_calls(tokens, tree), *map(_information_schema, (ref for ref in named if ref not in refs)))
    unused = versions.keys() - {ref.end for ref in named}
    if unused:
        raise Invalid(
            f"AS OF at {_position(written, min(unused))} does not follow a table name: write FROM <table> AS OF …"
        )
    normalised = " ".join(_normalised(token) for token in tokens)
    volatile = any(token.text.lower() in _VOLATILE for token in tokens if token.token_type != TokenType.STRING)
    searches = operators(tokens, tree)
    qualifiers = tuple(_qualifiers(tree, named))
    kind = None if explain is None else ExplainKind((explain["kind"] or "plan").lower())
    return Statement(
        text,
        tree,
        refs,
        normalised,
        volatile or bool(system),
        kind,
        searches,
        qualifiers,
        system,
        only_arguments(tokens, system),
    )


_cached_parse = lru_cache(maxsize=256)(_parse)


def splice(text: str, parts: Sequence[tuple[int, int, str]]) -> str:
    """The text with each span replaced. Spans must not overlap."""
    for start, end, new in sorted(parts, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _tokens(sql: str) -> list[Token]:
    try:
        return list(sqlglot.tokenize(sql, read=DIALECT))
    except TokenError as error:
        raise Invalid(f"the query cannot be parsed: {_first_line(error)}") from None


def _parse_query(text: str) -> exp.Expr:
    try:
        with refuse_recursion():
            parsed = [tree for tree in sqlglot.parse(text, read=DIALECT) if tree is not None]
    except ParseError as error:
        raise Invalid(f"the query cannot be parsed: {_describe(error)}") from None
    if len(parsed) != 1:
        raise Invalid(f"there are {len(parsed)} statements: send one at a time")
    (tree,) = parsed
    described = isinstance(tree, exp.Describe) and isinstance(tree.this, exp.Query)
    if not described and not isinstance(tree, exp.Query | exp.Values | exp.Summarize | exp.Pivot):
        word = text.split(maxsplit=1)[0].upper()
        name = word if word.isalpha() else "this"
        raise Invalid(f"{name} is not a query: write a SELECT; queries only read")
    check_tree(tree)
    for node in tree.walk():
        if isinstance(node, exp.DML | exp.DDL) and not isinstance(node, exp.Query):
            raise Invalid(f"{node.key.upper()} is not allowed in a query: queries only read")
        if isinstance(node, exp.Into | exp.Lock):
            raise Invalid("a query cannot write or lock: remove INTO or FOR UPDATE")
        if isinstance(node, exp.Command):
            raise Invalid(f"{node.name} is not a query: write a SELECT")
    return tree


def _refs(tree: exp.Expr, versions: dict[int, PointInTime]) -> Iterator[TableRef]:
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            name = _function_name(node.this)
            if name.lower() not in _ROW_SOURCES and name.lower() not in SYSTEM_FUNCTIONS:
                raise Invalid(
                    f"{name}(…) is not allowed in FROM: only tables of the lake can be read, not files",
                    subject=name,
                )
            continue
        if node.catalog:
            raise Invalid(f"{node.sql(DIALECT)} has too many parts: write <database>.<table>")
        if not node.db and node.name in _ctes_around(node):
            continue
        database = node.args.get("db")
        first = database if isinstance(database, exp.Identifier) else node.this
        start, end = first.meta["start"], node.this.meta["end"] + 1
        yield TableRef(
            folded(database) if isinstance(database, exp.Identifier) else None,
            folded(node.this),
            start,
            end,
            bool(node.alias),
            versions.get(end),
        )


def _calls(tokens: Sequence[Token], tree: exp.Expr) -> list[SystemRef]:
    """The calls of the lake's functions. Invalid if one is not an item of FROM: sqlglot decides which are."""
    calls = list(functions(tokens))
    sources = [node for node in tree.find_all(exp.Table) if not isinstance(node.this, exp.Identifier)]
    names = sorted(name for node in sources if (name := _function_name(node.this).lower()) in SYSTEM_FUNCTIONS)
    if sorted(call.name for call in calls) != names:
        raise Invalid(f"{', '.join(SYSTEM_FUNCTIONS)} are functions of FROM alone: call them there, and nowhere else")
    return calls


def _information_schema(ref: TableRef) -> SystemRef:
    if ref.table not in INFORMATION_TABLES:
        raise Invalid(
            f"there is no table {ref.written}: {INFORMATION_SCHEMA} has {' and '.join(sorted(INFORMATION_TABLES))}",
            subject=ref.written,
        )
    if ref.as_of is not None:
        raise Invalid(f"{ref.written} shows the lake as it is now: leave AS OF out")
    return SystemRef(ref.written, (), ref.start, ref.end, ref.aliased)


def _qualifiers(tree: exp.Expr, refs: Sequence[TableRef]) -> Iterator[tuple[int, int, str]]:
    named = {(ref.database, ref.table) for ref in refs if ref.database is not None}
    for column in tree.find_all(exp.Column):
        database, table = column.args.get("db"), column.args.get("table")
        if not isinstance(database, exp.Identifier) or not isinstance(table, exp.Identifier):
            continue
        if (folded(database), folded(table)) in named and column.args.get("catalog") is None:
            yield database.meta["start"], table.meta["start"], ""


def _ctes_around(node: exp.Expr) -> set[str]:
    """The names of the common table expressions visible at this node: itself, its siblings and its ancestors'."""
    names: set[str] = set()
    ancestor: Any = node
    while ancestor is not None:
        with_ = ancestor.args.get("with_") or ancestor.args.get("with")
        if with_ is not None:
            names |= {cte.alias for cte in with_.expressions}
        ancestor = ancestor.parent
    return names


def _function_name(node: Any) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this)
    if isinstance(node, exp.ExplodingGenerateSeries | exp.GenerateSeries):
        return "generate_series"
    return str(node.sql_name()) if isinstance(node, exp.Func) else type(node).__name__


def _blank_versions(tokens: list[Token], sql: str) -> tuple[dict[int, PointInTime], str]:
    """The AS OF clauses' points in time, by the end of the table name before each; and the text without the clauses."""
    versions: dict[int, PointInTime] = {}
    blanked: list[tuple[int, int, str]] = []
    at = 1
    while at < len(tokens) - 2:
        length = _clause_length(tokens[at : at + 4])
        if length is None or not _is_name(tokens[at - 1]):
            at += 1
            continue
        only_times = bool(_TIME_WORDS & set(_words(tokens[at : at + length])))
        value, used = _point_in_time(tokens[at + length : at + length + 2], sql, only_times)
        start, end = tokens[at].start, tokens[at + length + used - 1].end + 1
        versions[tokens[at - 1].end + 1] = value
        blanked.append((start, end, " " * (end - start)))
        at += length + used
    return versions, splice(sql, blanked)


def _clause_length(tokens: Sequence[Token]) -> int | None:
    """The number of tokens of FOR SYSTEM_TIME AS OF, VERSION AS OF, TIMESTAMP AS OF or AS OF; None without such."""
    words = _words(tokens[:4])
    if len(words) == 4 and words[0] == "FOR" and words[1] in _VERSION_WORDS and words[2:] == ["AS", "OF"]:
        return 4
    if words[:1] and words[0] in _VERSION_WORDS and words[1:3] == ["AS", "OF"]:
        return 3
    # `AS of` may also be an alias: it is a clause only if a value follows.
    plain = words[:2] == ["AS", "OF"] and len(tokens) > 2
    return 2 if plain and tokens[2].token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.TIMESTAMP) else None


def _point_in_time(tokens: Sequence[Token], sql: str, only_times: bool) -> tuple[PointInTime, int]:
    """The point in time at the start of the tokens, and how many tokens it takes."""
    typed = bool(tokens) and tokens[0].text.upper() in ("TIMESTAMP", "TIMESTAMPTZ", "DATE")
    value = tokens[int(typed)] if len(tokens) > int(typed) else None
    position = _position(sql, tokens[0].start) if tokens else "the end"
    number = value is not None and value.token_type == TokenType.NUMBER and not typed
    if value is None or not (number or value.token_type == TokenType.STRING):
        raise Invalid(
            f"AS OF at {position} needs a point in time: write 42, TIMESTAMP '2026-03-01 12:00:00Z', 'name' or "
            "'snapshot:<id>'"
        )
    try:
        point = Moment(_parse_literal(value.text)) if typed else parse_point_in_time(value.text)
    except Invalid as error:
        raise Invalid(
            f"AS OF at {position}: {error.message}; quote everything but an index, for example 'snapshot:<id>'"
        ) from None
    if only_times and not isinstance(point, Moment):
        raise Invalid(
            f"AS OF at {position}: {value.text} is not a time: for an index or a snapshot write VERSION AS OF"
        )
    return point, 1 + int(typed)


def _parse_literal(text: str) -> datetime:
    """The time of a typed literal, TIMESTAMP '…'. Without a zone it is UTC, as everywhere in a query."""
    return parse_time(text if _ZONE.search(text) or len(text) <= len("2026-03-01") else f"{text}Z")


def _is_name(token: Token) -> bool:
    return token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) or token.text.isidentifier()


def _words(tokens: Sequence[Token]) -> list[str]:
    return [token.text.upper() for token in tokens if token.token_type != TokenType.STRING]


def _normalised(token: Token) -> str:
    if token.token_type == TokenType.STRING:
        return "'" + token.text.replace("'", "''") + "'"
    if token.token_type == TokenType.IDENTIFIER:
        return '"' + token.text.replace('"', '""') + '"'
    return token.text.lower()


def _describe(error: ParseError) -> str:
    details = error.errors[0] if error.errors else {}
    excerpt = (
        f"{details.get('start_context', '')[-30:]}»{details.get('highlight', '')}«{details.get('end_context', '')[:30]}"
    )
    position = f"line {details.get('line')}, column {details.get('col')}" if details else "an unknown position"
    return f"{details.get('description', _first_line(error))} at {position}: {' '.join(excerpt.split())}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _position(sql: str, offset: int) -> str:
    before = sql[:offset]
    return f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"
