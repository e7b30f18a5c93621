"""Parquet's footer and page headers, read before any page is decoded: where the pages are, and their decoded sizes.

The sizes in a footer cannot be trusted: a decoder allocates what each page's own header declares. pyarrow does not
expose page headers, and a forged footer can crash it; so both are parsed here (parquet.thrift).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from catalog.formats.limits import FileRejected
from catalog.formats.thrift import I32, I64, LIST, STRUCT, Struct, field, malformed, parse_struct

DATA, DICTIONARY, DATA_V2 = 0, 2, 3
DELTA_BYTE_ARRAY = 7
FOOTER_BYTES = 16 << 20
TAIL_BYTES = 8
_HEADER_OF = {DATA: 5, DICTIONARY: 7, DATA_V2: 8}
_ENCODING_OF = {DATA: 2, DICTIONARY: 2, DATA_V2: 4}


@dataclass(frozen=True, slots=True)
class Chunk:
    """The byte range of a column's pages in one row group."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    rows: int
    size: int
    """Decompressed, as the footer declares it."""
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """`size`: decompressed, in bytes. `values`: including nulls; of a dictionary page, its entries."""

    kind: int
    size: int
    values: int
    encoding: int


def footer_length(tail: bytes) -> int:
    """The length of the footer, from the file's last 8 bytes."""
    if len(tail) != TAIL_BYTES or tail[4:] != b"PAR1":
        raise FileRejected("the file is not valid Parquet, or is truncated: it does not end in PAR1")
    length = int.from_bytes(tail[:4], "little")
    if length > FOOTER_BYTES:
        raise FileRejected(f"the footer is {length} bytes, over the limit of {FOOTER_BYTES}: write larger row groups")
    return length


def read_row_groups(footer: bytes) -> list[RowGroup]:
    """The row groups of a footer. Raises FileRejected if it is malformed."""
    return [_row_group(group) for group in _structs(parse_struct(footer)[0], 4)]


def _row_group(group: Struct) -> RowGroup:
    chunks = []
    for column in _structs(group, 1):
        meta = field(column, 3, STRUCT)
        if meta is None:
            raise malformed("a column chunk has no metadata, or is encrypted")
        start, dictionary = _number(meta, 9, I64), field(meta, 11, I64)
        if dictionary is not None and 0 < dictionary < start:
            start = dictionary
        chunks.append(Chunk(start, start + _number(meta, 7, I64)))
    return RowGroup(_number(group, 3, I64), _number(group, 2, I64), tuple(chunks))


def read_pages(chunk: bytes) -> Iterator[Page]:
    """The pages of one column chunk, without their contents. Raises FileRejected if a header is malformed."""
    at = 0
    while at < len(chunk):
        header, at = parse_struct(chunk, at)
        kind, size, compressed = (_number(header, number, I32) for number in (1, 2, 3))
        at += compressed
        if at > len(chunk):
            raise malformed("a page is longer than its column chunk")
        if kind in _HEADER_OF:
            inner = field(header, _HEADER_OF[kind], STRUCT)
            if inner is None:
                raise malformed("a page lacks the header of its type")
            yield Page(kind, size, _number(inner, 1, I32), _number(inner, _ENCODING_OF[kind], I32))


def _structs(struct: Struct, number: int) -> list[Struct]:
    values = field(struct, number, LIST)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise malformed("the footer lacks a list")
    return values


def _number(struct: Struct, number: int, kind: int) -> int:
    value = field(struct, number, kind)
    if value is None or not 0 <= value < (2**31 if kind == I32 else 2**63):
        raise malformed("a header lacks a number, or has a negative one")
    return int(value)
