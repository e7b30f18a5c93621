"""What a query asks of one table's rows, in a form that statistics can answer: which files and row groups may hold
such rows, and which hold nothing else.

Only what is certain is said. A condition that has no such form is left out of an AND and spoils an OR; the engine
applies every condition itself, so leaving one out costs reading, never an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask: TypeAlias = npt.NDArray[np.bool_]

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_ARROW = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True)
class Compare:
    column: str
    op: str
    value: Any  # a pyarrow scalar, never null


@dataclass(frozen=True)
class In:
    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Null:
    column: str
    negated: bool = False


@dataclass(frozen=True)
class Prefix:
    column: str
    text: str


@dataclass(frozen=True)
class Both:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Either:
    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Compare | In | Null | Prefix | Both | Either


@dataclass(frozen=True)
class Bounds:
    """One column over many files (or row groups). `lower` and `upper` hold comparable values where `known`.

    `exact`: the bounds are values of the column, not cut short. `nulls` and `nans` are -1 where not known;
    `nans` is None for a type that has none.
    """

    lower: npt.NDArray[Any]
    upper: npt.NDArray[Any]
    known: Mask
    nulls: npt.NDArray[np.int64]
    nans: npt.NDArray[np.int64] | None
    rows: npt.NDArray[np.int64]
    exact: Mask


@dataclass
class Verdict:
    """`may`: some row may satisfy the predicate. `every`: all rows do."""

    may: Mask
    every: Mask
    columns: set[str] = field(default_factory=set)


def conjunction(parts: list[Predicate]) -> Predicate | None:
    return Both(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def columns_of(predicate: Predicate) -> set[str]:
    if isinstance(predicate, Both | Either):
        return set().union(*(columns_of(part) for part in predicate.parts))
    return {predicate.column}


def from_expression(expression: Any) -> tuple[Predicate | None, bool]:
    """A DataFusion expression as a predicate, and whether that is all it says."""
    try:
        node = expression.to_variant()
    except ValueError:  # a function, say: it has no form here
        return None, False
    maker = _MAKERS.get(type(node).__name__)
    return maker(node) if maker else (None, False)


def _binary(node: Any) -> tuple[Predicate | None, bool]:
    op = node.op()
    if op in ("AND", "OR"):
        found = [from_expression(side) for side in (node.left(), node.right())]
        parts = [part for part, _ in found if part is not None]
        exact = all(said for _, said in found)
        if op == "AND":
            return conjunction(_flat(parts, Both)), exact
        return (Either(tuple(_flat(parts, Either))), exact) if len(parts) == 2 else (None, False)
    if op not in _FLIPPED:
        return None, False
    left, right = node.left(), node.right()
    column, value = _column(left), _literal(right)
    if column is None or value is None:
        column, value, op = _column(right), _literal(left), _FLIPPED[op]
    if column is None or value is None:
        return None, False
    return Compare(column, op, value), True


def _flat(parts: list[Predicate], kind: type[Both] | type[Either]) -> list[Predicate]:
    return [inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))]


def _in_list(node: Any) -> tuple[Predicate | None, bool]:
    column, values = _column(node.expr()), [_literal(item) for item in node.list()]
    if node.negated() or column is None or any(value is None for value in values):
        return None, False
    return In(column, tuple(values)), True


def _null(negated: bool) -> Callable[[Any], tuple[Predicate | None, bool]]:
    def make(node: Any) -> tuple[Predicate | None, bool]:
        column = _column(node.expr())
        return (None, False) if column is None else (Null(column, negated), True)

    return make


def _like(node: Any) -> tuple[Predicate | None, bool]:
    column, pattern = _column(node.expr()), _literal(node.pattern())
    if node.negated() or column is None or pattern is None or node.escape_char() is not None:
        return None, False
    text = str(pattern.as_py())
    fixed = text[: min((at for at in map(text.find, "%_\\") if at >= 0), default=len(text))]
    return (Prefix(column, fixed), False) if fixed else (None, False)


def _bare(value: bool) -> Callable[[Any], tuple[Predicate | None, bool]]:
    def make(node: Any) -> tuple[Predicate | None, bool]:
        column = node.name() if value else _column(node.expr())
        return (None, False) if column is None else (Compare(column, "=", pa.scalar(value)), True)

    return make


_MAKERS: dict[str, Callable[[Any], tuple[Predicate | None, bool]]] = {
    "BinaryExpr": _binary,
    "InList": _in_list,
    "IsNull": _null(False),
    "IsNotNull": _null(True),
    "Like": _like,
    "Column": _bare(True),
    "Not": _bare(False),
}


def _column(expression: Any) -> str | None:
    try:
        node = expression.to_variant()
    except ValueError:
        return None
    return str(node.name()) if type(node).__name__ == "Column" else None


def _literal(expression: Any) -> Any:
    try:
        if type(expression.to_variant()).__name__ != "Literal":
            return None
        value = expression.python_value()
    except (ValueError, TypeError, NotImplementedError):
        return None
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    return scalar if scalar.is_valid else None


def comparable(scalar: Any) -> Any:
    """A value as bounds have it: days, microseconds, UTF-8 bytes, or the number itself; None if it has no such form."""
    kind = scalar.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_date(kind):
        if pa.types.is_date(kind):
            return scalar.cast(pa.date32()).value
        units = {"s": 10**6, "ms": 10**3, "us": 1}
        return scalar.value * units[kind.unit] if kind.unit in units else None
    value = scalar.as_py()
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, date | datetime | time) or not isinstance(value, bool | int | float | Decimal | bytes):
        return None
    return None if value != value else value


def evaluate(predicate: Predicate, bounds_of: Callable[[str], Bounds | None], count: int) -> Verdict:
    """The verdict on each of `count` files. A column without bounds decides nothing."""
    if isinstance(predicate, Both | Either):
        found = [evaluate(part, bounds_of, count) for part in predicate.parts]
        fold: Any = np.logical_and.reduce if isinstance(predicate, Both) else np.logical_or.reduce
        return Verdict(fold([v.may for v in found]), fold([v.every for v in found]))
    bounds = bounds_of(predicate.column)
    if bounds is None:
        return Verdict(np.ones(count, bool), np.zeros(count, bool))
    if isinstance(predicate, Null):
        none, all_ = bounds.nulls == 0, (bounds.nulls >= bounds.rows) & (bounds.nulls >= 0)
        return Verdict(~all_, none) if predicate.negated else Verdict(~none, all_)
    verdict = _among(predicate, bounds, count)
    verdict.may &= ~((bounds.nulls >= bounds.rows) & (bounds.nulls >= 0))  # all NULL: no comparison is true
    verdict.every &= bounds.nulls == 0
    return verdict


def _among(predicate: Compare | In | Prefix, bounds: Bounds, count: int) -> Verdict:
    """By the bounds alone. NaN lies outside of them and is greater than every number, as in ORDER BY."""
    may, every = np.ones(count, bool), np.zeros(count, bool)
    known, low, high = bounds.known, bounds.lower[bounds.known], bounds.upper[bounds.known]
    without_nan = np.ones(count, bool) if bounds.nans is None else bounds.nans == 0
    if isinstance(predicate, Prefix):
        text = predicate.text.encode()
        may[known] = [lo[: len(text)] <= text <= hi[: len(text)] for lo, hi in zip(low, high, strict=True)]
        return Verdict(may, every)
    if isinstance(predicate, In):
        values = sorted(value for value in map(comparable, predicate.values) if value is not None)
        if len(values) == len(predicate.values) and values:
            may[known] = _any_between(values, low, high)
        return Verdict(may, every)
    value, op = comparable(predicate.value), predicate.op
    if value is None or not known.any():
        return Verdict(may, every)
    if op == "!=":
        outside = (low > value) | (high < value)
        may[known] = ~(low == high) | outside | ~bounds.exact[known]
        may |= ~without_nan
        every[known] = outside
    else:
        may[known], every[known] = _ordered(op, low, high, value, bounds.exact[known])
        if op in (">", ">="):
            may |= ~without_nan
        else:
            every &= without_nan
    return Verdict(may, every)


def _ordered(op: str, low: Any, high: Any, value: Any, exact: Mask) -> tuple[Any, Any]:
    if op == "=":
        return (low <= value) & (high >= value), (low == value) & (high == value) & exact
    if op == "<":
        return low < value, high < value
    if op == "<=":
        return low <= value, high <= value
    return (high > value, low > value) if op == ">" else (high >= value, low >= value)


def _any_between(values: list[Any], low: Any, high: Any) -> Any:
    if low.dtype == object or not isinstance(values[0], int | float):
        return [any(lo <= value <= hi for value in values) for lo, hi in zip(low, high, strict=True)]
    ordered = np.array(values)
    first = np.searchsorted(ordered, low, side="left")
    inside = first < len(ordered)
    inside[inside] = ordered[first[inside]] <= high[inside]
    return inside


def row_mask(predicate: Predicate, rows: pa.RecordBatch) -> Any:
    """Which rows may satisfy the predicate: true for every one that the engine would keep. None if that says nothing.

    Of a column of words and codes the words are judged, and not the rows.
    """
    if isinstance(predicate, Both | Either):
        found = [row_mask(part, rows) for part in predicate.parts]
        known = [part for part in found if part is not None]
        if isinstance(predicate, Both):
            return reduce(pc.and_kleene, known) if known else None
        return reduce(pc.or_kleene, known) if len(known) == len(found) else None
    column: Any = rows.column(predicate.column)
    if isinstance(predicate, Null):
        return column.is_valid() if predicate.negated else column.is_null()
    if not pa.types.is_dictionary(column.type):
        return _judged(predicate, column)
    words = _judged(predicate, column.dictionary)
    return None if words is None else words.take(column.indices)


def _judged(predicate: Compare | In | Prefix, values: Any) -> Any:
    kind = values.type
    if isinstance(predicate, Prefix):
        return pc.starts_with(values, predicate.text) if pa.types.is_string(kind) else None
    # Arrow and the engine disagree on NaN, and the engine compares decimals in a fraction of the time.
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return None
    try:
        if isinstance(predicate, In):
            return pc.is_in(values, value_set=pa.array([value.as_py() for value in predicate.values], kind))
        return _ARROW[predicate.op](values, predicate.value.cast(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
