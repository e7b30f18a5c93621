"""Filters of deletes and scans, with the semantics of WHERE in SQL.

Iceberg's semantics differ: NULL differs from every value, NaN is not greater than any, and a literal is rounded to the
column's type. So `name != 'x'` would delete rows without a name, and `id = 2.5` those with the id 2.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThan,
    GreaterThanOrEqual,
    IsNaN,
    LiteralPredicate,
    NotNaN,
    NotNull,
    Or,
    Reference,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import DecimalLiteral, Literal, TimestampLiteral
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, rewrite_not, visit
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType

from catalog.core.errors import Invalid

_DAY_US = 86_400_000_000
_NUMBERS = (IntegerType, LongType, DecimalType, FloatType)


def sql_filter(where: str | BooleanExpression, schema: Schema, table: str) -> BooleanExpression:
    """An Iceberg expression that is true for the rows WHERE selects. Invalid if it cannot be parsed, or if a literal is
    not a value of its column's type."""
    try:
        expression = where if isinstance(where, BooleanExpression) else parse(where)
    except Exception as error:  # pyparsing has its own hierarchy of errors
        raise Invalid(f"{table}: cannot parse the filter {where!r}: {error}", subject=table) from None
    return visit(rewrite_not(expression), _SqlSemantics(schema, table))


class _SqlSemantics(BooleanExpressionVisitor[BooleanExpression]):
    """Comparisons with NULL are not true; NaN is greater than every number and equal to itself."""

    def __init__(self, schema: Schema, table: str) -> None:
        self._schema, self._table = schema, table

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        term = predicate.term
        if not isinstance(term, Reference):
            return predicate
        try:
            kind = self._schema.find_field(term.name).field_type
        except ValueError:
            columns = ", ".join(self._schema.column_names)
            raise Invalid(
                f"{self._table}: there is no column {term.name!r} for the filter; it has {columns}",
                subject=self._table,
            ) from None
        if not isinstance(predicate, LiteralPredicate | SetPredicate | NotNaN):
            return predicate
        comparison = And(self._exact(predicate, term.name, kind), NotNull(term=term))
        greater = isinstance(predicate, GreaterThan | GreaterThanOrEqual) and isinstance(kind, FloatType | DoubleType)
        return Or(comparison, IsNaN(term=term)) if greater else comparison

    def _exact(self, predicate: Any, column: str, kind: IcebergType) -> BooleanExpression:
        """The predicate with literals of the column's type; Invalid if one would have to be rounded."""
        if isinstance(predicate, LiteralPredicate):
            (literal,) = self._literals([predicate.literal], column, kind)
            return type(predicate)(predicate.term, literal)
        if isinstance(predicate, SetPredicate):
            exact: Any = set(self._literals(predicate.literals, column, kind))
            return type(predicate)(predicate.term, exact)
        assert isinstance(predicate, NotNaN)
        return predicate

    def _literals(self, literals: Iterable[Literal[Any]], column: str, kind: IcebergType) -> list[Literal[Any]]:
        for literal in literals:
            if not _is_exact(kind, literal):
                raise Invalid(
                    f"{self._table}: the filter compares {column}, a {kind}, with {_as_text(literal)}, which is not a "
                    f"{kind}: write {_nearest(kind, literal)}",
                    subject=self._table,
                )
        return [_scaled(kind, literal) for literal in literals]

    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        raise AssertionError("rewrite_not removes every NOT")

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_bound_predicate(self, predicate: Any) -> BooleanExpression:
        raise Invalid(
            f"{self._table}: the filter is bound to a schema: name columns instead",
            subject=self._table,
        )


def _is_exact(kind: IcebergType, literal: Literal[Any]) -> bool:
    """Whether the literal is a value of the type without rounding."""
    if isinstance(literal, TimestampLiteral) and isinstance(kind, DateType):
        return literal.value % _DAY_US == 0
    number = _number(literal)
    if number is None or not isinstance(kind, _NUMBERS):
        return True
    if isinstance(kind, DecimalType):
        return number == round(number, kind.scale)
    if isinstance(kind, FloatType):
        return not number.is_finite() or Decimal(_float(number)) == number
    return number == number.to_integral_value()


def _number(literal: Literal[Any]) -> Decimal | None:
    """The number as it was written: the double 0.1 is 0.1, not the nearest binary fraction."""
    if isinstance(literal.value, bool) or not isinstance(literal.value, int | float | Decimal | str):
        return None
    try:
        return Decimal(str(literal.value))
    except InvalidOperation:
        return None


def _float(number: Decimal) -> float:
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:  # beyond every float, so the comparison has one result and nothing is rounded
        return float(number)
    return float(nearest)


def _scaled(kind: IcebergType, literal: Literal[Any]) -> Literal[Any]:
    """A decimal with the column's scale: pyiceberg does not accept 1.5 for a decimal(10, 2)."""
    number = _number(literal) if isinstance(kind, DecimalType) else None
    if number is None or not isinstance(kind, DecimalType):
        return literal
    return DecimalLiteral(number.quantize(Decimal(1).scaleb(-kind.scale)))


def _as_text(literal: Literal[Any]) -> str:
    return repr(literal) if isinstance(literal, TimestampLiteral) else str(literal.value)


def _nearest(kind: IcebergType, literal: Literal[Any]) -> str:
    number = _number(literal)
    if number is None or isinstance(kind, DateType):
        return "a date"
    if isinstance(kind, DecimalType):
        return f"{round(number, kind.scale)}, or another number with {kind.scale} digits after the point"
    if isinstance(kind, FloatType):
        return f"{Decimal(_float(number))}, the float nearest to it"
    return f"{math.floor(number)} or {math.ceil(number)}"
