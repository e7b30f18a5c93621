"""Validates rows against a table's schema: all of them, in whatever form, before a byte is written.

Rows are counted from 0. A value is converted only if nothing is lost: none is truncated, rounded to another integer
or guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from secrets import token_bytes
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from catalog.core.errors import Invalid
from catalog.formats import OUT_OF_RANGE, cast_decimals, cast_nested, first_time_out_of_range

Rows = Any
"""A pyarrow Table, RecordBatch or reader, an iterable of batches or of dicts, a pandas frame, or anything with Arrow's
C stream interface (polars, duckdb)."""

SALT_COLUMN = "strandline_salt"
"""A column of 16 random bytes that each row gets when it is written, unless it has some. It is part of the row's
digest, so that nobody can confirm a guess of the row's other values after it was erased (docs/guide/erasure.md)."""
SALT_BYTES = 16
_SHOWN = 200
"""The characters of a value, or of a library's reason, that an error shows: a value may have megabytes."""

_CONVERSION_ERRORS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    TypeError,
    ValueError,
    OverflowError,
)


def check_rows(schema: Schema, rows: Rows, *, table: str) -> pa.Table:
    """The rows with exactly the table's Arrow schema; Invalid names the first row and column that do not fit."""
    target = schema_to_pyarrow(schema, include_field_ids=False)
    columns = _columns(rows, target, table)
    for name in columns:
        if name not in target.names:
            raise _invalid(
                table, f"unknown column {name!r}{_repeat_name(rows, name)}: the table has {', '.join(target.names)}"
            )
    length = max((len(column) for column in columns.values()), default=0)
    arrays = []
    for field, arrow in zip(schema.fields, target, strict=True):
        column = columns.get(field.name)
        if column is None:
            if field.required and length:
                raise _invalid(table, "it is required and missing", 0, field.name)
            column = pa.nulls(length, arrow.type)
        converted = _convert(column, arrow.type, field.name, table)
        if field.name == SALT_COLUMN:
            converted = _salted(converted)
        _check_required(converted, field, table)
        arrays.append(converted)
    return pa.Table.from_arrays(arrays, schema=target)


def _salted(column: Any) -> Any:
    """The column with random bytes where it has none."""
    if not column.null_count or not (pt.is_binary(column.type) or pt.is_fixed_size_binary(column.type)):
        return column
    if pt.is_fixed_size_binary(column.type) and column.type.byte_width != SALT_BYTES:
        return column
    given = column.to_pylist()
    return pa.array([token_bytes(SALT_BYTES) if value is None else value for value in given], column.type)


def check_keys(rows: pa.Table, key: Sequence[str], *, table: str) -> None:
    """Invalid if a key has a null, or two rows have the same key."""
    for column in key:
        if rows[column].null_count:
            row = _first_true(pc.is_null(rows[column]))
            raise _invalid(table, "a key cannot be null", row, column)
    if len(key) == 1 and _all_distinct(rows[key[0]]):
        return
    keys = rows.select(list(key)).append_column("__row", pa.array(np.arange(rows.num_rows)))
    groups = keys.group_by(list(key)).aggregate([("__row", "min"), ("__row", "max")])
    if groups.num_rows == rows.num_rows:
        return
    repeated = groups.filter(pc.less(groups["__row_min"], groups["__row_max"])).sort_by("__row_min").slice(0, 1)
    first, last = repeated["__row_min"][0].as_py(), repeated["__row_max"][0].as_py()
    value = {column: repeated[column][0].as_py() for column in key}
    reason = f"rows {first} and {last} have the same key {value}: which should win?"
    raise Invalid(f"{table}: {reason}", subject=table, row=last, reason=reason)


def _invalid(table: str, reason: str, row: int | None = None, column: str | None = None) -> Invalid:
    where = "" if row is None else f"row {row}, column {column!r}: "
    return Invalid(f"{table}: {where}{reason}", subject=table, row=row, column=column, reason=reason)


def _all_distinct(column: Any) -> bool:
    """Whether no value repeats: cheaper than finding which. False for types that it does not check."""
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
            raise _invalid(table, f"a column name stands twice in {rows.column_names}")
        return dict(zip(rows.column_names, rows.columns, strict=True))
    if not isinstance(rows, Iterable) or isinstance(rows, (str, bytes, Mapping)):
        raise Invalid(f"{table}: rows are Arrow, a list of dicts or a data frame, not a {type(rows).__name__}")
    items = list(rows)
    if items and all(isinstance(item, pa.RecordBatch) for item in items):
        return _columns(pa.Table.from_batches(items), target, table)
    return _from_dicts(items, target, table)


def _from_dicts(rows: list[Any], target: pa.Schema, table: str) -> dict[str, Any]:
    names = set(target.names)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            reason = f"row {number} is a {type(row).__name__}, not a dict"
            raise Invalid(f"{table}: {reason}", subject=table, row=number, reason=reason)
        if not names.issuperset(row):
            unknown = next(name for name in row if name not in names)
            raise _invalid(table, f"unknown column: the table has {', '.join(target.names)}", number, unknown)
    return {name: [row.get(name) for row in rows] for name in target.names}


def _repeat_name(rows: Rows, name: str) -> str:
    return "" if isinstance(rows, (pa.Table, pa.RecordBatch)) else f" ({name!r})"


def _convert(column: Any, target: pa.DataType, name: str, table: str) -> Any:
    convert: Callable[[Any], Any]
    if isinstance(column, list):
        convert = lambda values: _from_python(values, target)  # noqa: E731
    else:
        convert = lambda values: _cast(values, target)  # noqa: E731
    try:
        converted = convert(column)
    except _CONVERSION_ERRORS:
        row, reason = _first_failure(column, convert)
        value = column[row] if isinstance(column, list) else _as_python(column[row])
        raise _invalid(table, f"{_shown(value)} is not a valid {target}: {_cut(reason)}", row, name) from None
    beyond = first_time_out_of_range(converted)
    if beyond is not None:
        raise _invalid(table, OUT_OF_RANGE, beyond, name)
    return converted if isinstance(converted, pa.ChunkedArray) else pa.chunked_array([converted], target)  # type: ignore[call-overload]


def _shown(value: Any) -> str:
    return _cut(repr(value[: 2 * _SHOWN] if isinstance(value, (str, bytes)) else value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _as_python(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError, ArithmeticError):  # a time after the year 9999, Python's last
        return str(value.cast(pa.int64()).as_py()) if pt.is_temporal(value.type) else "a value"


def _from_python(values: list[Any], target: pa.DataType) -> Any:
    """Infers the Arrow type, then casts: Arrow's conversion to a given type drops fractions silently."""
    if isinstance(target, pa.BaseExtensionType) and any(isinstance(v, str) for v in values):
        raise TypeError("text is not a UUID: send its sixteen bytes, or a UUID object")
    if isinstance(target, pa.BaseExtensionType) or _has_map(target):
        return pa.array(values, target)
    if _is_binary(target) and any(isinstance(v, str) for v in values):
        raise TypeError("text is not binary: encode it first")  # beside bytes, Arrow would encode it as UTF-8
    if pt.is_timestamp(target) and any(
        isinstance(v, datetime) and (v.tzinfo is None) != (target.tz is None) for v in values
    ):
        # Beside times with a time zone, Arrow would take a time without one as UTC.
        raise TypeError("a time with a zone and one without are different things")
    if pt.is_floating(target):
        values = [_as_double(v) if type(v) is int else v for v in values]  # inference refuses large ones beside 1.5
    return _cast(pa.array(values), target)


def _as_double(value: int) -> float:
    if int(float(value)) != value:
        raise OverflowError("a double would round it")
    return float(value)


def _cast(column: Any, target: pa.DataType) -> Any:
    source = column.type
    if source == target:
        return column
    if pt.is_dictionary(source):
        return _cast(column.cast(source.value_type), target)
    if isinstance(target, pa.BaseExtensionType):
        if _is_text(source):
            raise TypeError("text is not a UUID: send its sixteen bytes")
        storage = column.cast(target.storage_type)
        return storage.cast(target) if isinstance(storage, pa.ChunkedArray) else target.wrap_array(storage)
    if not _keeps_values(source, target):
        raise TypeError(f"a {source} does not become a {target}")
    if pt.is_decimal(target) and pt.is_integer(source):
        return column.cast(pa.decimal128(38, target.scale)).cast(target)
    if pt.is_decimal(target) and not pt.is_null(source):
        return cast_decimals(column, target)
    if pt.is_nested(target) and not pt.is_null(source):
        return cast_nested(column, target)
    cast = column.cast(target)
    if pt.is_float32(target) and pt.is_float64(source) and len(column):
        overflowed = pc.and_(pc.is_finite(column), pc.invert(pc.is_finite(cast)))
        if pc.any(overflowed).as_py():
            raise OverflowError("it does not fit")
        less: Any = pc.less  # its type stubs do not accept plain numbers
        integral = pc.and_(pc.equal(column, pc.floor(column)), less(pc.abs(column), 2**53))
        if pc.any(pc.and_(integral, pc.not_equal(column, cast.cast(pa.float64())))).as_py():
            raise OverflowError("a float would round it to another integer")
    return cast


def _keeps_values(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of one type may become the other; the safe cast then checks each value."""
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
    """Bisects for the first row that does not convert, in at most log2 n conversions."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(values[low:middle])
            low = middle
        except _CONVERSION_ERRORS:
            high = middle
    try:
        convert(values[low:high])
    except _CONVERSION_ERRORS as error:
        return low, str(error)
    return low, "it does not go with the rows before it"


def _check_required(column: Any, field: NestedField, table: str) -> None:
    if isinstance(field.field_type, PrimitiveType) and not (field.required and column.null_count):
        return  # without the copy that combining the chunks makes
    null = _first_null(column.combine_chunks(), field.field_type, field.required, field.name)
    if null is not None:
        row, path = null
        raise _invalid(table, "it is required and null", row, path)


def _first_null(column: Any, kind: IcebergType, required: bool, path: str) -> tuple[int, str] | None:
    """The row and path of the first null in a required field, also inside structs, lists and maps."""
    if required and column.null_count:
        return _first_true(pc.is_null(column)), path
    if isinstance(kind, StructType) and len(column):
        valid = column.is_valid()
        for child in kind.fields:
            null = _first_null(
                pc.struct_field(column, child.name).filter(valid),
                child.field_type,
                child.required,
                child.name,
            )
            if null is not None:
                row = pc.indices_nonzero(valid)[null[0]].as_py()
                return row, f"{path}.{null[1]}"
    if isinstance(kind, (ListType, MapType)) and len(column):
        values, value_type, value_required = (
            (column.flatten(), kind.element_type, kind.element_required)
            if isinstance(kind, ListType)
            else (column.items, kind.value_type, kind.value_required)
        )
        name = "element" if isinstance(kind, ListType) else "value"
        null = _first_null(values, value_type, value_required, name)
        if null is not None:
            ends = pc.cumulative_sum(pc.fill_null(_lengths(column), 0)).to_numpy(zero_copy_only=False)
            return int((ends <= null[0]).sum()), f"{path}.{null[1]}"
    return None


def _lengths(column: Any) -> Any:
    if pt.is_map(column.type):
        offsets = column.offsets.to_numpy()
        return pa.array(offsets[1:] - offsets[:-1])
    return pc.list_value_length(column)


def _first_true(mask: Any) -> int:
    row = pc.index(mask, True).as_py()
    return int(row) if row >= 0 and not math.isnan(row) else 0
