"""Rewrites text functions that mean something else in Spark."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from catalog.query.spark.nodes import (
    FLOATS,
    KIND,
    TIMES,
    NotEquivalent,
    integer_literal,
    kind_of,
    literal_one,
    operands,
    type_name,
    with_type,
)
from catalog.query.spark.patterns import java_pattern
from catalog.query.sql.dialect import DIALECT


def check_text(node: exp.Expr) -> None:
    """NotEquivalent for values that Spark formats differently as text: floats and times."""
    kind = kind_of(node)
    if kind in {*FLOATS, *TIMES} or kind == KIND.UNKNOWN:
        raise NotEquivalent(f"text from {type_name(node)} is formatted differently in Spark ({node.sql(DIALECT)[:60]})")


def substring(node: exp.Substring) -> None:
    """A position from 1 means the same. In DuckDB 0 is before the text, and a negative length counts backwards."""
    start, length = node.args.get("start"), node.args.get("length")
    if length is not None and integer_literal(length) is None:
        node.set("length", _checked(length, exp.Literal.number(0), "substring has a negative length"))
    if start is not None and (integer_literal(start) or 0) < 1:
        if integer_literal(start) is not None or isinstance(start, exp.Neg):
            raise NotEquivalent("substring from a position below 1 is not known to mean the same in Spark")
        node.set("start", _checked(start, literal_one(), "substring begins before the text"))


def _checked(number: exp.Expr, least: exp.Expr, message: str) -> exp.Expr:
    """The number as an integer; Spark raises the error where it is less than `least`."""
    if isinstance(number, exp.Neg) and integer_literal(number.this) is not None:
        raise NotEquivalent(message)
    checked = exp.cast(number.copy(), "int")
    error = exp.Anonymous(this="raise_error", expressions=[exp.Literal.string(f"{message}: not known in Spark")])
    less = exp.LT(this=checked.copy(), expression=least)
    return exp.Case().when(less, exp.cast(error, "int")).else_(checked)


def replace(node: exp.Replace) -> None:
    """NotEquivalent unless the search text is a literal and not empty."""
    search = node.expression
    if not (isinstance(search, exp.Literal) and search.is_string and search.this):
        raise NotEquivalent("the text that replace() searches for must be a literal and not empty")


def left_or_right(node: exp.Left | exp.Right) -> None:
    """In DuckDB `left(s, -2)` is all but the last two characters."""
    count = node.expression
    if (integer_literal(count) or -1) >= 0:
        return
    length = exp.cast(count.copy(), "int")
    remaining = exp.Add(this=exp.Length(this=node.this.copy()), expression=length.copy())
    node.set(
        "expression",
        exp.Case().when(exp.LT(this=length.copy(), expression=exp.Literal.number(0)), remaining).else_(length),
    )


def regexp_like(node: exp.RegexpLike) -> None:
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string) or node.args.get("flag") is not None:
        raise NotEquivalent("a regular expression must be a literal in Spark")
    node.set("expression", exp.Literal.string(java_pattern(pattern.this)))


def concatenate(node: exp.Expr) -> None:
    for part in (*operands(node), *node.expressions):
        if isinstance(part, exp.Expr):
            check_text(part)


def trim(node: exp.Trim) -> None:
    if node.expression is None or isinstance(node.expression, exp.Literal):
        return
    raise NotEquivalent("the characters to trim must be a literal in Spark")


def like(node: exp.Like | exp.StartsWith) -> None:
    """Keeps a LIKE that is not a conjunct of WHERE, such as NOT LIKE, from Iceberg's planner: see `not_planned_by`."""
    ancestor = node.parent
    while isinstance(ancestor, exp.And | exp.Paren):
        ancestor = ancestor.parent
    if isinstance(node.this, exp.Column) and not isinstance(ancestor, exp.Where):
        node.set("this", not_planned_by(node.this))


def not_planned_by(column: Any) -> Any:
    """The column's text as an expression, which is not pushed down to Iceberg: its planner fails on NULL partitions."""
    return with_type(exp.Paren(this=exp.DPipe(this=column.copy(), expression=exp.Literal.string(""))), "text")
