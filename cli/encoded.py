"""Bytes and UUIDs as text: what an export to JSON lines writes, read back as what the table holds.

Bytes are base64 (RFC 4648, with padding), a UUID its 36 characters. Also inside of lists and structs.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.types as pt

from catalog.errors import Invalid


def decoded(batch: pa.RecordBatch, table: pa.Schema, first: int) -> pa.RecordBatch:
    """The batch with text where the table has bytes or UUIDs made such. `first`: the number of its first row."""
    columns, fields = list[Any](batch.columns), list(batch.schema)
    for at, field in enumerate(fields):
        if field.name not in table.names:
            continue
        told = table.field(field.name).type
        meant = _meant(field.type, told)
        if meant == field.type:
            continue
        values = [_value(row, field.name, told, one) for row, one in enumerate(columns[at].to_pylist(), first)]
        columns[at], fields[at] = pa.array(values, meant), field.with_type(meant)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _meant(read: Any, told: Any) -> Any:
    """The type as read, with the table's in place of text that stands for bytes or a UUID."""
    if pt.is_string(read) or pt.is_large_string(read):
        return told if _is_uuid(told) or _is_bytes(told) else read
    if _is_list(read) and _is_list(told):
        return pa.list_(_meant(read.value_type, told.value_type))
    if pt.is_struct(read) and pt.is_struct(told):
        known = {field.name: field.type for field in told}
        return pa.struct([f.with_type(_meant(f.type, known[f.name])) if f.name in known else f for f in read])
    return read


def _value(row: int, column: str, told: Any, value: Any) -> Any:
    if isinstance(value, str) and _is_uuid(told):
        try:
            return UUID(value).bytes
        except ValueError:
            raise Invalid(f"row {row}, column {column!r}: {value[:40]!r} is no UUID") from None
    if isinstance(value, str) and _is_bytes(told):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Invalid(f"row {row}, column {column!r}: {value[:40]!r} is no base64, as bytes are written") from None
    if isinstance(value, list) and _is_list(told):
        return [_value(row, column, told.value_type, one) for one in value]
    if isinstance(value, dict) and pt.is_struct(told):
        known = {field.name: field.type for field in told}
        return {n: _value(row, column, known[n], one) if n in known else one for n, one in value.items()}
    return value


def _is_uuid(kind: Any) -> bool:
    return isinstance(kind, pa.UuidType)


def _is_bytes(kind: Any) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)


def _is_list(kind: Any) -> bool:
    return pt.is_list(kind) or pt.is_large_list(kind)
