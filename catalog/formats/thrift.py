"""Thrift's compact protocol, as far as Parquet's headers use it. Pure; its cost is bounded by its input."""

from __future__ import annotations

from typing import Any

from catalog.formats.limits import FileRejected

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_DEPTH = 32

Struct = dict[int, tuple[int, Any]]
"""Field number -> its type and value. The values of booleans, bytes, doubles and maps are skipped: None."""


def parse_struct(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """The struct that begins at `at`, and where it ends. Raises FileRejected if it is malformed or truncated."""
    reader = _Reader(data, at)
    try:
        return reader.struct(0), reader.at
    except IndexError:
        raise malformed("a header is truncated") from None


def field(struct: Struct, number: int, kind: int) -> Any:
    """The value of a field if it has that type, else None, as in Thrift's own readers."""
    typed = struct.get(number)
    return typed[1] if typed is not None and typed[0] == kind else None


def malformed(reason: str) -> FileRejected:
    """The error for a Parquet file that violates its format."""
    return FileRejected(f"the file is not valid Parquet: {reason}")


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def struct(self, depth: int) -> Struct:
        if depth > _DEPTH:
            raise malformed("the structs of a header are nested too deep")
        fields, number = Struct(), 0
        while head := self._byte():
            kind = head & 0x0F
            number = number + (head >> 4) if head >> 4 else _zigzag(self._varint())
            fields[number] = (kind, None if kind in (TRUE, FALSE) else self._value(kind, depth))
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (I16, I32, I64):
            return _zigzag(self._varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind == BINARY:
            return self._take(self._varint())
        if kind in (LIST, SET):
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            return [value for (value,) in self._values(count, [head & 0x0F], depth)]
        if kind == MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            return self._values(count, [kinds >> 4, kinds & 0x0F], depth) and None
        if kind in (TRUE, FALSE, BYTE):  # within a list a boolean takes one byte
            return self._take(1) and None
        if kind == DOUBLE:
            return self._take(8) and None
        raise malformed(f"a header has a field of the unknown type {kind}")

    def _values(self, count: int, kinds: list[int], depth: int) -> list[list[Any]]:
        if depth > _DEPTH or count > len(self._data) - self.at:  # each value takes at least one byte
            raise malformed("a list in a header is longer than the header")
        return [[self._value(kind, depth + 1) for kind in kinds] for _ in range(count)]

    def _take(self, count: int) -> bytes:
        data = self._data[self.at : self.at + count]
        if len(data) < count:
            raise malformed("a header is truncated")
        self.at += count
        return data

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise malformed("a number in a header is too long")
        return value | byte << shift


def _zigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)
