"""Files and bodies with times at and beyond the ends of what a table can hold, in every format that can have them."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
FIRST_S, LAST_S = FIRST_DAY * 86_400, (LAST_DAY + 1) * 86_400 - 1
_UNITS = {"s": 1, "ms": 1000, "us": 1_000_000}
_JULIAN = 2_440_588


def parquet(column: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"at": column}), sink, **options)
    return sink.getvalue()


def arrow(column: Any) -> bytes:
    rows, sink = pa.table({"at": column}), io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def int96(day: int, nanoseconds: int) -> bytes:
    """A file of two rows, 1970-01-01 and the given day since then, with nanoseconds of it that need not be valid."""
    written = struct.pack("<Qi", 777_000, _JULIAN + 12_345)
    data = parquet(
        pa.array([0, 86_400 * 10**9 * 12_345 + 777_000], pa.timestamp("ns")),
        use_deprecated_int96_timestamps=True, use_dictionary=False, compression="none", write_statistics=False,
    )  # fmt: skip
    assert data.count(written) == 1
    return data.replace(written, struct.pack("<QI", nanoseconds, (day + _JULIAN) % (1 << 32)))


def columns_out_of_range() -> dict[str, Any]:
    """Columns of two values, the second out of range, by a label."""
    columns: dict[str, Any] = {}
    for end, seconds in (("before", FIRST_S - 1), ("after", LAST_S + 1)):
        for zone in (None, "UTC"):
            for unit, factor in _UNITS.items():
                columns[f"{end} in {unit} {zone}"] = pa.array([0, seconds * factor], pa.timestamp(unit, zone))
    for label, value in (("largest", (1 << 63) - 1), ("smallest", -(1 << 63))):
        for unit in ("ms", "us"):
            columns[f"{label} {unit}"] = pa.array([0, value], pa.timestamp(unit))
    for label, day in (("before", FIRST_DAY - 1), ("after", LAST_DAY + 1), ("largest", (1 << 31) - 1)):
        columns[f"{label} as a date"] = pa.array([0, day], pa.date32())
    beyond = pa.array([0, (LAST_S + 1) * 1_000_000], pa.timestamp("us"))
    columns["in a struct"] = pa.StructArray.from_arrays([beyond], ["t"])
    columns["in a list"] = pa.ListArray.from_arrays([0, 1, 2], beyond)
    columns["in a map"] = pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), beyond)
    return columns


def files_out_of_range() -> dict[str, tuple[str, bytes]]:
    """Name and bytes of files that no table can hold, by a label. The second row is at fault."""
    files = {label: ("x.parquet", parquet(column)) for label, column in columns_out_of_range().items()}
    for label, day, nanoseconds in (
        ("after", LAST_DAY + 1, 0),
        ("before", FIRST_DAY - 1, 0),
        ("largest day", (1 << 31) - 1 - _JULIAN, 0),
        ("nanoseconds after 2262", 120_600, 616),  # in 64 bits a time of 1715, and one without nanoseconds
        ("in the year 584,554", 213_503_982, 0),  # in 64 bits of microseconds a time of 1969
        ("nanoseconds", 0, 1),
        ("largest nanoseconds", 0, (1 << 64) - 1),
    ):
        files[f"int96 {label}"] = ("x.parquet", int96(day, nanoseconds))
    return files


def columns_at_the_ends() -> dict[str, Any]:
    """Columns of the first and the last time of each type, which every table and every answer can hold."""
    times = [FIRST_S * 1_000_000, LAST_S * 1_000_000 + 999_999]
    return {
        "timestamp": pa.array(times, pa.timestamp("us")),
        "timestamptz": pa.array(times, pa.timestamp("us", "UTC")),
        "date": pa.array([FIRST_DAY, LAST_DAY], pa.date32()),
    }
