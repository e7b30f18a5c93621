"""Rows under another schema of the same table: columns are matched by field id, never by name or position.

So a renamed column is the same column, a dropped column is left out, an added column is NULL, and a name that was
dropped and added again is two columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.changes import type_tags
from catalog.changes.encoding import FIELD_ID, Rows
from catalog.core.errors import Invalid


def project(rows: Rows, schema: pa.Schema) -> pa.Table:
    """The rows under `schema`; both carry field ids. Raises Invalid for a type change that is no promotion."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    if table.schema.equals(schema, check_metadata=True):
        return table
    by_id = {_id(field): table.column(position) for position, field in enumerate(table.schema)}
    try:
        columns = [_column(by_id.get(_id(field)), field, table.num_rows) for field in schema]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Invalid(f"rows of an older schema do not fit the newer one: {error}") from None
    return pa.Table.from_arrays(columns, schema=schema)


def has_ids(fields: Any) -> bool:
    """Whether every field, also inside nested types, carries an id."""
    return all(_id(field) is not None and has_ids(_children(field.type)) for field in fields)


def _id(field: pa.Field[Any]) -> bytes | None:
    return (field.metadata or {}).get(FIELD_ID)


def _children(kind: Any) -> list[pa.Field[Any]]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if type_tags.is_list(kind) else []


def _column(array: Any, field: pa.Field[Any], rows: int) -> Any:
    if array is None:
        return pa.nulls(rows, field.type)
    if array.type == field.type and not _children(field.type):
        return array
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind, nulls = field.type, pc.is_null(array)
    if pa.types.is_struct(kind):
        by_id = {_id(child): values for child, values in zip(array.type, array.flatten(), strict=True)}
        children = [_column(by_id.get(_id(child)), child, len(array)) for child in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)
    if pa.types.is_map(kind):
        source = array.type
        entry = pa.struct([source.key_field.with_name("key"), source.item_field.with_name("value")])
        plain = array.cast(pa.list_(entry))
        keys, values = plain.flatten().flatten()
        inner = [_column(keys, kind.key_field, len(keys)), _column(values, kind.item_field, len(values))]
        from_arrays: Any = pa.MapArray.from_arrays
        return from_arrays(_offsets(plain), *inner, type=kind, mask=nulls)
    if type_tags.is_list(kind):
        plain = array.cast(pa.list_(array.type.value_field))
        values = plain.flatten()
        inner = _column(values, kind.value_field, len(values))
        lists = pa.ListArray.from_arrays(_offsets(plain), inner, type=pa.list_(kind.value_field), mask=nulls)
        return lists.cast(kind)
    return array.cast(kind)


def _offsets(array: Any) -> pa.Int32Array:
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
