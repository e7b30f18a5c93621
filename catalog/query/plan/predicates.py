"""Filters on one table's rows in a form that statistics can decide: which files and row groups might hold matching
rows, and which hold only matching rows.

A condition without such a form is left out of an AND, and makes an OR undecidable. The engine applies every condition
itself, so a condition that is left out costs reads and never changes a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask: TypeAlias = npt.NDArray[np.bool_]

_ARROW_COMPARISONS = {
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
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Compare | In | Null | Prefix | And | Or


@dataclass(frozen=True)
class Bounds:
    """One column's statistics by file or row group. `lower` and `upper` hold `comparable` values where `known`.

    `exact`: the bounds are values of the column, not truncated. `nulls` and `nans` are counts, -1 where not known;
    `nans` is None for a type without NaN.
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
    """By file: `might_match`, some row might match the predicate; `must_match`, all rows do."""

    might_match: Mask
    must_match: Mask


def conjunction(parts: list[Predicate]) -> Predicate | None:
    return And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def columns_of(predicate: Predicate) -> set[str]:
    if isinstance(predicate, And | Or):
        return set().union(*(columns_of(part) for part in predicate.parts))
    return {predicate.column}


def comparable(scalar: Any) -> Any:
    """A value in the form of a bound: days, microseconds, UTF-8 bytes, or the number itself; None if it has none."""
    type_ = scalar.type
    if pa.types.is_timestamp(type_) or pa.types.is_time(type_) or pa.types.is_date(type_):
        if pa.types.is_date(type_):
            return scalar.cast(pa.date32()).value
        units = {"s": 10**6, "ms": 10**3, "us": 1}
        return scalar.value * units[type_.unit] if type_.unit in units else None
    value = scalar.as_py()
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, date | datetime | time) or not isinstance(value, bool | int | float | Decimal | bytes):
        return None
    return None if value != value else value


def evaluate(predicate: Predicate, bounds_of: Callable[[str], Bounds | None], count: int) -> Verdict:
    """The verdict on each of `count` files or row groups. A column without bounds decides nothing."""
    if isinstance(predicate, And | Or):
        verdicts = [evaluate(part, bounds_of, count) for part in predicate.parts]
        fold: Any = np.logical_and.reduce if isinstance(predicate, And) else np.logical_or.reduce
        return Verdict(fold([v.might_match for v in verdicts]), fold([v.must_match for v in verdicts]))
    bounds = bounds_of(predicate.column)
    if bounds is None:
        return Verdict(np.ones(count, bool), np.zeros(count, bool))
    if isinstance(predicate, Null):
        no_nulls, all_null = bounds.nulls == 0, (bounds.nulls >= bounds.rows) & (bounds.nulls >= 0)
        return Verdict(~all_null, no_nulls) if predicate.negated else Verdict(~no_nulls, all_null)
    verdict = _by_bounds(predicate, bounds, count)
    verdict.might_match &= ~((bounds.nulls >= bounds.rows) & (bounds.nulls >= 0))  # all NULL: no comparison matches
    verdict.must_match &= bounds.nulls == 0
    return verdict


def _by_bounds(predicate: Compare | In | Prefix, bounds: Bounds, count: int) -> Verdict:
    """By the bounds alone. NaN is not within the bounds and is greater than every number, as in ORDER BY."""
    might_match, must_match = np.ones(count, bool), np.zeros(count, bool)
    known, low, high = bounds.known, bounds.lower[bounds.known], bounds.upper[bounds.known]
    without_nan = np.ones(count, bool) if bounds.nans is None else bounds.nans == 0
    if isinstance(predicate, Prefix):
        text = predicate.text.encode()
        might_match[known] = [lo[: len(text)] <= text <= hi[: len(text)] for lo, hi in zip(low, high, strict=True)]
        return Verdict(might_match, must_match)
    if isinstance(predicate, In):
        values = sorted(value for value in map(comparable, predicate.values) if value is not None)
        if len(values) == len(predicate.values) and values:
            might_match[known] = _any_between(values, low, high)
        return Verdict(might_match, must_match)
    value, op = comparable(predicate.value), predicate.op
    if value is None or not known.any():
        return Verdict(might_match, must_match)
    if op == "!=":
        outside = (low > value) | (high < value)
        might_match[known] = ~(low == high) | outside | ~bounds.exact[known]
        might_match |= ~without_nan
        must_match[known] = outside
    else:
        might_match[known], must_match[known] = _compare_bounds(op, low, high, value, bounds.exact[known])
        if op in (">", ">="):
            might_match |= ~without_nan
        else:
            must_match &= without_nan
    return Verdict(might_match, must_match)


def _compare_bounds(op: str, low: Any, high: Any, value: Any, exact: Mask) -> tuple[Any, Any]:
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
    sorted_values = np.array(values)
    positions = np.searchsorted(sorted_values, low, side="left")
    inside = positions < len(sorted_values)
    inside[inside] = sorted_values[positions[inside]] <= high[inside]
    return inside


def row_mask(predicate: Predicate, rows: pa.RecordBatch) -> Any:
    """A mask that is true for every row that the engine would keep. None if the predicate cannot be evaluated.

    In a dictionary-encoded column the dictionary's values are compared, once each, not the rows.
    """
    if isinstance(predicate, And | Or):
        masks = [row_mask(part, rows) for part in predicate.parts]
        known = [mask for mask in masks if mask is not None]
        if isinstance(predicate, And):
            return reduce(pc.and_kleene, known) if known else None
        return reduce(pc.or_kleene, known) if len(known) == len(masks) else None
    column: Any = rows.column(predicate.column)
    if isinstance(predicate, Null):
        return column.is_valid() if predicate.negated else column.is_null()
    if not pa.types.is_dictionary(column.type):
        return _value_mask(predicate, column)
    mask = _value_mask(predicate, column.dictionary)
    return None if mask is None else mask.take(column.indices)


def _value_mask(predicate: Compare | In | Prefix, values: Any) -> Any:
    type_ = values.type
    if isinstance(predicate, Prefix):
        return pc.starts_with(values, predicate.text) if pa.types.is_string(type_) else None
    # Arrow and SQL disagree on NaN, and the engine compares decimals several times faster.
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return None
    try:
        if isinstance(predicate, In):
            return pc.is_in(values, value_set=pa.array([value.as_py() for value in predicate.values], type_))
        return _ARROW_COMPARISONS[predicate.op](values, predicate.value.cast(type_))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
