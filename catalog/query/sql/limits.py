"""The limits of a statement's text and tree, checked before the engine sees it.

A planner that recurses over an expression of 20,000 terms ends its process, and a parser that tries each of two ways at
every level needs years for forty levels. So size is bounded before parsing, and depth before planning. Each error names
its limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import Invalid

MAX_BYTES = 256 * 1024
MAX_TOKENS = 50_000
MAX_NESTING = 40
"""Brackets and CASE … END within one another. sqlglot's parser ends at a similar depth."""
MAX_TYPED_NESTING = 8
"""Brackets after a type name or a subscript, as in array[…], int(…) and a[1][2], within one another: sqlglot tries
such brackets as a type first, and then as a value, so its time doubles with each level."""
MAX_TYPED_WORK = 4096
"""The sum of 2**level over all such brackets: about a second of parsing."""
MAX_TREE_DEPTH = 250
MAX_CONDITIONS = 1000
MAX_SELECTS = 200
MAX_JOINS = 100
MAX_COLUMNS = 2000
MAX_CUBE = 12
"""CUBE over n expressions makes 2**n groups of every row."""
MAX_PARAMETERS = 1000

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_TYPES = frozenset(Parser.TYPE_TOKENS) | {TokenType.UNION}  # `UNION(…)` is a type in some dialects, and tried as one


def check_bytes(sql: str) -> None:
    try:
        size = len(sql.encode())
    except UnicodeEncodeError as error:
        raise Invalid(f"the query has no valid Unicode text at character {error.start}: remove it") from None
    if size > MAX_BYTES:
        raise Invalid(f"the query has more than {MAX_BYTES} bytes: put the data into a table and join it")


def check_tokens(tokens: Sequence[Token]) -> None:
    """Invalid for a text that is too long, or nested too deep to be parsed. Linear in the tokens."""
    if len(tokens) > MAX_TOKENS:
        raise Invalid(
            f"the query has {len(tokens)} words and signs, over the limit of {MAX_TOKENS}: put the data into a table "
            "and join it"
        )
    open_brackets: list[int] = []  # of each: how often sqlglot tries what is in it as a part of a type
    cases = typed = work = 0
    for at, token in enumerate(tokens):
        kind, before = token.token_type, tokens[at - 1].token_type if at else None
        if kind in _OPENING:
            if subscripts := before == TokenType.R_BRACKET and kind == TokenType.L_BRACKET and bool(open_brackets):
                open_brackets[-1] += 1  # a[1][2]: the second subscript is parsed as if within the first
            else:
                open_brackets.append(int(before in _TYPES))
            if subscripts or open_brackets[-1]:
                typed += 1
                work += 2**typed
        elif kind in _CLOSING and open_brackets:
            after = tokens[at + 1].token_type if at + 1 < len(tokens) else None
            if not (kind == TokenType.R_BRACKET and after == TokenType.L_BRACKET):
                typed -= open_brackets.pop()
        elif kind == TokenType.CASE:
            cases += 1
        elif kind == TokenType.END and cases:
            cases -= 1
        if len(open_brackets) + cases > MAX_NESTING:
            raise Invalid(f"the query is nested more than {MAX_NESTING} deep: break it up with WITH")
        if typed > MAX_TYPED_NESTING or work > MAX_TYPED_WORK:
            raise Invalid(
                f"the query has arrays, subscripts or types nested more than {MAX_TYPED_NESTING} deep, or too many of "
                "them: write lists as […], and pass them as parameters"
            )


def check_tree(tree: exp.Expr) -> None:
    """Invalid for a tree that is too deep to be planned, or has too many parts. Linear in its nodes."""
    conditions = selects = joins = 0
    stack: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        conditions += isinstance(node, exp.Connector)
        selects += isinstance(node, exp.Select)
        joins += isinstance(node, exp.Join)
        if depth > MAX_TREE_DEPTH:
            raise Invalid(
                f"the query has an expression of more than {MAX_TREE_DEPTH} operators within one another: break it up "
                "with WITH, or write IN (…) for a list"
            )
        if isinstance(node, exp.Select) and len(node.expressions) > MAX_COLUMNS:
            raise Invalid(f"the query selects {len(node.expressions)} columns, over the limit of {MAX_COLUMNS}")
        if isinstance(node, exp.Cube) and len(node.expressions) > MAX_CUBE:
            raise Invalid(f"CUBE takes at most {MAX_CUBE} expressions: name the groups with GROUPING SETS")
        stack.extend((child, depth + _deepens(node, child)) for child in node.iter_expressions())
    for count, limit, what in (
        (conditions, MAX_CONDITIONS, "ANDs and ORs: write IN (…), or put the values into a table and join it"),
        (selects, MAX_SELECTS, "SELECTs: put the rows into a table"),
        (joins, MAX_JOINS, "joins: break it up into several queries"),
    ):
        if count > limit:
            raise Invalid(f"the query has {count} of at most {limit} {what}")


def _deepens(node: exp.Expr, child: exp.Expr) -> bool:
    """Whether the engine recurses from the node to its child. Chains of AND, of OR and of UNION are counted instead."""
    if isinstance(node, exp.Connector):
        return type(child) is not type(node)
    return not (isinstance(node, exp.SetOperation) and isinstance(child, exp.SetOperation))


def check_parameters(parameters: Mapping[str, Any] | Sequence[Any] | None) -> None:
    if parameters is not None and len(parameters) > MAX_PARAMETERS:
        raise Invalid(f"the query has {len(parameters)} parameters, over the limit of {MAX_PARAMETERS}: pass a list")


@contextmanager
def refuse_recursion() -> Iterator[None]:
    """Raises Invalid for a statement within the limits that still exhausts Python's stack."""
    try:
        yield
    except RecursionError:
        raise Invalid(
            f"the query is nested too deep: break it up with WITH; the limit is {MAX_NESTING} brackets, and fewer "
            "where each holds several operators"
        ) from None
