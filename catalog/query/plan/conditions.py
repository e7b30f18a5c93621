"""Conditions of a SELECT as predicates on one table's columns, which statistics can decide (see `predicates`).

A condition without such a form costs reads and never changes a result. Constants are evaluated by DuckDB and compared
as DuckDB compares them with the column's type; where that is not exact, the condition is left out or widened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from catalog.query.plan.predicates import And, Compare, In, Null, Or, Predicate, Prefix, conjunction
from catalog.query.plan.syntax import Node, Select, Source
from catalog.query.run.engine import Session

_OPERATORS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "!=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_CONSTANT_FUNCTIONS = frozenset(
    {
        "+", "-", "*", "trunc", "to_days", "to_months", "to_years", "to_weeks", "to_hours", "to_minutes", "to_seconds",
        "to_quarters", "make_date", "date_trunc", "abs", "lower", "upper",
    }
)  # fmt: skip
_EXACT_FLOAT = 1 << 53
_EXACT_REAL = 1 << 24
_DAY_US = 86_400 * 10**6
_MAX_DIGITS = 30
Converted = tuple[Predicate | None, bool]
"""A predicate, and whether it says everything that the condition does."""
_NOTHING: Converted = (None, False)


@dataclass(frozen=True)
class ConditionReader:
    """Reads conditions on one source of a SELECT. `changed`: columns that it sees masked."""

    session: Session
    parameters: Mapping[str, Any]
    select: Select
    source: Source
    fields: Mapping[str, NestedField]
    changed: frozenset[str]
    columns_of: Callable[[str], set[str] | None]
    """The columns of another relation, in lower case; None where they are not known."""

    def predicate(self) -> Converted:
        """The predicate that every row must satisfy that the SELECT uses."""
        conditions = (*self.select.conditions, *self.select.pushed)
        converted = [self._convert(condition) for condition in conditions]
        parts = [part for part, _ in converted if part is not None]
        exact = not self.select.pushed and all(exact for _, exact in converted)
        return conjunction(_flatten(parts, And)), exact

    def _convert(self, node: Node) -> Converted:
        kind, type_ = node.get("class"), str(node.get("type"))
        if kind == "CONJUNCTION":
            return self._conjunction(node)
        if kind == "COMPARISON":
            return self._comparison(_OPERATORS.get(type_), node["left"], node["right"])
        if kind == "BETWEEN":
            parts = [
                self._comparison(">=", node["input"], node["lower"]),
                self._comparison("<=", node["input"], node["upper"]),
            ]
            return conjunction([part for part, _ in parts if part is not None]), all(exact for _, exact in parts)
        if kind == "OPERATOR":
            return self._operator(type_, node["children"])
        if kind == "FUNCTION" and node.get("function_name") == "~~":
            return self._like([argument["expression"] for argument in node["arguments"]])
        if kind == "COLUMN_REF":
            return self._boolean(node, True)
        return _NOTHING

    def _conjunction(self, node: Node) -> Converted:
        sides = [self._convert(child) for child in node["children"]]
        parts = [part for part, _ in sides if part is not None]
        exact = all(side_exact for _, side_exact in sides)
        if node["type"] == "CONJUNCTION_AND":
            return conjunction(_flatten(parts, And)), exact
        return (Or(tuple(_flatten(parts, Or))), exact) if len(parts) == len(sides) else _NOTHING

    def _comparison(self, op: str | None, left: Node, right: Node) -> Converted:
        if op is None:
            return _NOTHING
        field = self._column(left)
        if field is None:
            field, right, op = self._column(right), left, _MIRRORED[op]
        return _NOTHING if field is None else self._compare(field, op, right)

    def _compare(self, field: NestedField, op: str, constant: Node) -> Converted:
        value = self._constant(constant, field.field_type)
        return _NOTHING if value is None else compared(field, op, value)

    def _operator(self, type_: str, children: list[Node]) -> Converted:
        if type_ in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            field, negated = self._column(children[0]), type_ == "OPERATOR_IS_NOT_NULL"
            if field is None or not (negated or self.source.required):
                return _NOTHING
            return Null(field.name, negated), True
        if type_ == "OPERATOR_NOT":
            return self._boolean(children[0], False)
        if type_ == "COMPARE_IN":
            field = self._column(children[0])
            if field is None:
                return _NOTHING
            values = [self._constant(child, field.field_type) for child in children[1:]]
            parts = [_NOTHING if value is None else compared(field, "=", value) for value in values]
            if any(not isinstance(part, Compare) or part.op != "=" for part, _ in parts):
                return _NOTHING
            return In(field.name, tuple(part.value for part, _ in parts if isinstance(part, Compare))), True
        return _NOTHING

    def _like(self, arguments: list[Node]) -> Converted:
        field, pattern = self._column(arguments[0]), arguments[1]
        if field is None or not isinstance(field.field_type, StringType):
            return _NOTHING
        value = self._constant(pattern, field.field_type)
        text = value.as_py() if value is not None and pa.types.is_string(value.type) else ""
        prefix = text[: min((at for at in map(text.find, "%_\\") if at >= 0), default=len(text))]
        return (Prefix(field.name, prefix), False) if prefix else _NOTHING

    def _boolean(self, node: Node, value: bool) -> Converted:
        field = self._column(node)
        if field is None or not isinstance(field.field_type, BooleanType):
            return _NOTHING
        return Compare(field.name, "=", pa.scalar(value)), True

    def _column(self, node: Node) -> NestedField | None:
        """The source's column that the node names; None for anything else, and where the name is not certain."""
        if node.get("class") != "COLUMN_REF" or not self.source.filterable or self.source.renamed:
            return None
        names = [str(name).lower() for name in node["column_names"]]
        others = [source for source in self.select.sources if source is not self.source]
        if len(names) == 2:
            certain = names[0] == self.source.alias and all(other.alias != names[0] for other in others)
        else:
            certain = len(names) == 1 and names[0] not in self.select.aliases and names[0] != self.source.alias
            certain = certain and not any(self._may_have(other, names[0]) for other in others)
        if not certain:
            return None
        field = self.fields.get(names[-1])
        return field if field is not None and field.name not in self.changed else None

    def _may_have(self, source: Source, column: str) -> bool:
        columns = self.columns_of(source.relation) if source.relation is not None and not source.renamed else None
        return columns is None or column in columns or source.alias == column

    def _constant(self, node: Node, type_: IcebergType) -> Any:
        """The constant's value, an Arrow scalar; text as the column's type, as DuckDB compares it. None if unknown."""
        if not _is_constant(node):
            return None
        cast_to = None
        if node.get("class") == "CONSTANT" and node["literal"]["kind"] == "STRING":
            cast_to = _TEXT_CASTS.get(type(type_))
            if cast_to is None:
                return None
        return self.session.value(node, self.parameters, cast_to)


_TEXT_CASTS: dict[type[IcebergType], str] = {
    StringType: "VARCHAR",
    DateType: "DATE",
    TimestampType: "TIMESTAMP",
    TimestamptzType: "TIMESTAMPTZ",
}


def _is_constant(node: Node) -> bool:
    kind = node.get("class")
    if kind in ("CONSTANT", "PARAMETER"):
        return True
    if kind == "CAST":
        return _is_constant(node["child"])
    if kind == "FUNCTION" and str(node["function_name"]).lower() in _CONSTANT_FUNCTIONS:
        return all(_is_constant(argument["expression"]) for argument in node["arguments"])
    return False


def compared(field: NestedField, op: str, value: Any) -> Converted:
    """`column op value` with the value in the column's own terms. Nothing where DuckDB would convert the column."""
    type_, kind = field.field_type, value.type
    if isinstance(type_, StringType):
        return (Compare(field.name, op, value), True) if pa.types.is_string(kind) else _NOTHING
    if isinstance(type_, BooleanType):
        return (Compare(field.name, op, value), True) if pa.types.is_boolean(kind) else _NOTHING
    if isinstance(type_, DateType):
        return _compared_date(field.name, op, value)
    if isinstance(type_, TimestampType | TimestamptzType):
        if pa.types.is_date(kind):
            value = pa.scalar(value.cast(pa.date32()).value * _DAY_US, pa.timestamp("us"))
        elif (
            not pa.types.is_timestamp(kind)
            or kind.unit != "us"
            or (isinstance(type_, TimestampType) and kind.tz is not None)
        ):
            return _NOTHING
        return Compare(field.name, op, value), True
    number = value.as_py()
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal) or number != number:
        return _NOTHING
    if isinstance(type_, IntegerType | LongType | DecimalType):
        return _compared_exactly(field, op, number)
    if isinstance(type_, FloatType | DoubleType):
        return _compared_float(field.name, op, number, isinstance(type_, FloatType))
    return _NOTHING


def _compared_exactly(field: NestedField, op: str, number: int | float | Decimal) -> Converted:
    """Whole numbers and decimals are compared with each other exactly, with a double as doubles."""
    if isinstance(number, float):
        if isinstance(field.field_type, DecimalType) or not math.isfinite(number) or abs(number) >= _EXACT_FLOAT:
            return _NOTHING
        return Compare(field.name, op, pa.scalar(number)), True
    if isinstance(number, Decimal):
        if not number.is_finite() or len(number.as_tuple().digits) > _MAX_DIGITS:
            return _NOTHING
        number = int(number) if number == number.to_integral_value() else number
    if isinstance(number, int) and abs(number) >= 1 << 63:
        return _NOTHING
    return Compare(field.name, op, pa.scalar(number)), True


def _compared_float(column: str, op: str, number: int | float | Decimal, real: bool) -> Converted:
    """A constant that is not a double of the column's own width is rounded by the engine: both neighbours are kept."""
    if isinstance(number, Decimal) and not number.is_finite():
        return _NOTHING
    whole = number == int(number) if math.isfinite(number) else False
    if whole and abs(float(number)) < (_EXACT_REAL if real else _EXACT_FLOAT):
        return Compare(column, op, pa.scalar(float(number))), True
    if isinstance(number, float) and not real:
        return Compare(column, op, pa.scalar(number)), True
    if op == "!=" or not math.isfinite(float(number)):
        return _NOTHING
    dtype = np.float32 if real else np.float64
    middle = dtype(float(number))
    low, high = (float(np.nextafter(middle, dtype(side))) for side in (-np.inf, np.inf))
    if not (math.isfinite(low) and math.isfinite(high)):
        return _NOTHING
    if op == "=":
        return And((Compare(column, ">=", pa.scalar(low)), Compare(column, "<=", pa.scalar(high)))), False
    return Compare(column, op + ("" if op.endswith("=") else "="), pa.scalar(high if op[0] == "<" else low)), False


def _compared_date(column: str, op: str, value: Any) -> Converted:
    """A date is the first moment of its day where it is compared with a time."""
    if pa.types.is_date(value.type):
        return Compare(column, op, value.cast(pa.date32())), True
    if not pa.types.is_timestamp(value.type) or value.type.unit != "us" or value.type.tz is not None:
        return _NOTHING
    days, rest = divmod(value.value, _DAY_US)
    try:
        day = pa.scalar(days, pa.int32()).cast(pa.date32())
    except pa.ArrowException:
        return _NOTHING
    if rest == 0:
        return Compare(column, op, day), True
    if op in ("=", "!="):
        return _NOTHING
    return Compare(column, "<=" if op[0] == "<" else ">", day), True


def _flatten(parts: list[Predicate], kind: type[And] | type[Or]) -> list[Predicate]:
    return [inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))]
