"""The types of columns in CREATE TABLE and ALTER TABLE: DuckDB's names for what Iceberg can store."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot import exp

from catalog.core.errors import Invalid
from catalog.query.sql.dialect import DIALECT

_Type = exp.DataType.Type
_TYPES: dict[Any, pa.DataType] = {
    _Type.BOOLEAN: pa.bool_(),
    _Type.INT: pa.int32(),
    _Type.BIGINT: pa.int64(),
    _Type.FLOAT: pa.float32(),
    _Type.DOUBLE: pa.float64(),
    _Type.TEXT: pa.string(),
    _Type.VARCHAR: pa.string(),
    _Type.DATE: pa.date32(),
    _Type.TIME: pa.time64("us"),
    _Type.TIMESTAMP: pa.timestamp("us"),
    _Type.TIMESTAMPNTZ: pa.timestamp("us"),
    _Type.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    _Type.VARBINARY: pa.binary(),
}
_DECIMAL = (18, 3)
"""DuckDB's DECIMAL without precision and scale."""
_NAMES = "BOOLEAN, INTEGER, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), VARCHAR, BLOB, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, T[], STRUCT(…), MAP(…)"  # noqa: E501


def column_type(kind: exp.DataType) -> pa.DataType:
    """The Arrow type for a type as it is written. Invalid for one that the lake cannot store as it is."""
    type_, parts = kind.this, kind.expressions
    if type_ in _TYPES and not parts:
        return _TYPES[type_]
    if type_ == _Type.DECIMAL:
        numbers = [int(part.name) for part in parts] if parts else list(_DECIMAL)
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise Invalid(f"{kind.sql(DIALECT)} is not a type: a decimal has 1 to 38 digits")
        return pa.decimal128(precision, scale)
    if type_ in (_Type.LIST, _Type.ARRAY) and len(parts) == 1 and isinstance(parts[0], exp.DataType):
        return pa.list_(column_type(parts[0]))
    if type_ == _Type.STRUCT and parts and all(isinstance(part, exp.ColumnDef) for part in parts):
        return pa.struct([pa.field(part.name, column_type(part.args["kind"])) for part in parts])
    if type_ == _Type.MAP and len(parts) == 2:
        return pa.map_(column_type(parts[0]), column_type(parts[1]))
    raise Invalid(f"a column cannot be {kind.sql(DIALECT)}: choose {_NAMES}")


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a new table for the rows of a SELECT: narrow and unsigned integers become wider ones."""
    return pa.schema([pa.field(column.name, _stored(column.type, column.name)) for column in schema])


def _stored(type_: pa.DataType, name: str) -> pa.DataType:
    if pa.types.is_null(type_):
        raise Invalid(f"column {name} has no type: write CAST(NULL AS VARCHAR) AS {name}, or another type")
    if type_ in (pa.int8(), pa.int16(), pa.uint8(), pa.uint16()):
        return pa.int32()
    if type_ == pa.uint32():
        return pa.int64()
    if type_ == pa.uint64():
        return pa.decimal128(20, 0)
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_list(type_):
        return pa.list_(_stored(type_.value_type, name))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(part.name, _stored(part.type, name)) for part in type_])
    if pa.types.is_interval(type_) or pa.types.is_duration(type_):
        raise Invalid(f"column {name} is an interval, which a table cannot store: cast it")
    return type_
