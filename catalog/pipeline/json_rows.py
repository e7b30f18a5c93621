"""JSON to Arrow: JSON lines block by block, and JSON documents (one object, several, or an array) value by value.

Text stays text: a string that looks like a time is not made one, unless the table says that it is. The quick way is
pyarrow's; rows are looked at one by one only to say which of them is at fault.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.types as pt

from catalog.pipeline.json_numbers import check_numbers
from catalog.pipeline.limits import Limits, Refused

BLOCK_BYTES = 4 << 20
_IN_ROW = re.compile(r"(?:JSON parse error: )?(?P<reason>.*?)\.? in row (?P<row>\d+)$", re.S)
_COLUMN = re.compile(r"^Column\(/?(?P<column>[^)]*)\) ")
_BREAK, _BRACE = b"\n{"
_STEP = 128 << 10
_SHORT = 1000
"""A line of so many bytes is nested no deeper than that, which no recursion in pyarrow minds."""
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]')


def read_json_lines(stream: Any, limits: Limits, hint: pa.Schema | None) -> Iterator[pa.Table]:
    """One object a line; blank lines are passed over. Memory: two blocks, a row, and a block's rows."""
    parser, rest, first_line = _Parser(limits, hint, "line"), b"", 1
    data = stream.read(BLOCK_BYTES).removeprefix(codecs.BOM_UTF8)
    while data:
        following = stream.read(BLOCK_BYTES)
        # Up to the last line break, or to the file's end: a last line without one belongs to the block before it.
        cut = data.rfind(b"\n") + 1 if following else len(data)
        # Without a line break in it, the rest only grows; the limit on a row ends that.
        block = b"".join((rest, memoryview(data)[:cut])) if cut else b""
        rest = data[cut:] if cut else rest + data
        breaks = _find(block, lambda part: part == _BREAK)
        if len(rest) > limits.row_bytes:
            raise _too_long(limits, line=first_line + len(breaks))
        if block and not block.isspace():
            yield parser.parse(block, first_line, _most_opened(block, breaks))
        first_line += len(breaks)
        data = following


def read_json(stream: Any, limits: Limits, hint: pa.Schema | None) -> Iterator[pa.Table]:
    """An array of objects, or objects one after another, however they are laid out. Memory: one block of them."""
    parser, rows, size, first = _Parser(limits, hint, "row"), list[bytes](), 0, 0
    for text in _values(stream, limits):
        rows.append(text)
        size += len(text)
        if size >= BLOCK_BYTES:
            yield parser.parse_rows(rows, first)
            first, rows, size = first + len(rows), [], 0
    if rows:
        yield parser.parse_rows(rows, first)


def _values(stream: Any, limits: Limits) -> Iterator[bytes]:
    """The text of each object, in an array or one after another."""
    text = _Text(stream, limits)
    array = text.accept("[")
    closed = array and text.accept("]")
    while not closed and text.peek():
        yield text.take_object()
        if array:
            closed = text.accept("]")
            if not closed and not text.accept(","):
                raise Refused("the array goes on without a comma, or is cut off", row=text.row)
    if array and not closed:
        raise Refused("the array is not closed: the file is cut off", row=text.row)
    if text.peek():
        raise Refused("something follows the end of the array", row=text.row)


class _Text:
    """Text of which the beginning is understood, and as much of the rest is read as that takes: a block and a row."""

    def __init__(self, stream: Any, limits: Limits) -> None:
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
        found = self.peek() == mark
        self._position += found
        return found

    def take_object(self) -> bytes:
        self.peek()
        while True:
            try:
                value, end = self._scan.raw_decode(self._text, self._position)
                break
            except RecursionError:
                raise Refused("it is nested too deep", row=self.row) from None
            except ValueError as error:
                said = getattr(error, "msg", str(error))
                if len(self._text) - self._position > self._limits.row_bytes:
                    reason = f"it is no JSON ({said}), or longer than {self._limits.row_bytes} bytes"
                    raise Refused(reason, row=self.row) from None
                if not isinstance(error, json.JSONDecodeError) or not self._more():
                    raise Refused(f"it is no JSON: {said}", row=self.row) from None
        if not isinstance(value, dict):
            raise Refused(f"it is a {type(value).__name__}, not an object with columns", row=self.row)
        raw = self._text[self._position : end].encode()
        self._position, self.row = end, self.row + 1
        return raw

    def _more(self) -> bool:
        """Reads on; False if there was nothing left."""
        if self._ended:
            return False
        data = self._stream.read(BLOCK_BYTES)
        self._ended = not data
        try:
            self._text, self._position = self._text[self._position :] + self._decode.decode(data, self._ended), 0
        except UnicodeDecodeError as error:
            raise Refused(f"it is not UTF-8: {error.reason}", row=self.row) from None
        return not self._ended


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON's")


class _Parser:
    """Blocks of whole rows to Arrow, through pyarrow; its errors get the position in the file."""

    def __init__(self, limits: Limits, hint: pa.Schema | None, unit: str) -> None:
        self._limits, self._unit = limits, unit
        self._hint = pa.schema([field for field in hint or () if _can_be_told(field.type)])
        self._text: dict[str, pa.Field[Any]] = {}
        self._seen: pa.Schema | None = None if hint is not None else pa.schema([])

    def parse_rows(self, rows: list[bytes], first: int) -> pa.Table:
        most = max(row.count(b"{") + row.count(b"[") for row in rows)
        return self.parse(b"\n".join(rows), first, most, rows)

    def parse(self, block: bytes, first: int, most: int, rows: list[bytes] | None = None) -> pa.Table:
        """`first`: the number of the first line or row. `most`: a bound on how deep any of them is nested."""
        self._check(block, rows, first, most)
        known = {field.name: field for field in self._hint} | self._text
        try:
            try:
                found = self._read(block, list(known.values()))
            except pa.ArrowInvalid:
                if not known:
                    raise
                found = self._read(block, [])  # a value that is not as told: whoever checks the rows can say which
            plain = [_plain(field) for field in found.schema]
            if plain != list(found.schema):
                found = self._read(block, plain)
        except pa.ArrowInvalid as error:
            self._check_rows(block, rows, first)  # a row over a limit is called that, whatever else it is
            raise self._explained(str(error), _lines(block, rows), first) from None
        if any(_type_depth(field.type) > self._limits.depth for field in found.schema):
            self._check_rows(block, rows, first)
        check_numbers(found, lambda: _full(_lines(block, rows), first), self._unit)
        if self._seen is not None:
            try:
                self._seen = pa.unify_schemas([self._seen, found.schema], promote_options="permissive")
            except pa.ArrowTypeError as error:
                raise self._refused(f"a type changes in the rows that begin here: {error}", first) from None
        self._text |= {field.name: field for field in found.schema if pt.is_string(field.type)}
        return found

    def _read(self, block: bytes, fields: list[pa.Field[Any]]) -> pa.Table:
        options = pj.ParseOptions(
            explicit_schema=pa.schema(fields) if fields else None, newlines_in_values=self._unit == "row"
        )
        source: Any = pa.BufferReader(block)  # reads the bytes where they are; the stubs know only files
        return pj.read_json(source, pj.ReadOptions(False, len(block) + 1), options)

    def _check(self, block: bytes, rows: list[bytes] | None, first: int, most: int) -> None:
        if not block.isascii():
            try:
                block.decode()
            except UnicodeDecodeError as error:
                at = block.count(b"\n", 0, error.start)
                raise self._refused(f"it is not UTF-8: {error.reason}", first + at) from None
        if len(block) > self._limits.row_bytes or most > self._limits.depth:
            self._check_rows(block, rows, first)

    def _check_rows(self, block: bytes, rows: list[bytes] | None, first: int) -> None:
        for number, line in enumerate(_lines(block, rows), first):
            if len(line) > self._limits.row_bytes:
                raise _too_long(self._limits, **{self._unit: number})
            if line.count(b"{") + line.count(b"[") > self._limits.depth and _depth(line) > self._limits.depth:
                raise self._refused(f"it is nested deeper than {self._limits.depth}", number)

    def _explained(self, message: str, lines: list[bytes], first: int) -> Refused:
        found = _IN_ROW.search(message)
        if found is None:
            return Refused(f"it is no JSON: {message}", **cast(dict[str, Any], {self._unit: first}))
        full = _full(lines, first)
        number = full[min(int(found["row"]), len(full) - 1)][0]
        column = _COLUMN.search(found["reason"])
        if column is None:
            return self._refused(found["reason"], number)
        reason = _COLUMN.sub("it ", found["reason"])
        return self._refused(reason, number, column["column"].replace("/", ".") or None)

    def _refused(self, reason: str, number: int, column: str | None = None) -> Refused:
        return Refused(reason, column=column, **cast(dict[str, Any], {self._unit: number}))


def _lines(block: bytes, rows: list[bytes] | None) -> list[bytes]:
    return block.split(b"\n") if rows is None else rows


def _full(lines: list[bytes], first: int) -> list[tuple[int, bytes]]:
    """The lines with something in them, which are the rows, with their numbers."""
    return [(number, line) for number, line in enumerate(lines, first) if line.strip()]


def _find(block: bytes, wanted: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    """The positions of some bytes, looked for in steps that stay in the processor's cache."""
    seen = np.frombuffer(block, np.uint8)
    found = [wanted(seen[at : at + _STEP]).nonzero()[0] + at for at in range(0, len(seen), _STEP)]
    return np.concatenate([np.empty(0, np.int64), *found])


def _most_opened(block: bytes, breaks: np.ndarray[Any, Any]) -> int:
    """The most that any one line opens of braces and brackets, which bounds how deep it is nested. 0 if all lines are
    so short that pyarrow can be trusted with them whatever is in them: the schema then tells how deep they were."""
    ends = np.append(breaks, len(block))
    if int(np.diff(ends, prepend=0).max()) <= _SHORT:
        return 0
    opened = _find(block, lambda part: (part | 0x20) == _BRACE)  # a bracket is a brace without this bit
    return int(np.diff(np.searchsorted(opened, ends), prepend=0).max())


def _too_long(limits: Limits, **position: int) -> Refused:
    return Refused(f"it is longer than {limits.row_bytes} bytes", **cast(dict[str, Any], position))


def _depth(line: bytes) -> int:
    depth = deepest = 0
    for mark in _MARKS.finditer(line):
        if mark[0] in (b"{", b"["):
            depth += 1
            deepest = max(deepest, depth)
        elif mark[0] in (b"}", b"]"):
            depth -= 1
    return deepest


def _type_depth(kind: Any) -> int:
    """How deep values of the type are nested, with the row around them."""
    if not kind.num_fields:
        return 1
    return 1 + max(_type_depth(kind.field(number).type) for number in range(kind.num_fields))


def _can_be_told(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind)


def _plain(field: pa.Field[Any]) -> pa.Field[Any]:
    return field.with_type(_plain_type(field.type))


def _plain_type(kind: Any) -> Any:
    """The type with times as text, also inside structs and lists."""
    if pt.is_timestamp(kind):
        return pa.string()
    if pt.is_struct(kind):
        return pa.struct([_plain(field) for field in kind])
    return pa.list_(_plain_type(kind.value_type)) if pt.is_list(kind) else kind
