"""Types and constructors of syntax-tree nodes for the translation to Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

KIND = exp.DataType.Type
INTEGERS = exp.DataType.INTEGER_TYPES
FLOATS = {KIND.FLOAT, KIND.DOUBLE}
DECIMALS = {KIND.DECIMAL, KIND.BIGDECIMAL}
NUMBERS = {*INTEGERS, *FLOATS, *DECIMALS}
TEXTS = exp.DataType.TEXT_TYPES
TIMES = {KIND.TIMESTAMP, KIND.TIMESTAMPNTZ, KIND.TIMESTAMPTZ, KIND.TIMESTAMPLTZ}
UNKNOWN = {KIND.UNKNOWN, KIND.NULL}


class NotEquivalent(Exception):
    """Spark would not give the same rows, or is not known to."""


def operands(node: exp.Expr) -> list[Any]:
    """Both operands of a binary operator; empty for any other node."""
    return [node.this, node.expression] if isinstance(node, exp.Binary) else []


def kind_of(node: Any) -> Any:
    type_ = getattr(node, "type", None)
    return type_.this if isinstance(type_, exp.DataType) else KIND.UNKNOWN


def type_name(node: exp.Expr) -> str:
    return str(kind_of(node).value).lower()


def function_name(node: exp.Func) -> str:
    return f"{node.name or node.sql_name()}()".lower() if isinstance(node, exp.Anonymous) else node.sql_name().lower()


def with_type(node: Any, kind: Any) -> Any:
    node.type = kind
    return node


def wrap(node: exp.Expr, make: Callable[[Any], Any], kind: str | None = None) -> None:
    """Replaces the node by an expression made of a copy of it."""
    wrapper = make(node.copy())
    if kind is not None:
        wrapper.type = kind
    node.replace(wrapper)


def integer_literal(node: exp.Expr) -> int | None:
    """The value of a non-negative integer literal, through casts and parentheses; None for anything else."""
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal():
        return int(node.this)
    return None


def is_nonzero(node: exp.Expr) -> bool:
    """Whether it is a numeric literal other than zero."""
    while isinstance(node, exp.Cast | exp.Paren | exp.Neg):
        node = node.this
    try:
        return isinstance(node, exp.Literal) and float(node.this) != 0
    except ValueError:
        return False


def double_zero() -> exp.Expr:
    return exp.cast(exp.Literal.number(0), "double")


def literal_one() -> exp.Expr:
    return exp.Literal.number(1)


def special_double(name: str) -> exp.Expr:
    """NaN, Infinity or -Infinity."""
    return exp.cast(exp.Literal.string(name), "double")
