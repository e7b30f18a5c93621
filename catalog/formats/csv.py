"""CSV to Arrow: a header, then rows. Values are read as text; a column gets another type only if no value changes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.types as pt

from catalog.formats.csv_dialect import CsvOptions, as_utf8, detect_delimiter, skip_lines
from catalog.formats.exact_numbers import INTEGER, SURE_DIGITS, fault
from catalog.formats.limits import FileRejected, FormatLimits
from catalog.formats.number_marks import NumberMarks

_ROW = re.compile(r"Row #(?P<row>\d+): (?P<reason>.*)", re.S)
_COLUMN = re.compile(r"In CSV column #(?P<column>\d+)")
# `007`, `+1` and `0x1F` are labels: as numbers they would be written back differently.
_LABEL = r"^([+]|-?0[0-9xX])"
_HEXADECIMAL = r"^[+-]?0[xX]"
_SURE_CHARACTERS = {pa.float64(): SURE_DIGITS, pa.float32(): 7}
_SMALLEST_NORMAL = 2.2250738585072014e-308
_ADVICE = "make the column a string or a decimal, with `strandline ingest rule set`"
_ENCODING_ADVICE = (
    "save the file as UTF-8, or set its encoding with `strandline ingest rule set TABLE --csv encoding=…`"
)
_SPECIAL = r"(?i)^[+-]?(nan|inf|infinity)$"


def read_csv(
    stream: Any, limits: FormatLimits, hint: pa.Schema | None, options: CsvOptions | None = None
) -> Iterator[pa.Table]:
    """The rows, a block at a time. `hint`: the columns of the table, whose types decide how text is read.

    Positions count rows from 1, the header being row 1, as editors show them. An empty value is null, `""` is not.
    """
    options = options or CsvOptions()
    head, stream = as_utf8(stream, options.encoding)
    head, stream = skip_lines(head, stream, options.skip_lines)
    delimiter = options.delimiter or detect_delimiter(head, options.quote)
    quotes: Any = _QuoteCounter(stream, delimiter.encode(), options.quote.encode(), limits)
    source: Any = pa.PythonFile(quotes, mode="r")
    convert: Any = csv.ConvertOptions  # the stubs lack default_column_type
    try:
        reader = csv.open_csv(
            source,
            read_options=csv.ReadOptions(use_threads=False, block_size=limits.row_bytes),
            parse_options=csv.ParseOptions(
                delimiter=delimiter, quote_char=options.quote, newlines_in_values=True, ignore_empty_lines=True
            ),
            convert_options=convert(
                default_column_type=pa.string(),
                strings_can_be_null=True,
                null_values=["", *options.nulls],
                quoted_strings_can_be_null=False,
            ),
        )
        _check_header(reader.schema.names, limits)
        numbers, first = NumberMarks(options.decimal, options.thousands), 2 + options.skip_lines
        for batch in reader:
            if batch.num_rows:
                columns = [_typed(batch.column(n), n, hint, numbers, first) for n in batch.schema.names]
                yield pa.table(columns, names=batch.schema.names)
            first += batch.num_rows
    except pa.ArrowInvalid as error:
        raise _rejected(str(error), limits, options.skip_lines) from None
    except UnicodeDecodeError as error:
        raise FileRejected(f"the header is not UTF-8 ({error.reason}): {_ENCODING_ADVICE}", row=1) from None
    if quotes.count % 2:
        raise FileRejected('a quote is opened and never closed: write a quote inside a value as ""')


def _check_columns(count: int, limits: FormatLimits) -> None:
    if count > limits.columns:
        raise FileRejected(f"there are {count} columns, over the limit of {limits.columns}: split the table", row=1)


def _delimiters(data: bytes, delimiter: bytes, quote: bytes) -> int:
    """How many delimiters the first line has, outside of quotes."""
    count = 0
    for outside in data.lstrip(b"\r\n").split(quote)[::2]:
        line, ended, _ = outside.replace(b"\r", b"\n").partition(b"\n")
        count += line.count(delimiter)
        if ended:
            break
    return count


def _check_header(names: list[str], limits: FormatLimits) -> None:
    _check_columns(len(names), limits)
    seen = set[str]()
    for number, name in enumerate(names):
        if not name.strip():
            raise FileRejected(f"the header's column {number + 1} has no name: name every column", row=1)
        if name in seen:
            raise FileRejected("the name appears twice in the header: rename one of the columns", row=1, column=name)
        seen.add(name)


def _typed(column: Any, name: str, hint: pa.Schema | None, marks: NumberMarks, first: int) -> Any:
    """The column in the table's type; without one, in the narrowest of int64, double and bool that changes no value."""
    if hint is not None and name in hint.names:
        type_ = hint.field(name).type
        return column if pt.is_string(type_) else _convert(column, type_, name, marks, first)
    if column.null_count == len(column):
        return pa.nulls(len(column))
    if _any(column, _LABEL):
        return column
    if not _any(column, r"(?i)^-?(true|false)$"):
        plain = marks.plain(column)
        for type_ in (pa.int64(), pa.float64()):
            typed = _cast(plain, type_)
            if typed is not plain and not _any(column, _SPECIAL):
                if type_ == pa.float64():
                    _check_exact(plain, typed, name, first)
                return typed
        return column
    return _cast(column, pa.bool_()) if not _any(column, r"^[01]$") else column


def _convert(column: Any, type_: pa.DataType, name: str, marks: NumberMarks, first: int) -> Any:
    """The column in the table's type; as text if no text has that type: the check against the table rejects it."""
    if pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_fixed_size_binary(type_):
        return column
    if pt.is_integer(type_) and _any(column, _HEXADECIMAL):
        row = pc.index(pc.match_substring_regex(column, _HEXADECIMAL), True).as_py()
        raise _wrong_type(column[row], type_, first + row, name)
    is_number = pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_)
    texts = marks.plain(column) if is_number else column
    try:
        typed = texts.cast(type_)
        if pt.is_floating(type_):
            _check_exact(texts, typed, name, first)
        return typed
    except pa.ArrowNotImplementedError:
        return column  # a list or a struct
    except pa.ArrowInvalid:
        for row, value in enumerate(texts):
            if _cast(value, type_) is value:
                raise _wrong_type(column[row], type_, first + row, name) from None
        raise


def _wrong_type(value: Any, type_: pa.DataType, row: int, column: str) -> FileRejected:
    return FileRejected(
        f"{value.as_py()!r} is not a valid {type_}, the column's type: correct the value", row=row, column=column
    )


def _check_exact(texts: Any, numbers: Any, name: str, first: int) -> None:
    """Raises FileRejected, with the row, if a number differs from what its text says."""
    values = numbers.cast(pa.float64())
    long = pc.greater(pc.utf8_length(texts), pa.scalar(_SURE_CHARACTERS[numbers.type]))
    unusual = pc.or_(pc.invert(pc.is_finite(values)), pc.less(pc.abs(values), pa.scalar(_SMALLEST_NORMAL)))
    rows = pc.indices_nonzero(pc.fill_null(pc.or_(long, unusual), False))
    if not len(rows):
        return
    rows = rows.filter(pc.not_equal(texts.take(rows), values.take(rows).cast(pa.string())))
    for row in rows.to_pylist():
        text, value = texts[row].as_py(), values[row].as_py()
        if re.fullmatch(_SPECIAL, text):
            continue
        reason = fault(text) if pt.is_float64(numbers.type) else _single_fault(text, value)
        if reason is not None:
            raise FileRejected(f"{reason}: {_ADVICE}", row=first + row, column=name)


def _single_fault(text: str, value: float) -> str | None:
    """What is wrong with a value of a 32-bit float column: fractions may be rounded, integers may not."""
    if math.isinf(value) or (INTEGER.fullmatch(text) and int(value) != int(text)):
        return f"a 32-bit float cannot hold {text}"
    return None


def _cast(value: Any, type_: pa.DataType) -> Any:
    """The value, or the column, cast to the type; unchanged if the cast fails."""
    try:
        return value.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return value


def _any(column: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def _rejected(message: str, limits: FormatLimits, skipped: int) -> FileRejected:
    if "straddl" in message:
        return FileRejected(f"a row is longer than {limits.row_bytes} bytes, the limit, or a quote is never closed")
    if "Empty CSV" in message:
        return FileRejected("the file has no header and no rows: its first line must name the columns")
    row, column = _ROW.search(message), _COLUMN.search(message)
    if row is None:
        return FileRejected(f"the file is not valid CSV: {message}")
    name = f"#{int(column['column']) + 1}" if column else None
    reason = row["reason"].splitlines()[0]
    if "invalid UTF8" in reason:
        reason = f"the text is not UTF-8: {_ENCODING_ADVICE}"
    return FileRejected(reason, row=int(row["row"]) + skipped, column=name)


class _QuoteCounter:
    """Counts the quotes that are read: pyarrow reads a quote that is never closed as one value up to the file's end.

    Also counts the header's columns, before pyarrow makes a column of each.
    """

    closed = False

    def __init__(self, stream: Any, delimiter: bytes, quote: bytes, limits: FormatLimits) -> None:
        self._stream, self.count, self._started = stream, 0, False
        self._delimiter, self._quote, self._limits = delimiter, quote, limits

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        if not self._started:
            self._started = True
            _check_columns(1 + _delimiters(data, self._delimiter, self._quote), self._limits)
        self.count += data.count(self._quote)
        return data

    def close(self) -> None:
        self.closed = True
