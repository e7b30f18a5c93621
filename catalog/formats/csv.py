"""CSV to Arrow: a header, then rows. Values are text, unless the table has another type for the column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.types as pt

from catalog.formats.csv_dialect import CsvOptions, resolve_dialect
from catalog.formats.exact_decimals import cast_decimals
from catalog.formats.exact_numbers import changed_numbers
from catalog.formats.limits import FileRejected, FormatLimits, NoRows
from catalog.formats.number_marks import NumberMarks
from catalog.formats.text_times import as_iso
from catalog.formats.time_bounds import OUT_OF_RANGE, first_time_out_of_range

_ROW = re.compile(r"Row #(?P<row>\d+): (?P<reason>.*)", re.S)
_COLUMN = re.compile(r"In CSV column #(?P<column>\d+)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HEXADECIMAL = r"^[+-]?0[xX]"
_SHOWN = 100
"""The characters of a value that an error shows."""
_ADVICE = "make the column a string or a decimal, with `strandline ingest rule set`"
_ENCODING_ADVICE = (
    "save the file as UTF-8, or set its encoding with `strandline ingest rule set TABLE --csv encoding=…`"
)


def read_csv(
    stream: Any, limits: FormatLimits, hint: pa.Schema | None, options: CsvOptions | None = None
) -> Iterator[pa.Table]:
    """The rows, a block at a time. `hint`: the columns of the table, whose types decide how text is read.

    Positions count rows from 1, the header being row 1, as editors show them. An empty value is null, `""` is not.
    """
    options, stream = resolve_dialect(stream, options or CsvOptions())
    delimiter = options.delimiter or ","
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
        first = first_row(options)
        for batch in reader:
            if batch.num_rows:
                columns = [_typed(batch.column(n), n, hint, options, first) for n in batch.schema.names]
                yield pa.table(columns, names=batch.schema.names)
            first += batch.num_rows
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            _check_text(quotes.start)
            raise NoRows("the file has no header and no rows: its first line must name the columns") from None
        raise _rejected(str(error), limits, options.skip_lines) from None
    except UnicodeDecodeError as error:
        raise FileRejected(f"the header is not UTF-8 ({error.reason}): {_ENCODING_ADVICE}", row=1) from None
    if quotes.count % 2:
        raise FileRejected('a quote is opened and never closed: write a quote inside a value as ""')


def first_row(options: CsvOptions) -> int:
    """The number of the first row after the header, as editors show it."""
    return 2 + options.skip_lines


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
        if _CONTROL.search(name):
            raise FileRejected(f"the name of column {number + 1} has control characters: rename it", row=1)
        if not name.strip():
            raise FileRejected(f"the header's column {number + 1} has no name: name every column", row=1)
        if name in seen:
            raise FileRejected("the name appears twice in the header: rename one of the columns", row=1, column=name)
        seen.add(name)


def _check_text(start: bytes) -> None:
    """Rejects a file of one line that is no text: pyarrow calls it empty, whatever its bytes are."""
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        raise FileRejected(f"the header is not UTF-8 ({error.reason}): {_ENCODING_ADVICE}", row=1) from None
    if _CONTROL.search(text):
        raise FileRejected("the header has control characters: the file is not CSV", row=1)


def _typed(column: Any, name: str, hint: pa.Schema | None, options: CsvOptions, first: int) -> Any:
    """The column in the table's type; as text if the table does not have it: `Inference` says which type it has."""
    if hint is None or name not in hint.names or pt.is_string(hint.field(name).type):
        return pa.nulls(len(column)) if column.null_count == len(column) else column
    return _convert(column, hint.field(name).type, name, options, first)


def _convert(column: Any, type_: pa.DataType, name: str, options: CsvOptions, first: int) -> Any:
    """The column in the table's type; as text if no text has that type: the check against the table rejects it."""
    if pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_fixed_size_binary(type_):
        return column
    if pt.is_integer(type_) and _any(column, _HEXADECIMAL):
        row = pc.index(pc.match_substring_regex(column, _HEXADECIMAL), True).as_py()
        raise _wrong_type(column[row], type_, first + row, name)
    is_number = pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_)
    texts = column
    if is_number:
        texts = NumberMarks(options.decimal, options.thousands).plain(column)
    elif pt.is_date(type_) or pt.is_timestamp(type_):
        texts = as_iso(column, options.dates)
    try:
        typed = _cast(texts, type_)
        if pt.is_floating(type_):
            _check_exact(texts, typed, name, first)
        if (beyond := first_time_out_of_range(typed)) is not None:
            raise FileRejected(f"{column[beyond].as_py()!r}: {OUT_OF_RANGE}", row=first + beyond, column=name)
        return typed
    except pa.ArrowNotImplementedError:
        return column  # a list or a struct
    except pa.ArrowInvalid:
        row = _first_failure(texts, type_)
        raise _wrong_type(column[row], type_, first + row, name) from None


def _wrong_type(value: Any, type_: pa.DataType, row: int, column: str) -> FileRejected:
    advice = "correct the value"
    if (pt.is_date(type_) or pt.is_timestamp(type_)) and as_iso(pa.array([value.as_py()]), "dmy")[0] != value:
        advice = "say whether the day or the month is first, with `strandline ingest rule set TABLE --csv dates=dmy`"
    shown = value.as_py() if len(value.as_py()) <= _SHOWN else f"{value.as_py()[:_SHOWN]}…"
    return FileRejected(f"{shown!r} is not a valid {type_}, the column's type: {advice}", row=row, column=column)


def _check_exact(texts: Any, numbers: Any, name: str, first: int) -> None:
    """Raises FileRejected, with the row, if a number differs from what its text says."""
    for row, reason in changed_numbers(texts, numbers):
        raise FileRejected(f"{reason}: {_ADVICE}", row=first + row, column=name)


def _cast(texts: Any, type_: pa.DataType) -> Any:
    return cast_decimals(texts, type_) if pt.is_decimal(type_) else texts.cast(type_)


def _first_failure(texts: Any, type_: pa.DataType) -> int:
    """The first row whose text is not of the type, by bisection."""
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast(texts[low:middle], type_)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _any(column: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def _rejected(message: str, limits: FormatLimits, skipped: int) -> FileRejected:
    if "straddl" in message:
        return FileRejected(f"a row is longer than {limits.row_bytes} bytes, the limit, or a quote is never closed")
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

    Also counts the header's columns, before pyarrow makes a column of each. `start`: the first bytes that were read.
    """

    closed = False

    def __init__(self, stream: Any, delimiter: bytes, quote: bytes, limits: FormatLimits) -> None:
        self._stream, self.count, self._started, self.start = stream, 0, False, b""
        self._delimiter, self._quote, self._limits = delimiter, quote, limits

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        if not self._started:
            self._started, self.start = True, data
            _check_columns(1 + _delimiters(data, self._delimiter, self._quote), self._limits)
        self.count += data.count(self._quote)
        return data

    def close(self) -> None:
        self.closed = True
