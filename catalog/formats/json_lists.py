"""Lists that begin with nulls, which pyarrow's JSON reader gets wrong (apache/arrow#51305).

While it does not know the type of a list's values, it counts leading nulls and keeps only one of them. So `[null, 1]`
has fewer values than its offsets say: it would be read as `[1, 0]`, or from memory beyond the array. With the types
given in advance it reads them right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

Read = Callable[[list[Any]], pa.Table]
"""Reads the same text with these types."""


def with_leading_nulls(table: pa.Table, read: Read) -> pa.Table:
    """The table, read again if its lists do not have the values that their offsets need. Raises ArrowInvalid if they do
    not have them then."""
    if not any(field.type.num_fields for field in table.schema) or _is_valid(table):
        return table
    # A list of type null has no values but nulls; pyarrow reads these right as any other type.
    again = read([field.with_type(_without_null(field.type)) for field in table.schema])
    again.validate(full=True)
    columns = [
        _with_null(column.combine_chunks(), field.type)
        for column, field in zip(again.columns, table.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _is_valid(table: pa.Table) -> bool:
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _without_null(kind: Any) -> Any:
    """The type with strings in place of nulls."""
    if pt.is_null(kind):
        return pa.string()
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_without_null(field.type)) for field in kind])
    return pa.list_(_without_null(kind.value_type)) if pt.is_list(kind) else kind


def _with_null(array: Any, kind: Any) -> Any:
    """The array as the type that `_without_null` was given."""
    if array.type == kind:
        return array
    if pt.is_null(kind):
        return pa.nulls(len(array))
    if pt.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, _with_null(array.values, kind.value_type), mask=array.is_null())
    children = [_with_null(array.field(number), field.type) for number, field in enumerate(kind)]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
