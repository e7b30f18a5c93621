"""The table's Iceberg schema as a leaf vouches for it, and what follows from it for a feed: columns, types and key.

Digests identify columns by id and say nothing of names, and types that can be promoted share a digest. So names, types
and the key are compared with the schema whose SHA-256 is in the leaf. Needs pyarrow, not pyiceberg.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from catalog.changes.encoding import field_id
from catalog.core.strict_json import parse_strictly

MAX_SCHEMA_BYTES: Final = 4 << 20
MAX_FIXED_BYTES: Final = 256 << 20
"""What the rows of a small feed may take in memory."""
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)")
_FIXED = re.compile(r"fixed\[([0-9]{1,9})\]")

_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "boolean": pa.types.is_boolean,
    "int": pa.types.is_int32,
    "long": pa.types.is_int64,
    "float": pa.types.is_float32,
    "double": pa.types.is_float64,
    "date": pa.types.is_date32,
    "time": lambda kind: kind == pa.time64("us"),
    "timestamp": lambda kind: kind == pa.timestamp("us"),
    "timestamptz": lambda kind: kind == pa.timestamp("us", "UTC"),
    "timestamp_ns": lambda kind: kind == pa.timestamp("ns"),
    "timestamptz_ns": lambda kind: kind == pa.timestamp("ns", "UTC"),
    "string": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    "uuid": lambda kind: kind == pa.uuid() or kind == pa.binary(16),
    "binary": lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    "unknown": pa.types.is_null,
}
"""Which Arrow types a feed may have for each of Iceberg's primitive types."""


def check_columns(schema_json: bytes, schema: pa.Schema, key: Sequence[str]) -> None:
    """ValueError unless columns and key are those of the Iceberg schema, whose digest the caller has checked.

    The key is the schema's identifier fields by ascending id. A schema may have none while the table has a key as a
    property: then any columns may be the key, also by ascending id. Which ones is in the digest of every change.
    """
    committed = parse_strictly(schema_json, max_bytes=MAX_SCHEMA_BYTES)
    if not isinstance(committed, dict):
        raise ValueError("the committed schema is not a JSON object")
    if len(set(schema.names)) != len(schema.names):
        raise ValueError("two columns have the same name")
    _check_fields(committed, list(schema))
    ids = {field.name: field_id(field) for field in schema}
    if not all(name in ids for name in key):
        raise ValueError(f"the key {', '.join(key)} is not among the columns of the committed schema")
    stated, claimed = committed.get("identifier-field-ids") or [], [ids[name] for name in key]
    if claimed != sorted(set(claimed)) or (stated and claimed != sorted(set(stated))):
        expected = [name for name, number in sorted(ids.items(), key=lambda item: item[1]) if number in stated]
        by_id = ", ".join(expected) or "in the order of their field ids"
        raise ValueError(f"the key columns are ({', '.join(key)}); by the committed schema they are {by_id}")


def _check_fields(struct: Any, fields: Sequence[pa.Field[Any]]) -> None:
    committed = {field["id"]: field for field in struct["fields"]}
    if len(committed) != len(struct["fields"]) or sorted(committed) != sorted(map(field_id, fields)):
        raise ValueError("the feed's columns are not those of the committed schema")
    for field in fields:
        stated = committed[field_id(field)]
        if stated["name"] != field.name:
            raise ValueError(f"the feed's columns have {field.name!r}, the committed schema has {stated['name']!r}")
        _check_type(stated["type"], field.type, field.name)


def _check_type(stated: Any, kind: Any, name: str) -> None:
    match stated:
        case {"type": "struct"} if pa.types.is_struct(kind):
            _check_fields(stated, list(kind))
        case {"type": "map"} if pa.types.is_map(kind):
            _check_type(stated["key"], kind.key_type, name)
            _check_type(stated["value"], kind.item_type, name)
        case {"type": "list"} if _is_list(kind):
            _check_type(stated["element"], kind.value_type, name)
        case str() if _is_primitive(stated, kind):
            return
        case _:
            raise ValueError(f"of the feed's columns, {name!r} is {kind}; in the committed schema it is {stated!r:.80}")


def check_types(schema: pa.Schema, rows: int, size: int) -> None:
    """ValueError for a type that no committed schema has, and for rows that take far more memory than their `size`.

    Arrow allocates the width of a value also where it is NULL, and a column may be of any width.
    """
    if len(set(schema.names)) != len(schema.names):
        raise ValueError("two columns have the same name")
    width = sum(_fixed_width(field.type, field.name) for field in schema)
    if 2 * width * (rows + 2) > max(MAX_FIXED_BYTES, 64 * size):
        raise ValueError(f"{rows} rows of at least {width} bytes are too much for {size} bytes of feed")


def _fixed_width(kind: Any, name: str) -> int:
    """The bytes that a value takes at least; ValueError for a type that no Iceberg type becomes."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) != len(names):
            raise ValueError(f"two fields in column {name!r} have the same name")
        return sum(_fixed_width(field.type, name) for field in kind)
    if pa.types.is_map(kind):
        return _fixed_width(kind.key_type, name) + _fixed_width(kind.item_type, name)
    if _is_list(kind):
        return _fixed_width(kind.value_type, name)
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return int(kind.byte_width)
    if pa.types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        # Arrow accepts any scale in a schema, and pyarrow 26 crashes on a value of one in the millions.
        raise ValueError(f"column {name!r} has the type {kind}, which no table has")
    if not (pa.types.is_decimal128(kind) or any(is_type(kind) for is_type in _TYPES.values())):
        raise ValueError(f"column {name!r} has the type {kind}, which no table has")
    return 16


def _is_list(kind: Any) -> bool:
    """Fixed-size lists are excluded: Iceberg has none."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _is_primitive(stated: str, kind: Any) -> bool:
    if stated in _TYPES:
        return _TYPES[stated](kind)
    if decimal := _DECIMAL.fullmatch(stated):
        precision, scale = (int(part) for part in decimal.groups())
        return pa.types.is_decimal128(kind) and (kind.precision, kind.scale) == (precision, scale)
    if fixed := _FIXED.fullmatch(stated):
        return pa.types.is_fixed_size_binary(kind) and kind.byte_width == int(fixed.group(1))
    return False
