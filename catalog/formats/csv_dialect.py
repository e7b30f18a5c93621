"""The dialect of a CSV file: its delimiter and encoding, detected or set by a rule, and how its numbers are written.

Only what is certain is detected. A header that could be cut in two ways is rejected, with the option that decides.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from catalog.formats.limits import FileRejected
from catalog.formats.text_times import DateOrder

Encoding = Literal["utf-8", "utf-16", "latin-1", "windows-1252"]
DELIMITERS = (",", ";", "\t", "|")
SAMPLE_BYTES = 64 << 10
_SAMPLE_ROWS = 50
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ADVICE = "set it with `strandline ingest rule set TABLE --csv delimiter=…`"


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """What a rule says of CSV files. None: detected from the file's first bytes.

    `decimal` and `thousands` are the marks in numbers: `1.234,5` has a decimal comma, and a point for thousands. An
    empty value is null, and so is one of `nulls` without quotes. `skip_lines` are before the header. `dates`: whether
    the day or the month is first in `01/02/2026`.
    """

    delimiter: str | None = None
    encoding: Encoding | None = None
    quote: str = '"'
    decimal: str = "."
    thousands: str | None = None
    nulls: tuple[str, ...] = ()
    skip_lines: int = 0
    dates: DateOrder | None = None

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "decimal", "thousands"):
            mark = getattr(self, name)
            if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in "\r\n\0"):
                raise ValueError(f"{name} is one ASCII character, not {mark!r}")
        if self.decimal not in ".,":
            raise ValueError("decimal is `.` or `,`")
        if self.thousands is not None and self.thousands not in ".,' _":
            raise ValueError("thousands is one of `.` `,` `'` `_` and the space")
        if self.thousands == self.decimal:
            raise ValueError("thousands and decimal are the same mark")
        if self.delimiter is not None and self.delimiter in (self.quote, self.thousands):
            raise ValueError("delimiter and quote, or thousands, are the same mark")
        if not 0 <= self.skip_lines <= 1000:
            raise ValueError("skip_lines is from 0 to 1000")
        if len(self.nulls) > 100 or any(len(text) > 100 for text in self.nulls):
            raise ValueError("nulls are at most 100 texts of at most 100 characters")


class Utf8Stream:
    """A stream of another encoding as UTF-8. Raises FileRejected for bytes that the encoding does not have."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream, self._encoding, self._ready, self._ended = stream, encoding, b"", False
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def read(self, size: int = -1) -> bytes:
        """Exactly `size` bytes, fewer only at the end of the stream."""
        while not self._ended and (size < 0 or len(self._ready) < size):
            data = self._stream.read(max(size, SAMPLE_BYTES))
            self._ended = not data
            try:
                self._ready += self._decoder.decode(data, self._ended).encode()
            except UnicodeError as error:  # an odd number of bytes, half of a pair, a byte that is not assigned
                raise FileRejected(f"the file is not {self._encoding}: {getattr(error, 'reason', error)}") from None
        size = len(self._ready) if size < 0 else size
        part, self._ready = self._ready[:size], self._ready[size:]
        return part


class StreamWithHead:
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, stream: Any) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return bytes(self._stream.read(size))
        head, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
        missing = size - len(head)
        return head + (self._stream.read(missing if size >= 0 else -1) if missing else b"")


def resolve_dialect(stream: Any, options: CsvOptions) -> tuple[CsvOptions, Any]:
    """The options with what was detected in place of None, and the stream as UTF-8 that begins with the header."""
    encoding, head, stream = _as_utf8(stream, options.encoding)
    head, stream = _skip_lines(head, stream, options.skip_lines)
    delimiter = options.delimiter or detect_delimiter(head, options.quote)
    return replace(options, delimiter=delimiter, encoding=encoding), stream


def _as_utf8(stream: Any, encoding: Encoding | None) -> tuple[Encoding, bytes, Any]:
    """The encoding, if it is None by the first bytes; the first bytes and the whole stream as UTF-8."""
    head = stream.read(SAMPLE_BYTES)
    if encoding is None:
        encoding = "utf-16" if head.startswith(_UTF_16) else "utf-8"
    stream = StreamWithHead(head, stream)
    if encoding != "utf-8":
        stream = Utf8Stream(stream, encoding)
        head = stream.read(SAMPLE_BYTES)
        stream = StreamWithHead(head, stream)
    return encoding, head, stream


def _skip_lines(head: bytes, stream: Any, count: int) -> tuple[bytes, Any]:
    """Both without the first `count` lines, which must lie in the first bytes."""
    at = 0
    for _ in range(count):
        at = head.find(b"\n", at) + 1
        if not at:
            raise FileRejected(f"the file has fewer lines than the {count} that the rule skips")
    stream.read(at)
    return head[at:], stream


def detect_delimiter(sample: bytes, quote: str) -> str:
    """The delimiter of a file that begins so. FileRejected if there are two that fit.

    The header decides. If it has several of the marks, the one by which all rows have as many columns.
    """
    text = sample.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    rows = list(_rows(text, quote, complete=len(sample) < SAMPLE_BYTES))
    if not rows:
        return ","
    marks = [mark for mark in DELIMITERS if mark in rows[0]]
    if len(marks) <= 1:
        return marks[0] if marks else ","
    even = [mark for mark in marks if len({row.count(mark) for row in rows}) == 1]
    if len(even) == 1:
        return even[0]
    if not even and "," in marks:
        return ","  # the row that has another number of columns is named
    shown = " and ".join(repr(mark) for mark in even or marks)
    raise FileRejected(f"{shown} could both be the delimiter: {_ADVICE}", row=1)


def _rows(text: str, quote: str, complete: bool) -> Iterator[str]:
    """The first rows without what is in quotes; the last one only if the text is the whole file."""
    outside = "".join(part.replace("\r\n", "\n").replace("\r", "\n") for part in text.split(quote)[::2])
    rows = outside.split("\n")
    if not complete:
        rows = rows[:-1] or rows
    yield from [row for row in rows if row][:_SAMPLE_ROWS]
