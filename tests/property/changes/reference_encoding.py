"""docs/row-digest.md once more, in plain Python that shares no code with catalog.changes: an encoder and a decoder."""

from __future__ import annotations

import math
import struct

import pyarrow as pa

# The reference: docs/row-digest.md, written down for one value at a time. Times and dates are integers here.

NAN = bytes.fromhex("7ff8000000000000")


def number(value: int, width: int = 8) -> bytes:
    return value.to_bytes(width, "big", signed=value < 0)


def reference_value(kind, value) -> tuple[int, bytes, bytes]:
    """(tag, slot, payload)"""
    types = pa.types
    if value is None:
        return 0, bytes(8), b""
    if types.is_boolean(kind):
        return 1, number(int(value)), b""
    if types.is_integer(kind):
        return 2, number(value), b""
    if types.is_floating(kind):
        return 3, NAN if math.isnan(value) else struct.pack(">d", value), b""
    if types.is_decimal(kind):
        sign, digits, _ = value.as_tuple()
        text = b"-" * sign + (b"".join(b"%d" % digit for digit in digits).lstrip(b"0") or b"0")
        text = b"0" if text == b"-0" else text
        return 4, number(kind.scale, 4) + number(len(text), 4), text
    if types.is_date(kind):
        return 5, number(value), b""
    if types.is_time(kind):
        return 6, number(value), b""
    if types.is_timestamp(kind):
        return 7 + (kind.tz is not None) + 2 * (kind.unit == "ns"), number(value), b""
    if types.is_string(kind):
        return 11, number(len(value.encode())), value.encode()
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return 12, number(len(value)), value
    if types.is_list(kind):
        return 13, number(len(value)), b"".join(reference_item(kind.value_type, item) for item in value)
    if types.is_map(kind):
        pairs = [reference_item(kind.key_type, k) + reference_item(kind.item_type, v) for k, v in value]
        return 14, number(len(value)), b"".join(sorted(pairs))
    assert types.is_struct(kind)
    return reference_struct(kind, value)


def reference_item(kind, value) -> bytes:
    tag, slot, payload = reference_value(kind, value)
    return bytes([tag]) + slot + payload


def reference_struct(fields, row) -> tuple[int, bytes, bytes]:
    directory, payloads, count = b"", b"", 0
    for field in sorted(fields, key=lambda field: int(field.metadata[b"PARQUET:field_id"])):
        if row[field.name] is not None:
            tag, slot, payload = reference_value(field.type, row[field.name])
            directory += number(int(field.metadata[b"PARQUET:field_id"]), 4) + bytes([tag]) + slot
            payloads += payload
            count += 1
    return 15, number(count), directory + payloads


def reference_row(schema, row) -> bytes:
    tag, slot, payload = reference_struct(schema, row)
    return bytes(4) + bytes([tag]) + slot + payload


class Bytes:
    """Reads an encoding back. What two rows have in common here, they have in common as values."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        assert self.at + count <= len(self.data)
        self.at += count
        return self.data[self.at - count : self.at]

    def item(self):
        tag, slot = self.take(1)[0], self.take(8)
        return (tag, self.payload(tag, slot)) if tag else None

    def payload(self, tag: int, slot: bytes):
        size = int.from_bytes(slot, "big")
        if tag == 4:
            return int.from_bytes(slot[:4], "big"), self.take(int.from_bytes(slot[4:], "big"))
        if tag in (11, 12):
            return self.take(size)
        if tag == 13:
            return [self.item() for _ in range(size)]
        if tag == 14:
            return [(self.item(), self.item()) for _ in range(size)]
        if tag == 15:
            entries = [(self.take(4), self.take(1)[0], self.take(8)) for _ in range(size)]
            return {number: (tag, self.payload(tag, slot)) for number, tag, slot in entries}
        return slot


def read_back(data: bytes):
    reader = Bytes(data)
    assert reader.take(4) == bytes(4)
    value = reader.item()
    assert reader.at == len(data)
    return value


def meaning(kind, value):
    """What `read_back` should find, said without an encoding."""
    types = pa.types
    if value is None:
        return None
    tag, slot, payload = reference_value(kind, value)
    if types.is_decimal(kind):
        return tag, (kind.scale, payload)
    if types.is_list(kind):
        return tag, [meaning(kind.value_type, item) for item in value]
    if types.is_map(kind):
        pairs = [(k, v) for _, k, v in sorted((reference_item(kind.key_type, k), k, v) for k, v in value)]
        return tag, [(meaning(kind.key_type, k), meaning(kind.item_type, v)) for k, v in pairs]
    if types.is_struct(kind):
        numbers = {field.name: number(int(field.metadata[b"PARQUET:field_id"]), 4) for field in kind}
        found = {numbers[field.name]: meaning(field.type, value[field.name]) for field in kind}
        return tag, {key: held for key, held in found.items() if held is not None}
    return tag, payload if tag in (11, 12) else slot
