"""A query as its text says it: one SELECT, the tables it names, and the version of each that it asks for.

The text is taken apart, never rewritten through a generator: what reaches the engine is what the user wrote, but for
the names of tables read at a version of their own. So the engine's parser has the last word on the dialect.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from catalog.errors import Invalid
from catalog.query.search_operators import Operator, operators

# What it does not know it takes for a command, and says so on stderr; here that is an error with a message of its own.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

DIALECT = "postgres"
MAX_BYTES = 256 * 1024
MAX_DEPTH = 200
_REMEMBERED_LENGTH = 8 * 1024

AsOf = int | str | datetime
"""A timeline index or a snapshot id, a name, or a time."""

# Functions in FROM that make rows from their arguments alone; every other one could read what was not granted.
_ROW_SOURCES = frozenset({"generate_series", "range", "unnest"})
# Their answer depends on more than the snapshots: never taken from the cache.
_VOLATILE = frozenset(
    {"now", "random", "uuid", "current_date", "current_time", "current_timestamp", "today", "localtimestamp"}
)
_EXPLAIN_ROUTE = re.compile(r"\s*EXPLAIN\s+ROUTE\s+", re.IGNORECASE)
_SYSTEM = frozenset({"SYSTEM_TIME", "TIMESTAMP", "SYSTEM_VERSION", "VERSION"})


@dataclass(frozen=True, slots=True)
class TableRef:
    """One mention of a table. `start`:`end` is its name in the text, without alias and version."""

    database: str | None
    table: str
    start: int
    end: int
    aliased: bool
    as_of: AsOf | None = None

    @property
    def written(self) -> str:
        return f"{self.database}.{self.table}" if self.database else self.table


@dataclass(frozen=True)
class Statement:
    """`text` is the query without its AS OF clauses, each blanked out in place; `tree` is what sqlglot made of it."""

    text: str
    tree: exp.Query
    refs: tuple[TableRef, ...]
    normalised: str
    volatile: bool
    recursive: bool
    explain: bool = False
    searches: tuple[Operator, ...] = ()


def parse(sql: str) -> Statement:
    """Reads one query, or `EXPLAIN ROUTE` of one. Invalid, with line and column, when it is anything else.

    A text that was read before, as one with parameters is again and again, is not read anew.
    """
    return _remembered(sql) if len(sql) <= _REMEMBERED_LENGTH else _parse(sql)


def _parse(sql: str) -> Statement:
    if len(sql.encode()) > MAX_BYTES:
        raise Invalid(f"the query has more than {MAX_BYTES} bytes: put the data into a table and join it")
    asked = _EXPLAIN_ROUTE.match(sql)
    if asked:
        sql = " " * asked.end() + sql[asked.end() :]  # in place, so that positions stay those of the whole text
    tokens = _tokens(sql)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        sql = sql[: tokens[-1].start]
        tokens = tokens[:-1]
    if not tokens:
        raise Invalid("the query is empty: write a SELECT")
    _check_depth(tokens)
    versions, text = _take_versions(tokens, sql)
    tree = _one_query(text)
    refs = tuple(sorted(_refs(tree, versions), key=lambda ref: ref.start))
    unused = versions.keys() - {ref.end for ref in refs}
    if unused:
        raise Invalid(f"AS OF at {_place(sql, min(unused))} does not follow the name of a table")
    normalised = " ".join(_normal(token) for token in tokens)
    volatile = any(token.text.lower() in _VOLATILE for token in tokens if token.token_type != TokenType.STRING)
    recursive = any(node.args.get("recursive") for node in tree.find_all(exp.With))
    searches = operators(tokens, tree)
    return Statement(text, tree, refs, normalised, volatile, recursive, asked is not None, searches)


_remembered = lru_cache(maxsize=256)(_parse)


def as_of_text(text: str) -> AsOf:
    """What a person writes after `--as-of`: an index, a time in ISO 8601 (UTC unless it says so), or a name."""
    if text.isdecimal():
        return int(text)
    return _time(text) or text


def splice(text: str, parts: Sequence[tuple[int, int, str]]) -> str:
    """The text with each span replaced; spans do not overlap."""
    for start, end, new in sorted(parts, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _tokens(sql: str) -> list[Token]:
    try:
        return list(sqlglot.tokenize(sql, read=DIALECT))
    except TokenError as error:
        raise Invalid(f"the query cannot be read: {_first_line(error)}") from None


def _one_query(text: str) -> exp.Query:
    try:
        parsed = [tree for tree in sqlglot.parse(text, read=DIALECT) if tree is not None]
    except ParseError as error:
        raise Invalid(f"the query cannot be read: {_explain(error)}") from None
    except RecursionError:
        raise Invalid("the query is nested too deep: break it up with WITH") from None
    if len(parsed) != 1:
        raise Invalid(f"there are {len(parsed)} statements: send one at a time")
    (tree,) = parsed
    if not isinstance(tree, exp.Query):
        word = text.split(maxsplit=1)[0].upper()
        said = word if word.isalpha() else "this"
        raise Invalid(f"{said} is not a query: only SELECT is run here, and nothing is changed by it")
    for node in tree.walk():
        if isinstance(node, exp.DML | exp.DDL) and not isinstance(node, exp.Query):
            raise Invalid(f"{node.key.upper()} cannot stand in a query: nothing is changed by one")
        if isinstance(node, exp.Into | exp.Lock):
            raise Invalid("a query cannot write or lock: take INTO or FOR UPDATE away")
        if isinstance(node, exp.Command):
            raise Invalid(f"{node.name} is not a query: only SELECT is run here")
    return tree


def _refs(tree: exp.Query, versions: dict[int, AsOf]) -> Iterator[TableRef]:
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            name = _function_name(node.this)
            if name.lower() not in _ROW_SOURCES:
                raise Invalid(
                    f"{name}(…) cannot stand in FROM: files are not read by name, only tables of the lake are",
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
            _folded(database) if isinstance(database, exp.Identifier) else None,
            _folded(node.this),
            start,
            end,
            bool(node.alias),
            versions.get(end),
        )


def _ctes_around(node: exp.Expr) -> set[str]:
    """The names WITH gives at this place. A common table may be meant by itself and by all beside and below it."""
    names: set[str] = set()
    around: Any = node
    while around is not None:
        found = around.args.get("with_") or around.args.get("with")
        if found is not None:
            names |= {cte.alias for cte in found.expressions}
        around = around.parent
    return names


def _folded(name: exp.Identifier) -> str:
    return str(name.this) if name.quoted else str(name.this).lower()


def _function_name(node: Any) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this)
    if isinstance(node, exp.ExplodingGenerateSeries | exp.GenerateSeries):
        return "generate_series"
    return str(node.sql_name()) if isinstance(node, exp.Func) else type(node).__name__


def _take_versions(tokens: list[Token], sql: str) -> tuple[dict[int, AsOf], str]:
    """AS OF clauses: by the end of the name each follows, and the text with all of them blanked out."""
    versions: dict[int, AsOf] = {}
    blanked: list[tuple[int, int, str]] = []
    at = 1
    while at < len(tokens) - 2:
        length = _clause(tokens[at:])
        if length is None or not _is_name(tokens[at - 1]):
            at += 1
            continue
        value, used = _version(tokens[at + length :], sql)
        start, end = tokens[at].start, tokens[at + length + used - 1].end + 1
        versions[tokens[at - 1].end + 1] = value
        blanked.append((start, end, " " * (end - start)))
        at += length + used
    return versions, splice(sql, blanked)


def _clause(tokens: Sequence[Token]) -> int | None:
    """How many tokens introduce a version: FOR SYSTEM_TIME AS OF, VERSION AS OF, TIMESTAMP AS OF, AS OF."""
    words = _words(tokens[:4])
    if len(words) == 4 and words[0] == "FOR" and words[1] in _SYSTEM and words[2:] == ["AS", "OF"]:
        return 4
    if words[:1] and words[0] in _SYSTEM and words[1:3] == ["AS", "OF"]:
        return 3
    # `AS of` may also be an alias: a version follows only if a value does.
    plain = words[:2] == ["AS", "OF"] and len(tokens) > 2
    return 2 if plain and tokens[2].token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.TIMESTAMP) else None


def _version(tokens: Sequence[Token], sql: str) -> tuple[AsOf, int]:
    typed = bool(tokens) and tokens[0].text.upper() in ("TIMESTAMP", "TIMESTAMPTZ", "DATE")
    value = tokens[int(typed)] if len(tokens) > int(typed) else None
    if value is not None and value.token_type == TokenType.NUMBER and value.text.isdecimal() and not typed:
        return int(value.text), 1
    if value is not None and value.token_type == TokenType.STRING:
        time = _time(value.text)
        if typed and time is None:
            raise Invalid(f"{value.text!r} is not a time: write TIMESTAMP '2026-03-01 12:00:00'")
        return time or value.text, 1 + int(typed)
    place = _place(sql, tokens[0].start) if tokens else "the end"
    raise Invalid(f"AS OF what, at {place}: a TIMESTAMP '…', a number or a 'name'")


def _time(text: str) -> datetime | None:
    if not re.match(r"^\d{4}-\d{2}-\d{2}", text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _is_name(token: Token) -> bool:
    return token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) or token.text.isidentifier()


def _words(tokens: Sequence[Token]) -> list[str]:
    return [token.text.upper() for token in tokens if token.token_type != TokenType.STRING]


def _normal(token: Token) -> str:
    if token.token_type == TokenType.STRING:
        return "'" + token.text.replace("'", "''") + "'"
    if token.token_type == TokenType.IDENTIFIER:
        return '"' + token.text.replace('"', '""') + '"'
    return token.text.lower()


def _check_depth(tokens: Sequence[Token]) -> None:
    """A parser that descends would run out of stack long before this says anything of the query."""
    depth = 0
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth > MAX_DEPTH:
            raise Invalid(f"the query is nested more than {MAX_DEPTH} deep: break it up with WITH")


def _explain(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    near = f"{first.get('start_context', '')[-30:]}»{first.get('highlight', '')}«{first.get('end_context', '')[:30]}"
    place = f"line {first.get('line')}, column {first.get('col')}" if first else "somewhere"
    return f"{first.get('description', _first_line(error))} at {place}: {' '.join(near.split())}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _place(sql: str, offset: int) -> str:
    before = sql[:offset]
    return f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"
