"""The type tags of the row encoding.

Types that Iceberg may promote into each other share a tag, so that promotion changes no digest.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pyarrow as pa

NULL: Final = 0x00
BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
FLOATING: Final = 0x03
DECIMAL: Final = 0x04
DATE: Final = 0x05
TIME: Final = 0x06
TIMESTAMP: Final = 0x07
TIMESTAMP_ZONED: Final = 0x08
TIMESTAMP_NS: Final = 0x09
TIMESTAMP_NS_ZONED: Final = 0x0A
STRING: Final = 0x0B
BYTES: Final = 0x0C
LIST: Final = 0x0D
MAP: Final = 0x0E
STRUCT: Final = 0x0F


class Scalar(NamedTuple):
    """A type whose value fits the 8 bytes of the slot: cast to `through`, then read its memory as `view`."""

    tag: int
    through: Any
    view: Any = None


def scalar(kind: Any) -> Scalar | None:
    """How to write values of an Arrow type into the slot; None for types with a payload."""
    types = pa.types
    if types.is_boolean(kind):
        return Scalar(BOOLEAN, pa.bool_())
    if types.is_integer(kind):
        return Scalar(INTEGER, pa.int64())
    if types.is_floating(kind):
        return Scalar(FLOATING, pa.float64())
    if types.is_date(kind):
        return Scalar(DATE, pa.date32(), pa.int32())
    if types.is_time(kind):
        return Scalar(TIME, pa.time64("us"), pa.int64())
    if types.is_timestamp(kind):
        zoned = kind.tz is not None  # an instant: Arrow stores it in UTC, whatever zone it names
        if kind.unit == "ns":
            return Scalar(TIMESTAMP_NS_ZONED if zoned else TIMESTAMP_NS, kind, pa.int64())
        return Scalar(TIMESTAMP_ZONED if zoned else TIMESTAMP, pa.timestamp("us", kind.tz), pa.int64())
    return None


def is_text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_bytes(kind: Any) -> bool:
    """Binary, fixed and uuid share a tag: readers differ in which of them a column becomes."""
    types = pa.types
    return (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_list(kind: Any) -> bool:
    """List views are excluded: pyarrow 26 casts them to lists wrongly, and no Iceberg reader produces them."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def plain(kind: Any) -> Any:
    """The type with times and dates as integers and extension types as their storage type.

    Python can represent every value of such a type, and orders key values as change records are ordered.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if types.is_temporal(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    if types.is_struct(kind):
        # Arrow does not cast a NULL struct (the row before an INSERT) that has a non-nullable field.
        return pa.struct([field.with_type(plain(field.type)).with_nullable(True) for field in kind])
    if types.is_map(kind):
        return pa.map_(*(field.with_type(plain(field.type)) for field in (kind.key_field, kind.item_field)))
    return pa.list_(kind.value_field.with_type(plain(kind.value_type))) if is_list(kind) else kind
