"""Rows, query parameters and points in time as the API takes them. No value is changed silently."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa

from strandline.connection import as_arrow
from strandline.errors import Invalid


def sendable_rows(rows: Any) -> pa.Table | list[dict[str, Any]]:
    """Dicts if JSON represents every value exactly, otherwise Arrow (for bytes, decimals, NaN).

    An unnamed index of a pandas frame is dropped; a named one raises Invalid.
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        return _of_frame(rows)
    arrow = as_arrow(rows)
    if arrow is not None:
        return arrow
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise Invalid(f"{type(rows).__name__} is not a list of rows: pass a list of dicts, Arrow data or a data frame")
    listed = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise Invalid(f"row {number} is a {type(row).__name__}: each row is a dict, column name to value")
        listed.append(dict(row))
    return listed if all(_fits_json(row) for row in listed) else _of_dicts(listed)


def parameters(values: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Any]:
    """Parameters by name, or by position for `$1`, `$2`, …; Invalid for a value that JSON would change."""
    if isinstance(values, (str, bytes)):
        raise Invalid("params is a dict of values by name, or a list of values for $1, $2, …")
    named = values if isinstance(values, Mapping) else {str(n): value for n, value in enumerate(values or (), 1)}
    sendable = {}
    for name, value in named.items():
        plain = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
        if not _fits_json(plain):
            kind = type(value).__name__
            raise Invalid(f"the parameter ${name} cannot be sent as {kind}: pass text and write CAST(${name} AS …)")
        sendable[str(name)] = plain
    return sendable


PointLike = int | str | datetime | date
"""A timeline index, a time, a named snapshot, or `snapshot:<id>`; for changes also `sequence:<n>`."""


def point(at: PointLike) -> str | int:
    """A point in time as the API takes it; Invalid for a datetime without a time zone."""
    if isinstance(at, bool):
        raise Invalid("a point in time is an index of the timeline, a time or a name, not a boolean")
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise Invalid(f"{at.isoformat()} has no time zone: write datetime(..., tzinfo=timezone.utc)")
        return at.isoformat()
    return at.isoformat() if isinstance(at, date) else at


def position(at: PointLike | None) -> str | None:
    """`point` as text; None for none."""
    return None if at is None else str(point(at))


def key_value(value: Any) -> str | int | bool:
    """A key's value as the API takes it."""
    return value if isinstance(value, str | int) else value.hex() if isinstance(value, bytes) else str(value)


def _fits_json(value: Any) -> bool:
    if value is None or isinstance(value, (bool, int, str)):
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _fits_json(item) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_fits_json, value))
    return isinstance(value, (datetime, date, time))


def _of_dicts(rows: list[dict[str, Any]]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        try:
            columns.append(pa.array([row.get(name) for row in rows]))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise Invalid(f"the values of column {name!r} have no common type: {error}") from None
    return pa.table(columns, names=names)


def _of_frame(frame: Any) -> pa.Table:
    named = [name for name in frame.index.names if name is not None]
    if named:
        raise Invalid(
            f"the frame's index is named {', '.join(map(str, named))}: frame.reset_index() makes it a column, "
            "frame.reset_index(drop=True) leaves it out"
        )
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(f"the frame cannot be sent as Arrow: {error}") from None
