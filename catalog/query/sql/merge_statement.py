"""Parses MERGE INTO: target, source, condition, and what happens to rows that match and to rows that do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import Invalid
from catalog.query.sql.statement_tokens import alias_at, assignments, closing_bracket, split_at, table_at, text_of
from catalog.query.sql.statement_tokens import top_level as outside_brackets

USAGE = "write MERGE INTO <database>.<table> USING <source> ON <condition> WHEN [NOT] MATCHED [AND …] THEN …"
MAX_CLAUSES = 20
_RANDOM = frozenset({"gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})


class Matched(Enum):
    """Which rows a WHEN clause is about."""

    BOTH = "WHEN MATCHED"
    TARGET_MISSING = "WHEN NOT MATCHED"
    SOURCE_MISSING = "WHEN NOT MATCHED BY SOURCE"


@dataclass(frozen=True)
class MergeClause:
    """`action`: UPDATE, DELETE, INSERT or NOTHING. `values`: the text of each new value, in the order of `columns`;
    `columns` is None for all of the table's."""

    matched: Matched
    condition: str | None
    action: str
    columns: tuple[str, ...] | None = ()
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merge:
    table: str
    alias: str
    source: str
    source_alias: str
    condition: str
    clauses: tuple[MergeClause, ...] = field(default_factory=tuple)
    word: str = "MERGE"


def parse_merge(sql: str, tokens: Sequence[Token]) -> Merge:
    if len(tokens) < 6 or tokens[1].text.upper() != "INTO":
        raise Invalid(USAGE)
    table, at = table_at(tokens, 2)
    alias, at = alias_at(tokens, at, table)
    rest = tokens[at:]
    whens = [number for number in _outside(rest) if rest[number].text.upper() == "WHEN"]
    ons = [number for number in _outside(rest) if rest[number].token_type == TokenType.ON]
    if not rest or rest[0].text.upper() != "USING" or not whens or not ons or not 1 < ons[0] < whens[0] - 1:
        raise Invalid(USAGE)
    source = rest[1 : ons[0]]
    if len(ons) > 1:
        raise Invalid("the source of MERGE is one table or one subquery: put a join into a subquery, USING (SELECT …)")
    if len(whens) > MAX_CLAUSES:
        raise Invalid(f"MERGE has more than {MAX_CLAUSES} WHEN clauses")
    ends = [*whens[1:], len(rest)]
    clauses = tuple(_clause(sql, rest[start:end]) for start, end in zip(whens, ends, strict=True))
    _check_reachable(clauses)
    source_alias = _source_alias(source)
    if source_alias.lower() == alias.lower():
        raise Invalid(f"target and source are both called {alias}: write MERGE INTO {table} AS target USING …")
    condition = _condition(sql, rest[ons[0] + 1 : whens[0]])
    return Merge(table, alias, text_of(sql, source), source_alias, condition, clauses)


def _check_reachable(clauses: Sequence[MergeClause]) -> None:
    for number, clause in enumerate(clauses):
        if any(earlier.matched is clause.matched and earlier.condition is None for earlier in clauses[:number]):
            raise Invalid(f"an earlier {clause.matched.value} has no condition, so this one gets no row: leave it out")


def _outside(tokens: Sequence[Token]) -> Iterator[int]:
    """The numbers of the tokens outside brackets and CASE … END."""
    cases = 0
    for number in outside_brackets(tokens):
        kind = tokens[number].token_type
        if kind == TokenType.END and cases:
            cases -= 1
        elif kind == TokenType.CASE:
            cases += 1
        elif not cases and kind not in (TokenType.STRING, TokenType.IDENTIFIER):
            yield number


def _source_alias(tokens: Sequence[Token]) -> str:
    """The name of the source in conditions and values: its alias, or the table's own name."""
    end = len(tokens)
    if tokens[-1].token_type == TokenType.R_PAREN:  # (…) AS s(a, b): the list of columns
        opening = next(number for number in range(end) if _closes_last(tokens, number))
        end = opening if opening else end
    word = tokens[end - 1]
    if word.token_type in (TokenType.R_PAREN, TokenType.STRING):
        raise Invalid("the source of MERGE needs a name: write USING (SELECT …) AS source")
    return word.text


def _closes_last(tokens: Sequence[Token], number: int) -> bool:
    return tokens[number].token_type == TokenType.L_PAREN and closing_bracket(tokens, number) == len(tokens) - 1


def _clause(sql: str, tokens: Sequence[Token]) -> MergeClause:
    then = next((number for number in _outside(tokens) if tokens[number].text.upper() == "THEN"), None)
    if then is None or then == len(tokens) - 1:
        raise Invalid(f"{text_of(sql, tokens)[:60]!r} has no THEN: {USAGE}")
    words = [token.text.upper() for token in tokens[1:then]]
    matched, at = _matched(words)
    condition = None
    if len(words) > at:
        if words[at] != "AND" or len(words) == at + 1:
            raise Invalid(f"{text_of(sql, tokens[: then + 1])!r} is not understood: write {matched.value} [AND …] THEN")
        condition = _condition(sql, tokens[at + 2 : then])
    return _action(sql, tokens[then + 1 :], matched, condition)


def _condition(sql: str, tokens: Sequence[Token]) -> str:
    """A condition decides several columns of one query, so it must have one value for a row."""
    for token in tokens:
        if token.text.lower() in _RANDOM and token.token_type != TokenType.STRING:
            raise Invalid(f"{token.text} gives another value each time: leave it out of the conditions of MERGE")
    return text_of(sql, tokens)


def _matched(words: Sequence[str]) -> tuple[Matched, int]:
    for start, matched in (
        (["NOT", "MATCHED", "BY", "SOURCE"], Matched.SOURCE_MISSING),
        (["NOT", "MATCHED", "BY", "TARGET"], Matched.TARGET_MISSING),
        (["NOT", "MATCHED"], Matched.TARGET_MISSING),
        (["MATCHED"], Matched.BOTH),
    ):
        if list(words[: len(start)]) == start:
            return matched, len(start)
    raise Invalid("WHEN is followed by MATCHED, NOT MATCHED or NOT MATCHED BY SOURCE")


def _action(sql: str, tokens: Sequence[Token], matched: Matched, condition: str | None) -> MergeClause:
    words = [token.text.upper() for token in tokens]
    inserts = matched is Matched.TARGET_MISSING
    if words == ["DO", "NOTHING"]:
        return MergeClause(matched, condition, "NOTHING")
    if words == ["DELETE"] and not inserts:
        return MergeClause(matched, condition, "DELETE")
    if words[:2] == ["UPDATE", "SET"] and len(tokens) > 2 and not inserts:
        values = assignments(text_of(sql, tokens[2:]))
        return MergeClause(matched, condition, "UPDATE", tuple(values), tuple(values.values()))
    if words[0] == "INSERT" and inserts:
        return _insert(sql, tokens, condition)
    allowed = "INSERT [(columns)] VALUES (…)" if inserts else "UPDATE SET column = value, … or DELETE"
    raise Invalid(f"after {matched.value} … THEN comes {allowed}, or DO NOTHING")


def _insert(sql: str, tokens: Sequence[Token], condition: str | None) -> MergeClause:
    columns: tuple[str, ...] | None = None
    at = 1
    if len(tokens) > at and tokens[at].token_type == TokenType.L_PAREN:
        end = closing_bracket(tokens, at)
        parts = split_at(tokens[at + 1 : end], TokenType.COMMA)
        if not parts or any(len(part) != 1 for part in parts):
            raise Invalid("the columns after INSERT are names, separated by commas")
        columns, at = tuple(part[0].text for part in parts), end + 1
    if len(tokens) < at + 3 or tokens[at].text.upper() != "VALUES" or tokens[at + 1].token_type != TokenType.L_PAREN:
        raise Invalid("MERGE inserts one row for each row of the source: write INSERT [(columns)] VALUES (value, …)")
    if closing_bracket(tokens, at + 1) != len(tokens) - 1:
        raise Invalid("nothing follows the VALUES (…) of a MERGE's INSERT but the next WHEN")
    values = tuple(text_of(sql, part) for part in split_at(tokens[at + 2 : -1], TokenType.COMMA))
    return MergeClause(Matched.TARGET_MISSING, condition, "INSERT", columns, values)
