"""Rows on their way in: whatever form they come in, checked whole against the schema before a byte is written.

Rows are counted from 0. A conversion is made only if it keeps every value; nothing is truncated, rounded to
another integer or guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from catalog.errors import Invalid

Rows = Any
"""A pyarrow Table, RecordBatch or reader, an iterable of batches or of dicts, a pandas frame, or anything that
speaks Arrow's C stream (polars, duckdb)."""

_FAILED = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    TypeError,
    ValueError,
    OverflowError,
)


def check_rows(schema: Schema, rows: Rows, *, table: str) -> pa.Table:
    """The rows with exactly the table's Arrow schema; Invalid names the first row and column at fault."""
    target = schema_to_pyarrow(schema, include_field_ids=False)
    columns = _columns(rows, target, table)
    for name in columns:
        if name not in target.names:
            raise Invalid(
                f"{table}: unknown column {name!r}{_where(rows, name)}: the table has {', '.join(target.names)}",
                subject=table,
            )
    length = max((len(column) for column in columns.values()), default=0)
    checked = []
    for field, arrow in zip(schema.fields, target, strict=True):
        column = columns.get(field.name)
        if column is None:
            if field.required and length:
                raise Invalid(f"{table}: row 0, column {field.name!r}: it is required and missing", subject=table)
            column = pa.nulls(length, arrow.type)
        converted = _converted(column, arrow.type, field.name, table)
        _check_required(converted, field, table)
        checked.append(converted)
    return pa.Table.from_arrays(checked, schema=target)


def check_keys(rows: pa.Table, key: Sequence[str], *, table: str) -> None:
    """Invalid if a key has a null in it, or stands in two rows."""
    for column in key:
        if rows[column].null_count:
            row = _first_true(pc.is_null(rows[column]))
            raise Invalid(f"{table}: row {row}, column {column!r}: a key cannot be null", subject=table)
    if len(key) == 1 and _all_differ(rows[key[0]]):
        return
    keys = rows.select(list(key)).append_column("__row", pa.array(np.arange(rows.num_rows)))
    groups = keys.group_by(list(key)).aggregate([("__row", "min"), ("__row", "max")])
    if groups.num_rows == rows.num_rows:
        return
    twice = groups.filter(pc.less(groups["__row_min"], groups["__row_max"])).sort_by("__row_min").slice(0, 1)
    first, last = twice["__row_min"][0].as_py(), twice["__row_max"][0].as_py()
    value = {column: twice[column][0].as_py() for column in key}
    raise Invalid(f"{table}: rows {first} and {last} have the same key {value}: which should win?", subject=table)


def _all_differ(column: Any) -> bool:
    """Whether no value stands twice, without saying where, which costs more. False for kinds it is not known of."""
    if not (pt.is_integer(column.type) or _is_text(column.type)):
        return False
    return bool(pc.count_distinct(column).as_py() == len(column))


def _columns(rows: Rows, target: pa.Schema, table: str) -> dict[str, Any]:
    """Column name -> Arrow column, or a plain list of Python values."""
    if isinstance(rows, pa.RecordBatchReader):
        rows = rows.read_all()
    elif isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    elif type(rows).__module__.partition(".")[0] == "pandas":
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    elif not isinstance(rows, pa.Table) and hasattr(rows, "__arrow_c_stream__"):
        rows = pa.table(rows)
    if isinstance(rows, pa.Table):
        if len(set(rows.column_names)) < rows.num_columns:
            raise Invalid(f"{table}: a column name stands twice in {rows.column_names}", subject=table)
        return dict(zip(rows.column_names, rows.columns, strict=True))
    if not isinstance(rows, Iterable) or isinstance(rows, (str, bytes, Mapping)):
        raise Invalid(f"{table}: rows come as Arrow, a list of dicts or a data frame, not {type(rows).__name__}")
    listed = list(rows)
    if listed and all(isinstance(row, pa.RecordBatch) for row in listed):
        return _columns(pa.Table.from_batches(listed), target, table)
    return _from_dicts(listed, target, table)


def _from_dicts(rows: list[Any], target: pa.Schema, table: str) -> dict[str, Any]:
    names = set(target.names)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise Invalid(f"{table}: row {number} is a {type(row).__name__}, not a dict", subject=table)
        if not names.issuperset(row):
            unknown = next(name for name in row if name not in names)
            raise Invalid(
                f"{table}: row {number}, column {unknown!r}: unknown column: the table has {', '.join(target.names)}",
                subject=table,
            )
    return {name: [row.get(name) for row in rows] for name in target.names}


def _where(rows: Rows, name: str) -> str:
    return "" if isinstance(rows, (pa.Table, pa.RecordBatch)) else f" ({name!r})"


def _converted(column: Any, target: pa.DataType, name: str, table: str) -> Any:
    convert: Callable[[Any], Any]
    if isinstance(column, list):
        convert = lambda values: _from_python(values, target)  # noqa: E731
    else:
        convert = lambda values: _cast(values, target)  # noqa: E731
    try:
        found = convert(column)
    except _FAILED:
        row, reason = _first_failure(column, convert)
        value = column[row] if isinstance(column, list) else column[row].as_py()
        raise Invalid(
            f"{table}: row {row}, column {name!r}: {value!r} is no {target}: {reason}", subject=table
        ) from None
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found], target)  # type: ignore[call-overload]


def _from_python(values: list[Any], target: pa.DataType) -> Any:
    """Arrow's typed conversion drops fractions without a word; its inference does not, so infer, then cast."""
    if isinstance(target, pa.BaseExtensionType) or _has_map(target):
        return pa.array(values, target)
    if _is_binary(target) and any(isinstance(v, str) for v in values):
        raise TypeError("text is no binary: encode it first")  # among bytes, Arrow would take it for UTF-8
    if pt.is_timestamp(target) and any(
        isinstance(v, datetime) and (v.tzinfo is None) != (target.tz is None) for v in values
    ):
        # Among others that have a zone, Arrow takes a time without one for UTC.
        raise TypeError("a time with a zone and one without are different things")
    if pt.is_floating(target):
        values = [float(v) if type(v) is int else v for v in values]  # inference refuses 1 beside 1.5 when large
    return _cast(pa.array(values), target)


def _cast(column: Any, target: pa.DataType) -> Any:
    source = column.type
    if source == target:
        return column
    if pt.is_dictionary(source):
        return _cast(column.cast(source.value_type), target)
    if isinstance(target, pa.BaseExtensionType):
        storage = column.cast(target.storage_type)
        return storage.cast(target) if isinstance(storage, pa.ChunkedArray) else target.wrap_array(storage)
    if not _keeps_values(source, target):
        raise TypeError(f"a {source} does not become a {target}")
    if pt.is_decimal(target) and pt.is_integer(source):
        return column.cast(pa.decimal128(38, target.scale)).cast(target)
    cast = column.cast(target)
    if pt.is_float32(target) and pt.is_float64(source) and len(column):
        grown = pc.and_(pc.is_finite(column), pc.invert(pc.is_finite(cast)))
        if pc.any(grown).as_py():
            raise OverflowError("it does not fit")
    return cast


def _keeps_values(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the kinds fit; whether each value does is then the safe cast's to say."""
    if pt.is_null(source):
        return True
    if pt.is_integer(target):
        return pt.is_integer(source) or pt.is_floating(source)
    if pt.is_floating(target):
        return pt.is_integer(source) or pt.is_floating(source)
    if pt.is_decimal(target):
        return pt.is_integer(source) or pt.is_decimal(source) or _is_text(source)
    if pt.is_timestamp(target):
        return _is_text(source) or (pt.is_timestamp(source) and (source.tz is None) == (target.tz is None))
    if pt.is_date(target) or pt.is_time(target):
        return (
            _is_text(source)
            or (pt.is_date(source) and pt.is_date(target))
            or (pt.is_time(source) and pt.is_time(target))
        )
    if _is_text(target):
        return _is_text(source)
    if _is_binary(target):
        return _is_binary(source)
    if pt.is_struct(target):
        fields = {field.name: field.type for field in target}
        return pt.is_struct(source) and all(f.name in fields and _keeps_values(f.type, fields[f.name]) for f in source)
    if pt.is_list(target) or pt.is_large_list(target):
        return (pt.is_list(source) or pt.is_large_list(source)) and _keeps_values(source.value_type, target.value_type)
    return source.id == target.id


def _is_text(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)


def _has_map(kind: pa.DataType) -> bool:
    return pt.is_map(kind) or any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


def _first_failure(values: Any, convert: Callable[[Any], Any]) -> tuple[int, str]:
    """Bisects for the first row that does not convert; at most log2 n conversions of what is left."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(values[low:middle])
            low = middle
        except _FAILED:
            high = middle
    try:
        convert(values[low:high])
    except _FAILED as error:
        return low, str(error)
    return low, "it does not go with the rows before it"


def _check_required(column: Any, field: NestedField, table: str) -> None:
    if isinstance(field.field_type, PrimitiveType) and not (field.required and column.null_count):
        return  # most columns, and putting their chunks together would copy them
    found = _null_in(column.combine_chunks(), field.field_type, field.required, field.name)
    if found is not None:
        row, path = found
        raise Invalid(f"{table}: row {row}, column {path!r}: it is required and null", subject=table)


def _null_in(column: Any, kind: IcebergType, required: bool, path: str) -> tuple[int, str] | None:
    """The first row with a null where there must be none, also inside structs, lists and maps."""
    if required and column.null_count:
        return _first_true(pc.is_null(column)), path
    if isinstance(kind, StructType) and len(column):
        valid = column.is_valid()
        for child in kind.fields:
            found = _null_in(
                pc.struct_field(column, child.name).filter(valid),
                child.field_type,
                child.required,
                child.name,
            )
            if found is not None:
                row = pc.indices_nonzero(valid)[found[0]].as_py()
                return row, f"{path}.{found[1]}"
    if isinstance(kind, (ListType, MapType)) and len(column):
        inner, element, needed = (
            (column.flatten(), kind.element_type, kind.element_required)
            if isinstance(kind, ListType)
            else (column.items, kind.value_type, kind.value_required)
        )
        found = _null_in(inner, element, needed, "element" if isinstance(kind, ListType) else "value")
        if found is not None:
            ends = pc.cumulative_sum(pc.fill_null(_lengths(column), 0)).to_numpy(zero_copy_only=False)
            return int((ends <= found[0]).sum()), f"{path}.{found[1]}"
    return None


def _lengths(column: Any) -> Any:
    if pt.is_map(column.type):
        offsets = column.offsets.to_numpy()
        return pa.array(offsets[1:] - offsets[:-1])
    return pc.list_value_length(column)


def _first_true(mask: Any) -> int:
    row = pc.index(mask, True).as_py()
    return int(row) if row >= 0 and not math.isnan(row) else 0
