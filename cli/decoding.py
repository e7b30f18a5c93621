"""Decodes text into the bytes and UUIDs of a table's columns, so that an export to JSON lines can be imported again.

Bytes are base64 (RFC 4648, with padding), a UUID its 36 characters; also inside lists and structs.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.types as pt

from catalog import Invalid


def decoded(batch: pa.RecordBatch, table: pa.Schema, first: int) -> pa.RecordBatch:
    """The batch with text columns decoded where the table has bytes or UUIDs. `first`: the number of its first row."""
    columns, fields = list[Any](batch.columns), list(batch.schema)
    for position, field in enumerate(fields):
        if field.name not in table.names:
            continue
        table_type = table.field(field.name).type
        target = _decoded_type(field.type, table_type)
        if target == field.type:
            continue
        texts = columns[position].to_pylist()
        values = [_value(row, field.name, table_type, text) for row, text in enumerate(texts, first)]
        columns[position], fields[position] = pa.array(values, target), field.with_type(target)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _decoded_type(read: Any, table: Any) -> Any:
    """The type that was read, with the table's type wherever text stands for bytes or a UUID."""
    if pt.is_string(read) or pt.is_large_string(read):
        return table if _is_uuid(table) or _is_bytes(table) else read
    if _is_list(read) and _is_list(table):
        return pa.list_(_decoded_type(read.value_type, table.value_type))
    if pt.is_struct(read) and pt.is_struct(table):
        types = {field.name: field.type for field in table}
        return pa.struct([f.with_type(_decoded_type(f.type, types[f.name])) if f.name in types else f for f in read])
    return read


def _value(row: int, column: str, type_: Any, value: Any) -> Any:
    if isinstance(value, str) and _is_uuid(type_):
        try:
            return UUID(value).bytes
        except ValueError:
            raise Invalid(f"row {row}, column {column!r}: {value[:40]!r} is not a UUID") from None
    if isinstance(value, str) and _is_bytes(type_):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            message = f"row {row}, column {column!r}: {value[:40]!r} is not base64"
            raise Invalid(f"{message}: write bytes as base64 with padding") from None
    if isinstance(value, list) and _is_list(type_):
        return [_value(row, column, type_.value_type, item) for item in value]
    if isinstance(value, dict) and pt.is_struct(type_):
        types = {field.name: field.type for field in type_}
        return {n: _value(row, column, types[n], item) if n in types else item for n, item in value.items()}
    return value


def _is_uuid(type_: Any) -> bool:
    return isinstance(type_, pa.UuidType)


def _is_bytes(type_: Any) -> bool:
    return pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_fixed_size_binary(type_)


def _is_list(type_: Any) -> bool:
    return pt.is_list(type_) or pt.is_large_list(type_)
