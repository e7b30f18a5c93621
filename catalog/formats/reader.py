"""From a file's bytes to Arrow batches: format and compression by suffix, in bounded chunks, within the limits.

Reads nothing but the stream that it is passed. A caller may have to discard what was yielded: the last line may have a
fault.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from catalog.formats.arrow import check_shape, no_table_type
from catalog.formats.csv import first_row, read_csv
from catalog.formats.csv_dialect import CsvOptions, resolve_dialect
from catalog.formats.inference import Inference
from catalog.formats.json import BLOCK_BYTES, read_json, read_json_lines
from catalog.formats.limits import FileRejected, FormatLimits, NoRows
from catalog.formats.markdown_note import NOTE, parse_note
from catalog.formats.parquet import read_parquet

_TEXT: dict[str, Any] = {"path": pa.string(), "line": pa.int64(), "text": pa.string()}
TEXT = pa.schema(_TEXT)
BATCH_ROWS = 32_768
"""So that a batch of few columns stays small in a table of many."""
_FORMATS = {
    "jsonl": "jsonl", "ndjson": "jsonl", "json": "json", "csv": "csv", "tsv": "tsv", "parquet": "parquet",
    "txt": "text", "log": "text", "md": "markdown", "markdown": "markdown",
}  # fmt: skip
_CODECS = {"gz": "gzip", "gzip": "gzip", "zst": "zstd", "zstd": "zstd"}


@dataclass(frozen=True, slots=True)
class Format:
    kind: str
    codec: str | None = None


def detect(name: str) -> Format:
    """`a/b.csv.gz` -> csv compressed with gzip. Ignores case. Raises FileRejected for an unknown suffix."""
    stem, _, last = name.rpartition("/")[2].lower().rpartition(".")
    codec = _CODECS.get(last)
    suffix = stem.rpartition(".")[2] if codec else last
    if suffix not in _FORMATS or not stem or (codec and "." not in stem):
        known = ", ".join(f".{suffix}" for suffix in _FORMATS)
        raise FileRejected(
            "the file's name does not end in a known format, and its content is not binary media: rename it to end in "
            f"one of {known}, each also with .gz or .zst"
        )
    return Format(_FORMATS[suffix], codec)


def is_known(name: str) -> bool:
    """Whether the suffix names a format of rows; other files may be media."""
    try:
        return bool(detect(name).kind)
    except FileRejected:
        return False


def read_rows(
    reader: Any,
    name: str,
    limits: FormatLimits,
    hint: pa.Schema | None = None,
    csv: CsvOptions | None = None,
) -> Iterator[pa.RecordBatch]:
    """The file's rows. `hint`: the columns of the destination table, whose types decide how text is read. A column of
    a CSV file that it does not have is text.

    `reader` needs `read(n)`; a Parquet file that is read in parts also needs `seek` and `tell`. Memory: about one
    block of input and its rows; for Parquet one row group's columns. Raises FileRejected, with the position of the
    fault.
    """
    format_ = detect(name)
    rows, columns = 0, set[str]()
    try:
        for table in _tables(format_, reader, name, limits, hint, csv):
            check_shape(table.schema, limits)
            columns.update(table.schema.names)
            if len(columns) > limits.columns:
                raise FileRejected(f"there are more than {limits.columns} columns, the limit: split the table")
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                rows += batch.num_rows
                yield batch
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        # Arrow raises OSError for data that does not decode; the SDK raises its own errors for a lost connection.
        kind = format_.codec or format_.kind
        raise FileRejected(f"the file is not valid {kind}, or is truncated: {error}") from None
    if not rows:
        raise NoRows("the file has no rows")


def _tables(
    format_: Format,
    reader: Any,
    name: str,
    limits: FormatLimits,
    hint: pa.Schema | None,
    csv: CsvOptions | None,
) -> Iterator[pa.Table]:
    if format_.kind == "parquet":
        return _read_parquet(reader, format_.codec, limits)
    stream = _BoundedStream(reader, format_.codec, limits.decompressed_bytes)
    if format_.kind == "jsonl":
        return read_json_lines(stream, limits, hint)
    if format_.kind == "json":
        return read_json(stream, limits, hint)
    if format_.kind in ("csv", "tsv"):
        return read_csv(stream, limits, hint, _csv_options(format_, csv))
    return (_read_text if format_.kind == "text" else _read_note)(stream, name, limits)


def read_dialect(reader: Any, name: str, limits: FormatLimits, csv: CsvOptions | None = None) -> CsvOptions:
    """How a CSV file is written, as `read_rows` reads it: what is detected in its first bytes, and what is set."""
    format_ = detect(name)
    stream = _BoundedStream(reader, format_.codec, limits.decompressed_bytes)
    return resolve_dialect(stream, _csv_options(format_, csv))[0]


def _csv_options(format_: Format, csv: CsvOptions | None) -> CsvOptions:
    options = csv or CsvOptions()
    is_tabbed = format_.kind == "tsv" and options.delimiter is None
    return replace(options, delimiter="\t") if is_tabbed else options


def start_inference(name: str, hint: pa.Schema | None = None, csv: CsvOptions | None = None) -> Inference | None:
    """Observes the batches of `read_rows` with the same arguments, to tell the types of columns that it reads as text.
    None if the format has types of its own. The file is then read again, with these types as `hint`."""
    kind, known, options = detect(name).kind, hint.names if hint is not None else (), csv or CsvOptions()
    if kind in ("csv", "tsv"):
        return Inference(known, options, first=first_row(options))
    return Inference(known, options, texts=True) if kind in ("json", "jsonl") else None


def unify(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """One schema for all: an integer and a double become double. Raises FileRejected if two types are incompatible.

    Types that Iceberg does not have are widened to one it has; a column with nulls only becomes text.
    """
    types: dict[str, Any] = {}
    for schema in schemas:
        for field in schema:
            widened = _widened(field.type, field.name)
            types[field.name] = _common_type(types.get(field.name, widened), widened, field.name)
    return pa.schema([(name, _without_nulls(type_, name)) for name, type_ in types.items()])


def _common_type(first: Any, second: Any, name: str) -> Any:
    if first == second or pt.is_null(second):
        return first
    try:
        pair = [pa.schema([(name, type_)]) for type_ in (first, second)]
        return pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        reason = f"the type is {first} in one place and {second} in another"
        raise FileRejected(f"{reason}: give all values one type", column=name) from None


def _widened(type_: Any, name: str) -> Any:
    if pt.is_dictionary(type_):
        return _widened(type_.value_type, name)
    if pt.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if (
        pt.is_uint64(type_)
        or pt.is_float16(type_)
        or pt.is_duration(type_)
        or pt.is_union(type_)
        or pt.is_interval(type_)
    ):
        raise no_table_type(type_, name)
    if pt.is_integer(type_):
        return pa.int64()
    if pt.is_struct(type_):
        return pa.struct([field.with_type(_widened(field.type, name)) for field in type_])
    return pa.list_(_widened(type_.value_type, name)) if pt.is_list(type_) or pt.is_large_list(type_) else type_


def _without_nulls(type_: Any, name: str) -> Any:
    """The type with text in place of Arrow's null type, which no table has."""
    if pt.is_null(type_):
        return pa.string()
    if pt.is_struct(type_):
        if not type_.num_fields:
            raise FileRejected(
                "an object without fields has no type: leave it out, or create the table first", column=name
            )
        return pa.struct([field.with_type(_without_nulls(field.type, name)) for field in type_])
    return pa.list_(_without_nulls(type_.value_type, name)) if pt.is_list(type_) else type_


def _read_parquet(reader: Any, codec: str | None, limits: FormatLimits) -> Iterator[pa.Table]:
    source: Any = reader
    if codec or not hasattr(reader, "seek"):
        source = _BoundedStream(reader, codec, limits.in_memory_bytes).read()
    for batch in read_parquet(source, limits):
        yield pa.Table.from_batches([batch])


def _read_text(stream: Any, name: str, limits: FormatLimits) -> Iterator[pa.Table]:
    """One row per line, also for blank lines, so that the numbers are the file's."""
    partial, number, started = b"", 1, False
    while data := stream.read(BLOCK_BYTES):
        if not started:
            data, started = data.removeprefix(codecs.BOM_UTF8), True
        *lines, partial = (partial + data).split(b"\n")
        if len(partial) > limits.row_bytes:
            lines, partial = [*lines, partial], b""
        if lines:
            yield _text_rows(lines, name, number, limits)
        number += len(lines)
    if partial:
        yield _text_rows([partial], name, number, limits)


def _text_rows(lines: list[bytes], name: str, first: int, limits: FormatLimits) -> pa.Table:
    texts = []
    for number, line in enumerate(lines, first):
        if len(line) > limits.row_bytes:
            raise FileRejected(f"the line is longer than {limits.row_bytes} bytes, the limit", line=number)
        texts.append(_decoded(line.removesuffix(b"\r"), number))
    numbers = pa.array(range(first, first + len(texts)), pa.int64())
    return pa.Table.from_arrays([pa.array([name] * len(texts)), numbers, pa.array(texts)], schema=TEXT)


def _read_note(stream: Any, name: str, limits: FormatLimits) -> Iterator[pa.Table]:
    data = stream.read(limits.row_bytes + 1)
    if len(data) > limits.row_bytes:
        raise FileRejected(f"the note is longer than {limits.row_bytes} bytes, the limit: split it")
    text = _decoded(data.removeprefix(codecs.BOM_UTF8), 1)
    if text.strip():
        yield pa.Table.from_pylist([parse_note(text, name, limits)], schema=NOTE)


def _decoded(data: bytes, line: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise FileRejected(f"the text is not UTF-8 ({error.reason}): save the file as UTF-8", line=line) from None


class _BoundedStream:
    """The decompressed bytes up to a limit: a decompression bomb is rejected while it is read."""

    def __init__(self, reader: Any, codec: Any, limit: int) -> None:
        # `read` of a native file loses its memory when it fails: four megabytes for each file that is cut off.
        self._read = (
            pa.CompressedInputStream(pa.PythonFile(reader, mode="r"), codec).read_buffer if codec else reader.read
        )
        self._limit, self._count = limit, 0

    def read(self, size: int = -1) -> bytes:
        """Exactly `size` bytes, fewer only at the end of the stream: callers rely on that."""
        missing = self._limit + 1 - self._count if size < 0 else size
        parts = []
        while missing > 0 and (part := self._read(min(missing, BLOCK_BYTES))):
            parts.append(part)
            missing -= len(part)
            self._count += len(part)
            if self._count > self._limit:
                raise FileRejected(f"the file is over {self._limit} bytes when decompressed: split it")
        return b"".join(parts)
