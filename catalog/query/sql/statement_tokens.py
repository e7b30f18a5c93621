"""The parts of a statement by its tokens: where a name, a clause or a list begins and ends."""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import Invalid
from catalog.query.sql.dialect import DIALECT

_NAME = re.compile(r"[a-z0-9_]{1,128}")
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def assignments(text: str) -> dict[str, str]:
    """`column = value, …` after SET: the text of each value by its column."""
    values: dict[str, str] = {}
    for part in split_at(list(sqlglot.tokenize(text, read=DIALECT)), TokenType.COMMA):
        if len(part) < 3 or part[1].token_type != TokenType.EQ:
            raise Invalid(f"{text_of(text, part)!r} is no assignment: write column = value")
        if part[0].text.lower() in {name.lower() for name in values}:
            raise Invalid(f"{part[0].text} is set twice: leave one out")
        values[part[0].text] = text_of(text, part[2:])
    return values


def table_at(tokens: Sequence[Token], at: int) -> tuple[str, int]:
    """The name at this token, and the number of the token after it."""
    if len(tokens) < at + 3 or tokens[at + 1].token_type != TokenType.DOT:
        raise Invalid("name the table with its database: write <database>.<table>")
    return checked_name(f"{tokens[at].text.lower()}.{tokens[at + 2].text.lower()}"), at + 3


def checked_name(name: str) -> str:
    database, _, table = name.partition(".")
    if not _NAME.fullmatch(database) or not _NAME.fullmatch(table):
        raise Invalid(f"{name!r} cannot be a table's name: use letters, digits and underscores")
    return name


def alias_at(tokens: Sequence[Token], at: int, table: str) -> tuple[str, int]:
    if at < len(tokens) and tokens[at].token_type == TokenType.ALIAS:
        at += 1
        if at >= len(tokens):
            raise Invalid("AS is followed by a name")
        return tokens[at].text, at + 1
    if at < len(tokens) and tokens[at].token_type in (TokenType.VAR, TokenType.IDENTIFIER):
        return tokens[at].text, at + 1
    return table.partition(".")[2], at


def clauses_of(sql: str, tokens: Sequence[Token], words: Sequence[str]) -> dict[str, str]:
    """The text of each clause, by its first word. Invalid if they are not in this order, or something else follows."""
    starts: list[tuple[str, int]] = []
    for number in top_level(tokens):
        word = tokens[number].text.upper()
        if tokens[number].token_type in (TokenType.STRING, TokenType.IDENTIFIER) or word not in words:
            if word == "RETURNING":
                raise Invalid("RETURNING is not supported: read the rows with SELECT")
            continue
        if word == "FROM" and number and tokens[number - 1].text.upper() == "DISTINCT":
            continue  # IS DISTINCT FROM
        starts.append((word, number))
    order = [words.index(word) for word, _ in starts]
    if (tokens and (not starts or starts[0][1] != 0)) or order != sorted(set(order)):
        raise Invalid(f"the statement has {', '.join(words)}, each at most once and in this order")
    ends = [*(number for _, number in starts[1:]), len(tokens)] if starts else []
    clauses = {}
    for (word, start), end in zip(starts, ends, strict=True):
        if end <= start + 1:
            raise Invalid(f"nothing follows {word}")
        clauses[word] = text_of(sql, tokens[start + 1 : end])
    return clauses


def top_level(tokens: Sequence[Token]) -> list[int]:
    """The numbers of the tokens outside all brackets. Invalid if brackets do not match."""
    depth, numbers = 0, []
    for number, token in enumerate(tokens):
        if token.token_type in _CLOSING:
            depth -= 1
            if depth < 0:
                break
        elif token.token_type in _OPENING:
            depth += 1
        elif depth == 0:
            numbers.append(number)
    if depth != 0:
        raise Invalid("the statement's brackets do not match")
    return numbers


def closing_bracket(tokens: Sequence[Token], at: int) -> int:
    depth = 0
    for number in range(at, len(tokens)):
        kind = tokens[number].token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth == 0:
            return number
    raise Invalid("the statement's brackets do not match")


def split_at(tokens: Sequence[Token], at: TokenType = TokenType.SEMICOLON) -> list[Sequence[Token]]:
    parts: list[Sequence[Token]] = []
    start = 0
    for number in [*(n for n in top_level(tokens) if tokens[n].token_type == at), len(tokens)]:
        if number > start:
            parts.append(tokens[start:number])
        start = number + 1
    return parts


def is_query(tokens: Sequence[Token]) -> bool:
    words = ("SELECT", "VALUES", "WITH", "FROM")
    return bool(tokens) and (
        tokens[0].text.upper() in words or (tokens[0].token_type == TokenType.L_PAREN and is_query(tokens[1:]))
    )


def text_of(sql: str, tokens: Sequence[Token]) -> str:
    return sql[tokens[0].start : tokens[-1].end + 1]
