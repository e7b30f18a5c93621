"""Reads a row's encoding (docs/row-digest.md) back: field id -> value. Needs the standard library alone.

An encoding has one reading, and what is not an encoding is a ValueError: depth and lengths are checked first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_ENTRY, _ITEM = 13, 9
_EPOCH = datetime(1970, 1, 1)
MAX_DEPTH = 32


def decode_row(encoding: bytes) -> dict[int, Any]:
    """The row's values that are not NULL, by field id. Times in nanoseconds are integers; structs are by field id."""
    try:
        if encoding[:5] != b"\0\0\0\0\x0f":
            raise ValueError("it does not begin as a row")
        row, rest = _struct(int.from_bytes(encoding[5:13], "big"), encoding[13:], 0)
    except (ValueError, OverflowError, IndexError, struct.error) as error:
        raise ValueError(f"not the encoding of a row: {error}") from None
    if rest:
        raise ValueError("not the encoding of a row: it goes on after its end")
    return row


def _struct(count: int, data: bytes, depth: int) -> tuple[dict[int, Any], bytes]:
    if count * _ENTRY > len(data):
        raise ValueError("it ends too soon")
    entries, rest, values, last = data[: count * _ENTRY], data[count * _ENTRY :], dict[int, Any](), 0
    for at in range(0, len(entries), _ENTRY):
        field_id = int.from_bytes(entries[at : at + 4], "big")
        if field_id <= last:
            raise ValueError("its fields do not ascend")
        values[field_id], rest = _value(entries[at + 4], entries[at + 5 : at + 13], rest, depth)
        last = field_id
    return values, rest


def _value(tag: int, slot: bytes, data: bytes, depth: int) -> tuple[Any, bytes]:
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    number = int.from_bytes(slot, "big", signed=True)
    if tag in _SCALARS:
        return _SCALARS[tag](number), data
    match tag:
        case 1 if number in (0, 1):
            return bool(number), data
        case 3:
            return struct.unpack(">d", slot)[0], data
        case 4:
            scale, size = struct.unpack(">II", slot)
            digits, rest = _taken(data, size)
            return Decimal(int(digits)).scaleb(-scale), rest
        case 11:
            text, rest = _taken(data, number)
            return text.decode(), rest
        case 12:
            return _taken(data, number)
        case 13:
            return _items(number, data, depth)
        case 14:
            flat, rest = _items(2 * number, data, depth)
            return list(zip(flat[::2], flat[1::2], strict=True)), rest
        case 15:
            return _struct(number, data, depth + 1)
    raise ValueError(f"it has a value of the unknown tag {tag}")


def _items(count: int, data: bytes, depth: int) -> tuple[list[Any], bytes]:
    if not 0 <= count * _ITEM <= len(data):
        raise ValueError("it ends too soon")
    values = list[Any]()
    for _ in range(count):
        item, data = _taken(data, _ITEM)
        if item == bytes(_ITEM):
            values.append(None)
            continue
        value, data = _value(item[0], item[1:], data, depth + 1)
        values.append(value)
    return values, data


def _taken(data: bytes, size: int) -> tuple[bytes, bytes]:
    if not 0 <= size <= len(data):
        raise ValueError("it ends too soon")
    return data[:size], data[size:]


_SCALARS: dict[int, Callable[[int], Any]] = {
    2: lambda number: number,
    5: lambda days: date(1970, 1, 1) + timedelta(days=days),
    6: lambda micros: (_EPOCH + timedelta(microseconds=micros)).time() if 0 <= micros < 86_400_000_000 else time(25),
    7: lambda micros: _EPOCH + timedelta(microseconds=micros),
    8: lambda micros: _EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=micros),
    9: lambda nanos: nanos,
    10: lambda nanos: nanos,
}
