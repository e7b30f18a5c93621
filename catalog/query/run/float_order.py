"""Floating-point numbers as SQL orders them: -0.0 equals 0.0, and all NaNs are equal and greater than every number.

DataFusion orders by bits instead: -0.0 below 0.0, and a NaN with its sign bit set below all numbers. Division on x86
produces such NaNs, so data contains them. Columns and parameters are normalised before DataFusion gets them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BITS = {pa.float32(): (np.int32, -(1 << 31), 0xFF800000), pa.float64(): (np.int64, -(1 << 63), 0xFFF0000000000000)}
"""By type: the integer type of the same width, the bits of -0.0 in it, and the bits of -inf as an unsigned integer."""


def normalise_floats(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with 0.0 for -0.0 and one NaN for all. Copies only columns with a -0.0 or a negative NaN."""
    for number, field in enumerate(batch.schema):
        if field.type in _BITS and _needs_normalising(batch.column(number)):
            column: Any = batch.column(number)
            zero, nan = pa.scalar(0.0, field.type), pa.scalar(math.nan, field.type)
            batch = batch.set_column(number, field, pc.if_else(pc.is_nan(column), nan, pc.add(column, zero)))
    return batch


def normalise_float(value: Any) -> Any:
    """The same for a parameter's value."""
    if not isinstance(value, float):
        return value
    return math.nan if math.isnan(value) else value + 0.0


def _needs_normalising(column: Any) -> bool:
    if column.null_count == len(column):  # true for placeholder columns as well
        return False
    integer, minus_zero, minus_infinity = _BITS[column.type]
    bits = np.frombuffer(column.buffers()[1], dtype=integer, count=column.offset + len(column))[column.offset :]
    return bool(bits.min() == minus_zero or int(bits.view(bits.dtype.str.replace("i", "u")).max()) > minus_infinity)
