"""The SQL that gives a value the type of a column: by DuckDB's rules where they keep the value, and an error elsewhere.

DuckDB rounds 2.5 to a whole number, cuts a time off a date, and calls 5 true. A write does none of these: the statement
says how to round. What stays text here (decimals, times) is parsed by the table's own row validation, which is exact.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.core.errors import Invalid
from catalog.query.run.engine import quote_text
from catalog.query.scan.scan_sql import engine_type_name


def converted(value: str, source: pa.DataType, target: IcebergType, column: str) -> str:
    """The expression for `value`, a column of type `source`. Invalid if there is no conversion that keeps values."""
    expression = _converted(value, source, target, column)
    if expression is None:
        name = engine_type_name(target)
        raise Invalid(
            f"column {column} is {name}, and the statement gives {source}: write CAST(… AS {name}) if that is meant"
        )
    return expression


def _converted(value: str, source: pa.DataType, target: IcebergType, column: str) -> str | None:
    cast = f"CAST({value} AS {engine_type_name(target)})"
    if pt.is_null(source):
        return cast
    if not isinstance(target, PrimitiveType):
        return value if pt.is_nested(source) else None
    if isinstance(target, IntegerType | LongType):
        return _to_integer(value, cast, source, column)
    if isinstance(target, FloatType | DoubleType):
        return _to_float(value, source, column)
    if isinstance(target, DecimalType):
        return _to_decimal(value, cast, source, target, column)
    if isinstance(target, StringType):
        plain = _is_number(source) or pt.is_boolean(source) or pt.is_date(source) or pt.is_timestamp(source)
        return value if _is_text(source) else cast if plain or pt.is_time(source) else None
    if isinstance(target, BooleanType):
        return value if pt.is_boolean(source) else cast if _is_text(source) else None
    if isinstance(target, DateType):
        if pt.is_timestamp(source):
            return _checked(value, cast, f"{cast} = {value}", column, "has a time of day")
        return value if pt.is_date(source) or _is_text(source) else None
    if isinstance(target, TimestampType | TimestamptzType):
        if pt.is_timestamp(source) and source.unit == "ns":
            return _checked(value, cast, f"{cast} = {value}", column, "has nanoseconds")
        return cast if pt.is_timestamp(source) or pt.is_date(source) else value if _is_text(source) else None
    if isinstance(target, TimeType):
        return value if pt.is_time(source) or _is_text(source) else None
    if isinstance(target, UUIDType | BinaryType | FixedType):
        return value
    return None


def _to_integer(value: str, cast: str, source: pa.DataType, column: str) -> str | None:
    if pt.is_integer(source):
        return cast  # DuckDB raises an error beyond the type's range
    if pt.is_decimal(source) or pt.is_floating(source):
        return _checked(value, cast, f"{cast} = {value}", column, "is not a whole number")
    if _is_text(source):
        return _checked(
            value, cast, f"regexp_full_match(trim({value}), '[+-]?[0-9]+')", column, "is not a whole number"
        )
    return None


def _to_float(value: str, source: pa.DataType, column: str) -> str | None:
    """A double; row validation then makes a float of it, if it fits."""
    cast = f"CAST({value} AS DOUBLE)"
    if pt.is_floating(source):
        return value
    if pt.is_integer(source):
        return _checked(value, cast, f"CAST({cast} AS HUGEINT) = {value}", column, "is no double: it would be rounded")
    return cast if pt.is_decimal(source) or _is_text(source) else None


def _to_decimal(value: str, cast: str, source: pa.DataType, target: DecimalType, column: str) -> str | None:
    digits = f"has more than {target.scale} digits after the point"
    if pt.is_integer(source) or _is_text(source):
        return cast if pt.is_integer(source) else value
    if pt.is_decimal(source):
        return cast if source.scale <= target.scale else _checked(value, cast, f"{cast} = {value}", column, digits)
    if pt.is_floating(source):  # 0.1, the double, is the decimal 0.1
        return _checked(value, cast, f"CAST({cast} AS DOUBLE) = {value}", column, digits)
    return None


def _checked(value: str, cast: str, condition: str, column: str, problem: str) -> str:
    message = f"error({quote_text(f'column {column}: ')} || CAST({value} AS VARCHAR) || {quote_text(f' {problem}')})"
    return f"CASE WHEN {value} IS NULL THEN NULL WHEN {condition} THEN {cast} ELSE {message} END"


def _is_number(type_: pa.DataType) -> bool:
    return bool(pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_))
