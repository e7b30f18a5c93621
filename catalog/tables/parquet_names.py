"""Gives Arrow columns the names of a Parquet file, at any depth, by position. Values never change.

A cast matches the fields of a struct by name: a field whose name Iceberg escapes (`a b` is `a_x20b` in the file) would
become NULL. Only columns whose types differ from the file's are rebuilt, and only those are copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt


def with_file_names(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the schema of their file, whose types are the same but for the names of fields."""
    columns = [
        column if column.type.equals(field.type) else _renamed_column(column, field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _renamed_column(column: pa.ChunkedArray[Any], kind: Any) -> pa.ChunkedArray[Any]:
    return pa.chunked_array([_renamed(chunk, kind) for chunk in column.chunks], type=kind)


def _renamed(array: Any, kind: Any) -> Any:
    if array.type.equals(kind):
        return array
    if pt.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        children = [_renamed(array.field(number), field.type) for number, field in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(array))
    if not (pt.is_list(kind) or pt.is_large_list(kind) or pt.is_map(kind)):
        return array.cast(kind)  # no names inside
    whole = array.take(pa.array(np.arange(len(array))))  # a slice shares its values with rows outside of it
    if pt.is_map(kind):
        children = [_renamed(whole.keys, kind.key_type), _renamed(whole.items, kind.item_type)]
        values: Any = pa.StructArray.from_arrays(children, fields=[kind.key_field, kind.item_field])
    else:
        values = _renamed(whole.values, kind.value_type)
    return pa.Array.from_buffers(kind, len(whole), whole.buffers()[:2], whole.null_count, 0, [values])
