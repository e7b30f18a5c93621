"""The times that a table can hold: those of the years 1 to 9999, and of a day.

Python has no others, and so neither have Iceberg's statistics of a file, the answers of the API, or a proof.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

OUT_OF_RANGE = "the time is outside of the years 1 to 9999, or of a day"
_FIRST_S, _END_S = -62_135_596_800, 253_402_300_800
_TIME_BOUNDS = {
    "date32[day]": (_FIRST_S // 86_400, _END_S // 86_400 - 1),
    "s": (_FIRST_S, _END_S - 1),
    "ms": (_FIRST_S * 1000, _END_S * 1000 - 1),
    "us": (_FIRST_S * 1_000_000, _END_S * 1_000_000 - 1),
    "time64[us]": (0, 86_399_999_999),
}
"""Nanoseconds end in the year 2262 by themselves."""


def first_time_out_of_range(column: Any) -> int | None:
    """The first row with a time that no table can hold, however nested; None without one. Bisects the chunk with it."""
    first = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if not _times_are_in_range(chunk):
            low, high = 0, len(chunk)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _times_are_in_range(chunk[low:middle]) else (low, middle)
            return first + low
        first += len(chunk)
    return None


def _times_are_in_range(array: Any) -> bool:
    kind = array.type
    if pt.is_struct(kind):
        return all(map(_times_are_in_range, array.flatten()))
    if pt.is_map(kind):
        start, end = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
        return all(_times_are_in_range(values[start:end]) for values in (array.keys, array.items))
    if pt.is_nested(kind):
        return _times_are_in_range(array.flatten())
    bounds = _TIME_BOUNDS.get(str(kind.unit if pt.is_timestamp(kind) else kind))
    if bounds is None:
        return True
    numbers = array.cast(pa.int32() if pt.is_date32(kind) else pa.int64())
    extremes: Any = pc.min_max(numbers).as_py()
    return extremes["min"] is None or bool(bounds[0] <= extremes["min"] and extremes["max"] <= bounds[1])
