"""INT96, Parquet's old type for times: a day and the nanoseconds of it, in twelve bytes.

Arrow reads it in one 64-bit unit. In nanoseconds a time before 1677 or after 2262 wraps around and becomes another one;
in a coarser unit the digits beyond it are dropped. So a row group is first read in seconds, which hold every value, and
in nanoseconds, whose distance from these is exact even where both wrapped. What passes is exact in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalog.formats.arrow import children
from catalog.formats.limits import FileRejected
from catalog.formats.time_bounds import OUT_OF_RANGE

UNIT = "us"
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999."""
_SECOND_NS, _MICROSECOND_NS = np.uint64(1_000_000_000), np.uint64(1000)


def int96_columns(schema: Any) -> list[str]:
    """The columns of a file, by their names, that are INT96 or have some in them."""
    leaves = [schema.column(number) for number in range(len(schema))]
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    names = schema.to_arrow_schema().names
    return [name for name in names if any(path == name or path.startswith(f"{name}.") for path in paths)]


def check_int96(source: Any, metadata: Any, group: int, columns: list[str], batch_rows: int, first: int) -> None:
    """Raises FileRejected, with the row, for a time that a table cannot hold. `first`: the number of the row group's
    first row. Cost: two more reads of these columns."""

    def read(unit: str) -> Iterator[pa.RecordBatch]:
        file = pq.ParquetFile(source, metadata=metadata, pre_buffer=False, coerce_int96_timestamp_unit=unit)
        return file.iter_batches(batch_rows, row_groups=[group], columns=columns)

    for seconds, nanoseconds in zip(read("s"), read("ns"), strict=True):
        for name, in_seconds, in_nanoseconds in zip(
            seconds.schema.names, seconds.columns, nanoseconds.columns, strict=True
        ):
            reason = _fault(in_seconds, in_nanoseconds)
            if reason is not None:
                row = _first_fault(in_seconds, in_nanoseconds)
                raise FileRejected(reason, row=first + row, column=name)
        first += seconds.num_rows


def _fault(seconds: Any, nanoseconds: Any) -> str | None:
    """What is wrong with one of the values, which both arrays have; None if nothing is."""
    if not (pt.is_timestamp(seconds.type) and seconds.type.unit == "s" and nanoseconds.type.unit == "ns"):
        inner = zip(children(seconds), children(nanoseconds), strict=True)
        return next((reason for pair in inner if (reason := _fault(*pair)) is not None), None)
    whole, exact = (array.drop_null().cast(pa.int64()).to_numpy() for array in (seconds, nanoseconds))
    if len(whole) and (whole.min() < _FIRST_S or whole.max() > _LAST_S):
        return OUT_OF_RANGE
    with np.errstate(over="ignore"):
        rest = exact.view(np.uint64) - whole.view(np.uint64) * _SECOND_NS
    if np.any(rest % _MICROSECOND_NS):
        return "the time has nanoseconds, and a table keeps microseconds: round it"
    return None


def _first_fault(seconds: Any, nanoseconds: Any) -> int:
    """The first row with a fault, by bisection."""
    low, high = 0, len(seconds)
    while high - low > 1:
        middle = (low + high) // 2
        if _fault(seconds.slice(low, middle - low), nanoseconds.slice(low, middle - low)) is None:
            low = middle
        else:
            high = middle
    return low
