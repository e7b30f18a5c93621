"""CSV to Arrow: a header, then rows. Every value is text first; a type is given only where it changes no value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.types as pt

from catalog.pipeline.limits import Limits, Refused

_ROW = re.compile(r"Row #(?P<row>\d+): (?P<reason>.*)", re.S)
_COLUMN = re.compile(r"In CSV column #(?P<column>\d+)")
# `007` and `+1` are labels: as numbers they would not come back as they were.
_LABEL = r"^([+]|-?0[0-9])"
_SPECIAL = r"(?i)^[+-]?(nan|inf|infinity)$"


def read_csv(stream: Any, limits: Limits, hint: pa.Schema | None, delimiter: str = ",") -> Iterator[pa.Table]:
    """Rows are counted from 1, the header being row 1, as editors show them. An empty value is null, `""` is not."""
    counted: Any = _Quotes(stream)
    source: Any = pa.PythonFile(counted, mode="r")
    convert: Any = csv.ConvertOptions  # its stubs lack default_column_type
    try:
        reader = csv.open_csv(
            source,
            read_options=csv.ReadOptions(use_threads=False, block_size=limits.row_bytes),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=convert(
                default_column_type=pa.string(),
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=False,
            ),
        )
        _check_header(reader.schema.names)
        first = 2
        for batch in reader:
            if batch.num_rows:
                columns = [_typed(batch.column(n), n, hint, first) for n in batch.schema.names]
                yield pa.table(columns, names=batch.schema.names)
            first += batch.num_rows
    except pa.ArrowInvalid as error:
        raise _explained(str(error), limits) from None
    if counted.quotes % 2:
        raise Refused("a quote is opened and never closed")


def _check_header(names: list[str]) -> None:
    for number, name in enumerate(names):
        if not name.strip():
            raise Refused(f"the header's column {number + 1} has no name", row=1)
        if name in names[:number]:
            raise Refused("it stands twice in the header", row=1, column=name)


def _typed(column: Any, name: str, hint: pa.Schema | None, first: int) -> Any:
    """As the table has it; if it has none, the narrowest of int64, double, bool that says the same."""
    if hint is not None and name in hint.names:
        told = hint.field(name).type
        return column if pt.is_string(told) else _as_told(column, told, name, first)
    if column.null_count == len(column):
        return pa.nulls(len(column))
    if _any(column, _LABEL):
        return column
    if not _any(column, r"(?i)^-?(true|false)$"):
        for kind in (pa.int64(), pa.float64()):
            typed = _cast(column, kind)
            if typed is not column and not _any(column, _SPECIAL):
                return typed
        return column
    return _cast(column, pa.bool_()) if not _any(column, r"^[01]$") else column


def _as_told(column: Any, kind: pa.DataType, name: str, first: int) -> Any:
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:
        return column  # no text is a list or a struct: whoever checks the rows says so
    except pa.ArrowInvalid:
        for row, value in enumerate(column, first):
            if _cast(value, kind) is value:
                raise Refused(f"{value.as_py()!r} is no {kind}", row=row, column=name) from None
        raise


def _cast(value: Any, kind: pa.DataType) -> Any:
    """The value, or the column, as the type; itself if it is none."""
    try:
        return value.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return value


def _any(column: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def _explained(message: str, limits: Limits) -> Refused:
    if "straddl" in message:
        return Refused(f"a row is longer than {limits.row_bytes} bytes, or a quote is never closed")
    if "Empty CSV" in message:
        return Refused("it has no header and no rows")
    found, column = _ROW.search(message), _COLUMN.search(message)
    if found is None:
        return Refused(f"it is no CSV: {message}")
    name = f"#{int(column['column']) + 1}" if column else None
    return Refused(found["reason"].splitlines()[0], row=int(found["row"]), column=name)


class _Quotes:
    """Counts quotes on the way: pyarrow takes a quote that is never closed for a value up to the file's end."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream, self.quotes = stream, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self.quotes += data.count(b'"')
        return data

    def close(self) -> None:
        self.closed = True
