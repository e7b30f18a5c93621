"""Rewrites text functions that mean something else in Spark."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from catalog.query.spark.nodes import (
    DECIMALS,
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


def check_text(node: exp.Expr) -> None:
    """NotEquivalent for values that Spark formats differently as text: floats and times."""
    kind = kind_of(node)
    if kind in {*FLOATS, *TIMES} or kind == KIND.UNKNOWN:
        raise NotEquivalent(
            f"text from {type_name(node)} is formatted differently in Spark ({node.sql('postgres')[:60]})"
        )
    if kind in DECIMALS and node.find(exp.Div, exp.Avg) is not None:
        raise NotEquivalent(
            f"{node.sql('postgres')[:60]} divides decimals, which gives more digits in Spark: cast it to double"
        )


def substring(node: exp.Substring) -> None:
    """In DataFusion a position below 1 is before the text; Spark would count it from the end."""
    start, length = node.args.get("start"), node.args.get("length")
    if length is not None and integer_literal(length) is None:
        length = _checked_length(length)
        node.set("length", length)
    if start is None or (integer_literal(start) or 0) >= 1:
        return
    position = exp.cast(start.copy(), "int")
    node.set(
        "start",
        exp.Case().when(exp.LT(this=position.copy(), expression=literal_one()), literal_one()).else_(position.copy()),
    )
    if length is not None:
        size = exp.Add(this=exp.cast(length.copy(), "int"), expression=_length_before(position))
        less = exp.LT(this=size.copy(), expression=exp.Literal.number(0))
        node.set("length", exp.Case().when(less, exp.Literal.number(0)).else_(size))


def _checked_length(length: exp.Expr) -> exp.Expr:
    """The length as an integer. A negative length is an error in DataFusion, but not in Spark."""
    if isinstance(length, exp.Neg) and integer_literal(length.this) is not None:
        raise NotEquivalent("substring has a negative length")
    checked = exp.cast(length.copy(), "int")
    less = exp.LT(this=checked.copy(), expression=exp.Literal.number(0))
    error = exp.Anonymous(this="raise_error", expressions=[exp.Literal.string("substring has a negative length")])
    return exp.Case().when(less, exp.cast(error, "int")).else_(checked)


def replace(node: exp.Replace) -> None:
    """NotEquivalent for an empty search text: DataFusion finds it everywhere, Spark nowhere."""
    search = node.expression
    if not (isinstance(search, exp.Literal) and search.is_string and search.this):
        raise NotEquivalent("the text that replace() searches for must be a literal and not empty")


def _length_before(at: exp.Expr) -> exp.Expr:
    """How much of a length is before the text, as zero or a negative number."""
    before = exp.Paren(this=exp.Sub(this=at.copy(), expression=literal_one()))
    return exp.Case().when(exp.LT(this=at.copy(), expression=literal_one()), before).else_(exp.Literal.number(0))


def left_or_right(node: exp.Left | exp.Right) -> None:
    """In DataFusion `left(s, -2)` is all but the last two characters."""
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
