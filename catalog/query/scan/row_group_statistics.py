"""Parquet's statistics of a column by row group, as the `Bounds` that predicates are evaluated with."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import DecimalType, NestedField, StringType

from catalog.query.plan.predicates import Bounds


def row_group_bounds(footer: pq.FileMetaData, physical: pa.Schema, name: str, field: NestedField) -> Bounds | None:
    """A column's statistics over the file's row groups; None if Parquet's form may differ from Iceberg's."""
    type_ = physical.field(name).type
    number = next((group for group in range(footer.num_columns) if footer.schema.column(group).path == name), None)
    decode = _decoder(type_, field)
    if number is None or decode is None:
        return None
    count = footer.num_row_groups
    lower, upper = np.empty(count, dtype=object), np.empty(count, dtype=object)
    known, nulls = np.zeros(count, dtype=bool), np.full(count, -1, dtype=np.int64)
    for group in range(count):
        statistics: Any = footer.row_group(group).column(number).statistics
        if statistics is None:
            continue
        if statistics.has_null_count:
            nulls[group] = statistics.null_count
        if statistics.has_min_max:
            low, high = decode(statistics.min_raw), decode(statistics.max_raw)
            if low == low and high == high:  # NaN bounds decide nothing
                lower[group], upper[group], known[group] = low, high, True
    rows = np.array([footer.row_group(group).num_rows for group in range(count)], dtype=np.int64)
    nans = np.full(count, -1, dtype=np.int64) if pa.types.is_floating(type_) else None
    exact = np.full(count, not isinstance(field.field_type, StringType))
    return Bounds(lower, upper, known, nulls, nans, rows, exact)


def _decoder(type_: Any, field: NestedField) -> Callable[[Any], Any] | None:
    if pa.types.is_timestamp(type_):
        return (lambda value: value) if type_.unit == "us" else None
    if pa.types.is_decimal(type_) and isinstance(field.field_type, DecimalType):
        scale = type_.scale

        def unscaled(value: Any) -> Decimal:
            number = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)
            return Decimal(number).scaleb(-scale)

        return unscaled
    if (
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_boolean(type_)
    ):
        return lambda value: value
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return lambda value: value if isinstance(value, bytes) else str(value).encode()
    return None
