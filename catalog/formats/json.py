"""JSON to Arrow: JSON lines block by block, and JSON documents (one object, several, or an array) value by value.

Strings stay strings: one that looks like a time becomes a time only if the table's schema says so. pyarrow parses
whole blocks; rows are parsed one by one only to tell which of them is invalid.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.types as pt

from catalog.formats.byte_positions import find_bytes
from catalog.formats.json_lists import with_leading_nulls
from catalog.formats.json_numbers import check_numbers
from catalog.formats.json_width import CELLS, block_parts, check_width, count_fields, count_objects, row_parts
from catalog.formats.limits import FileRejected, FormatLimits

BLOCK_BYTES = 4 << 20
_IN_ROW = re.compile(r"(?:JSON parse error: )?(?P<reason>.*?)\.? in row (?P<row>\d+)$", re.S)
_COLUMN = re.compile(r"^Column\(/?(?P<column>[^)]*)\) ")
_BREAK, _BRACE = b"\n{"
_SHORT = 1000
"""No line of this many bytes can be nested deep enough to exhaust the stack in pyarrow."""
_Part = tuple[int, bytes, list[bytes] | None]
"""How many lines or rows are before it, its text, and its rows if they were cut already."""
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]')


def read_json_lines(stream: Any, limits: FormatLimits, hint: pa.Schema | None) -> Iterator[pa.Table]:
    """One object a line; blank lines are passed over. Memory: two blocks, a row, and a block's rows."""
    parser, rest, first_line = _Parser(limits, hint, "line"), b"", 1
    data = stream.read(BLOCK_BYTES).removeprefix(codecs.BOM_UTF8)
    while data:
        following = stream.read(BLOCK_BYTES)
        # A block ends at a line break or at the end of the file, which need not have one.
        cut = data.rfind(b"\n") + 1 if following else len(data)
        # A block without a line break is added to the rest, which the limit on a row's size bounds.
        block = b"".join((rest, memoryview(data)[:cut])) if cut else b""
        rest = data[cut:] if cut else rest + data
        breaks = find_bytes(block, lambda part: part == _BREAK)
        if len(rest) > limits.row_bytes:
            raise _too_long(limits, line=first_line + len(breaks))
        yield from parser.parse_lines(block, first_line, _Bounds.of_lines(block, breaks))
        first_line += len(breaks)
        data = following


def read_json(stream: Any, limits: FormatLimits, hint: pa.Schema | None) -> Iterator[pa.Table]:
    """An array of objects, or a sequence of objects with any white space between. Memory: one block of objects."""
    parser, rows, size, first = _Parser(limits, hint, "row"), list[bytes](), 0, 0
    for text in _values(stream, limits):
        rows.append(text)
        size += len(text)
        if size >= BLOCK_BYTES:
            yield from parser.parse_rows(rows, first)
            first, rows, size = first + len(rows), [], 0
    yield from parser.parse_rows(rows, first)


def _values(stream: Any, limits: FormatLimits) -> Iterator[bytes]:
    """The text of each object of an array or of a sequence."""
    text = _Text(stream, limits)
    array = text.accept("[")
    closed = array and text.accept("]")
    while not closed and text.peek():
        yield text.take_object()
        if array:
            closed = text.accept("]")
            if not closed and not text.accept(","):
                raise FileRejected("a comma or the end of the array is missing; the file may be cut off", row=text.row)
    if array and not closed:
        raise FileRejected("the array is not closed: the file is cut off", row=text.row)
    if text.peek():
        raise FileRejected("there is text after the end of the array", row=text.row)


class _Text:
    """Reads JSON values off a stream of UTF-8. Memory: a block and a row."""

    def __init__(self, stream: Any, limits: FormatLimits) -> None:
        self.row = 0
        self._stream, self._limits = stream, limits
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder(parse_constant=_no_constant)
        self._text, self._position, self._ended = "", 0, False

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            while self._position < len(self._text):
                if self._text[self._position] not in " \t\r\n":
                    return self._text[self._position]
                self._position += 1
            if not self._more():
                return ""

    def accept(self, mark: str) -> bool:
        matches = self.peek() == mark
        self._position += matches
        return matches

    def take_object(self) -> bytes:
        self.peek()
        while True:
            try:
                value, end = self._scan.raw_decode(self._text, self._position)
                break
            except RecursionError:
                raise FileRejected("it is nested too deeply", row=self.row) from None
            except ValueError as error:
                message = getattr(error, "msg", str(error))
                if len(self._text) - self._position > self._limits.row_bytes:
                    reason = f"it is not JSON ({message}), or longer than {self._limits.row_bytes} bytes"
                    raise FileRejected(reason, row=self.row) from None
                if not isinstance(error, json.JSONDecodeError) or not self._more():
                    raise FileRejected(f"it is not JSON: {message}", row=self.row) from None
        if not isinstance(value, dict):
            raise FileRejected(f"it is a {type(value).__name__}, not an object with columns", row=self.row)
        raw = self._text[self._position : end].encode()
        self._position, self.row = end, self.row + 1
        return raw

    def _more(self) -> bool:
        """Reads another block; False at the end of the stream."""
        if self._ended:
            return False
        data = self._stream.read(BLOCK_BYTES)
        self._ended = not data
        try:
            self._text, self._position = self._text[self._position :] + self._decode.decode(data, self._ended), 0
        except UnicodeDecodeError as error:
            raise FileRejected(f"it is not UTF-8: {error.reason}", row=self.row) from None
        return not self._ended


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


@dataclass(frozen=True)
class _Bounds:
    """What no row of a block passes."""

    length: int
    depth: int
    """0 if every line is too short to exhaust pyarrow's stack: the parsed schema then tells its depth."""

    @classmethod
    def of_lines(cls, block: bytes, breaks: np.ndarray[Any, Any]) -> _Bounds:
        """The most bytes that a line has, and the most braces and brackets that a line opens."""
        ends = np.append(breaks, len(block))
        length = int(np.diff(ends, prepend=0).max())
        if length <= _SHORT:
            return cls(length, 0)
        opened = find_bytes(block, lambda part: (part | 0x20) == _BRACE)  # a bracket is a brace without this bit
        return cls(length, int(np.diff(np.searchsorted(opened, ends), prepend=0).max()))

    @classmethod
    def of_rows(cls, rows: list[bytes]) -> _Bounds:
        return cls(max(map(len, rows), default=0), max((row.count(b"{") + row.count(b"[") for row in rows), default=0))


class _Parser:
    """Parses blocks of whole rows with pyarrow, and gives its errors the position in the file."""

    def __init__(self, limits: FormatLimits, hint: pa.Schema | None, unit: str) -> None:
        self._limits, self._unit = limits, unit
        self._hint = pa.schema([field for field in hint or () if _can_hint(field.type)])
        self._text: dict[str, pa.Field[Any]] = {}
        self._known: pa.Schema | None = None
        self._unified: pa.Schema | None = None if hint is not None else pa.schema([])

    def parse_lines(self, block: bytes, first: int, bounds: _Bounds) -> Iterator[pa.Table]:
        """The tables of a block of whole lines. `first` is the number of its first line."""
        parts = ((before, part, None) for before, part in block_parts(block))
        yield from self._parse_parts(block, None, parts, first, bounds)

    def parse_rows(self, rows: list[bytes], first: int) -> Iterator[pa.Table]:
        """The same for rows that were cut already."""
        bounds = _Bounds.of_rows(rows)
        parts = ((before, b"\n".join(part), part) for before, part in row_parts(rows))
        yield from self._parse_parts(b"\n".join(rows), rows, parts, first, bounds)

    def _parse_parts(
        self, block: bytes, rows: list[bytes] | None, parts: Iterator[_Part], first: int, bounds: _Bounds
    ) -> Iterator[pa.Table]:
        """Parses a dense block at once, since its columns are known from the rows before, and any other in parts."""
        at = 0
        for number, (before, part, part_rows) in enumerate(parts):
            # Its columns may be known from the block before; if not, from its first part. Then it is not dense.
            if number < 2 and len(part) < len(block) - at:
                rest = block[at:] if at else block
                table = self._parse_known(rest, rows and rows[before:], first + before, bounds)
                if table is not None:
                    yield table
                    return
            at += len(part) + (part_rows is not None)  # the line break that joins two rows
            if part and not part.isspace():
                yield self._parse(part, part_rows, first + before, bounds)

    def _parse(self, block: bytes, rows: list[bytes] | None, first: int, bounds: _Bounds) -> pa.Table:
        self._check(block, rows, first, bounds)
        expected = {field.name: field for field in self._hint} | self._text
        try:
            try:
                table = self._read(block, list(expected.values()))
            except pa.ArrowInvalid:
                if not expected:
                    raise
                table = self._read(block, [])  # a value has another type: the check against the table says which
            if any(_is_deeper(field.type, self._limits.depth) for field in table.schema):
                self._check_rows(block, rows, first)
            without_times = [_without_times(field) for field in table.schema]
            if without_times != list(table.schema):
                table = self._read(block, without_times)
        except pa.ArrowInvalid as error:
            self._check_rows(block, rows, first)  # a limit that was passed explains more than a parse error
            raise self._explained(str(error), _lines(block, rows), first) from None
        return self._accept(table, block, rows, first)

    def _parse_known(self, block: bytes, rows: list[bytes] | None, first: int, bounds: _Bounds) -> pa.Table | None:
        """The block as rows with the columns and types of the last table. None if it has others, or nothing was parsed
        yet, or its objects have so many columns that it is parsed in parts."""
        if self._known is None or count_objects(block) * count_fields(self._known) > CELLS or block.isspace():
            return None
        self._check(block, rows, first, bounds)
        try:
            table = self._read(block, list(self._known), unexpected="error")
        except pa.ArrowInvalid:
            return None
        return self._accept(table, block, rows, first)

    def _accept(self, table: pa.Table, block: bytes, rows: list[bytes] | None, first: int) -> pa.Table:
        self._check_null_rows(table, block, rows, first)
        check_numbers(table, block, lambda: _numbered_rows(_lines(block, rows), first), self._unit)
        if self._unified is not None:
            try:
                self._unified = pa.unify_schemas([self._unified, table.schema], promote_options="permissive")
            except pa.ArrowTypeError as error:
                raise self._refused(f"a type changes in the rows that begin here: {error}", first) from None
        self._text |= {field.name: field for field in table.schema if pt.is_string(field.type)}
        self._known = table.schema
        return table

    def _read(
        self, block: bytes, fields: list[pa.Field[Any]], unexpected: Literal["error", "infer"] = "infer"
    ) -> pa.Table:
        def read(fields: list[pa.Field[Any]]) -> pa.Table:
            options = pj.ParseOptions(
                explicit_schema=pa.schema(fields) if fields else None,
                newlines_in_values=self._unit == "row",
                unexpected_field_behavior=unexpected,
            )
            source: Any = pa.BufferReader(block)  # no copy; the stubs know only files
            return pj.read_json(source, pj.ReadOptions(False, len(block) + 1), options)

        return with_leading_nulls(read(fields), read)

    def _check(self, block: bytes, rows: list[bytes] | None, first: int, bounds: _Bounds) -> None:
        if not block.isascii():
            try:
                block.decode()
            except UnicodeDecodeError as error:
                at = block.count(b"\n", 0, error.start)
                raise self._refused(f"it is not UTF-8: {error.reason}", first + at) from None
        text = block.lstrip(b" \t\r\n")
        if not text.startswith(b"{"):  # pyarrow crashes if the first value is null
            number = first + block.count(b"\n", 0, len(block) - len(text))
            raise self._refused("it is not JSON, or not an object with columns", number)
        if bounds.length > self._limits.row_bytes or bounds.depth > self._limits.depth:
            self._check_rows(block, rows, first)
        shortest = 4 * self._limits.columns  # that many keys take more bytes
        if bounds.length > shortest:
            for number, line in enumerate(_lines(block, rows), first):
                if len(line) > shortest:
                    check_width(line, self._limits, **{self._unit: number})

    def _check_rows(self, block: bytes, rows: list[bytes] | None, first: int) -> None:
        for number, line in enumerate(_lines(block, rows), first):
            if len(line) > self._limits.row_bytes:
                raise _too_long(self._limits, **{self._unit: number})
            if line.count(b"{") + line.count(b"[") > self._limits.depth and _depth(line) > self._limits.depth:
                raise self._refused(f"it is nested deeper than {self._limits.depth}", number)

    def _check_null_rows(self, table: pa.Table, block: bytes, rows: list[bytes] | None, first: int) -> None:
        """Rejects a line `null`: pyarrow makes a row of nulls of it."""
        if not all(column.null_count for column in table.columns):
            return
        for number, line in _numbered_rows(_lines(block, rows), first):
            if line.strip() == b"null":
                raise self._refused("it is null, not an object with columns", number)

    def _explained(self, message: str, lines: list[bytes], first: int) -> FileRejected:
        match = _IN_ROW.search(message)
        if match is None:
            return FileRejected(f"it is not JSON: {message}", **cast(dict[str, Any], {self._unit: first}))
        numbered = _numbered_rows(lines, first)
        number = numbered[min(int(match["row"]), len(numbered) - 1)][0]
        column = _COLUMN.search(match["reason"])
        if column is None:
            return self._refused(match["reason"], number)
        reason = _COLUMN.sub("it ", match["reason"])
        return self._refused(reason, number, column["column"].replace("/", ".") or None)

    def _refused(self, reason: str, number: int, column: str | None = None) -> FileRejected:
        return FileRejected(reason, column=column, **cast(dict[str, Any], {self._unit: number}))


def _lines(block: bytes, rows: list[bytes] | None) -> list[bytes]:
    return block.split(b"\n") if rows is None else rows


def _numbered_rows(lines: list[bytes], first: int) -> list[tuple[int, bytes]]:
    """The rows, which are the lines that are not blank, each with its line number."""
    return [(number, line) for number, line in enumerate(lines, first) if line.strip()]


def _too_long(limits: FormatLimits, **position: int) -> FileRejected:
    return FileRejected(f"it is longer than {limits.row_bytes} bytes", **cast(dict[str, Any], position))


def _depth(line: bytes) -> int:
    depth = deepest = 0
    for mark in _MARKS.finditer(line):
        if mark[0] in (b"{", b"["):
            depth += 1
            deepest = max(deepest, depth)
        elif mark[0] in (b"}", b"]"):
            depth -= 1
    return deepest


def _is_deeper(kind: Any, depth: int) -> bool:
    """Whether values of the type, the row included, are nested more deeply. Looks no deeper than that."""
    if depth <= 1:
        return bool(kind.num_fields)
    return any(_is_deeper(kind.field(number).type, depth - 1) for number in range(kind.num_fields))


def _can_hint(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_integer(kind) or pt.is_float64(kind) or pt.is_boolean(kind)


def _without_times(field: pa.Field[Any]) -> pa.Field[Any]:
    return field.with_type(_type_without_times(field.type))


def _type_without_times(kind: Any) -> Any:
    """The type with strings in place of times, also inside structs and lists."""
    if pt.is_timestamp(kind):
        return pa.string()
    if pt.is_struct(kind):
        return pa.struct([_without_times(field) for field in kind])
    return pa.list_(_type_without_times(kind.value_type)) if pt.is_list(kind) else kind
