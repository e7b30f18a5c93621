"""From a file's bytes to Arrow batches: format and compression by suffix, in bounded chunks, within the limits.

Reads what it is given and nothing else. What it yields may be thrown away again: a fault can stand in the last line.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalog.pipeline.csv_rows import read_csv
from catalog.pipeline.json_rows import BLOCK_BYTES, read_json, read_json_lines
from catalog.pipeline.limits import Limits, Refused
from catalog.pipeline.notes import NOTE, parse_note

_TEXT: dict[str, Any] = {"path": pa.string(), "line": pa.int64(), "text": pa.string()}
TEXT = pa.schema(_TEXT)
_FORMATS = {
    "jsonl": "jsonl", "ndjson": "jsonl", "json": "json", "csv": "csv", "tsv": "tsv", "parquet": "parquet",
    "txt": "text", "log": "text", "md": "markdown", "markdown": "markdown",
}  # fmt: skip
PARQUET_ROWS = 64 * 1024
_CODECS = {"gz": "gzip", "gzip": "gzip", "zst": "zstd", "zstd": "zstd"}


@dataclass(frozen=True, slots=True)
class Format:
    kind: str
    codec: str | None = None


def detect(name: str) -> Format:
    """`a/b.csv.gz` -> csv behind gzip. Case does not matter. Refused if the suffix says nothing known."""
    stem, _, last = name.rpartition("/")[2].lower().rpartition(".")
    codec = _CODECS.get(last)
    suffix = stem.rpartition(".")[2] if codec else last
    if suffix not in _FORMATS or not stem or (codec and "." not in stem):
        known = ", ".join(f".{suffix}" for suffix in _FORMATS)
        raise Refused(
            f"its name does not end in a known format ({known}, each also with .gz or .zst), and it is no binary media"
        )
    return Format(_FORMATS[suffix], codec)


def is_known(name: str) -> bool:
    """Whether the suffix names a format of rows; anything else may be media."""
    try:
        return bool(detect(name).kind)
    except Refused:
        return False


def read_rows(reader: Any, name: str, limits: Limits, hint: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
    """The file's rows. `hint`: the columns of the table they are for, which decide what text is meant to be.

    `reader` needs `read(n)`; a Parquet file that is read in parts needs `seek` and `tell` too. Memory: about one
    block of input and its rows, for Parquet one row group's columns. Refused, with the position, if it is faulty.
    """
    found = detect(name)
    rows = 0
    try:
        for table in _tables(found, reader, name, limits, hint):
            _check_shape(table.schema, limits)
            for batch in table.to_batches():
                rows += batch.num_rows
                yield batch
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        # Arrow's word for what a codec or a Parquet file does not decode to; a lost connection is the SDK's to raise.
        raise Refused(f"it is no {found.codec or found.kind} file, or is cut off: {error}") from None
    if not rows:
        raise Refused("it has no rows")


def _tables(found: Format, reader: Any, name: str, limits: Limits, hint: pa.Schema | None) -> Iterator[pa.Table]:
    if found.kind == "parquet":
        return _read_parquet(reader, found.codec, limits)
    stream = _Bounded(reader, found.codec, limits.decompressed_bytes)
    if found.kind == "jsonl":
        return read_json_lines(stream, limits, hint)
    if found.kind == "json":
        return read_json(stream, limits, hint)
    if found.kind in ("csv", "tsv"):
        return read_csv(stream, limits, hint, "," if found.kind == "csv" else "\t")
    return (_read_text if found.kind == "text" else _read_note)(stream, name, limits)


def unify(schemas: Iterable[pa.Schema], *, loose: bool = False) -> pa.Schema:
    """One schema for all: integers give way to doubles. Refused if two types do not go together.

    `loose`, for CSV: what does not go together was text all along, and is to be read again as such. Types that
    Iceberg does not have are widened to one it has; a column that was never more than null is text.
    """
    fields: dict[str, Any] = {}
    for schema in schemas:
        for field in schema:
            kind = _widened(field.type, field.name)
            fields[field.name] = _together(fields.get(field.name, kind), kind, field.name, loose)
    return pa.schema([(name, _settled(kind, name)) for name, kind in fields.items()])


def _together(first: Any, second: Any, name: str, loose: bool) -> Any:
    if first == second or pt.is_null(second):
        return first
    try:
        pair = [pa.schema([(name, kind)]) for kind in (first, second)]
        return pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        if loose:
            return pa.string()
        raise Refused(f"it is a {first} in one place and a {second} in another", column=name) from None


def _widened(kind: Any, name: str) -> Any:
    if pt.is_dictionary(kind):
        return _widened(kind.value_type, name)
    if pt.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pt.is_uint64(kind) or pt.is_float16(kind) or pt.is_duration(kind) or pt.is_union(kind) or pt.is_interval(kind):
        raise Refused(f"{kind} has no counterpart in a table", column=name)
    if pt.is_integer(kind):
        return pa.int64()
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_widened(field.type, name)) for field in kind])
    return pa.list_(_widened(kind.value_type, name)) if pt.is_list(kind) or pt.is_large_list(kind) else kind


def _settled(kind: Any, name: str) -> Any:
    if pt.is_null(kind):
        return pa.string()
    if pt.is_struct(kind):
        if not kind.num_fields:
            raise Refused("an object without fields has no type: leave it out, or create the table first", column=name)
        return pa.struct([field.with_type(_settled(field.type, name)) for field in kind])
    return pa.list_(_settled(kind.value_type, name)) if pt.is_list(kind) else kind


def _check_shape(schema: pa.Schema, limits: Limits) -> None:
    if len(schema) > limits.columns:
        raise Refused(f"{len(schema)} columns are more than {limits.columns}")
    for field in schema:
        if _depth(field.type) > limits.depth:
            raise Refused(f"it is nested deeper than {limits.depth}", column=field.name)


def _depth(kind: Any) -> int:
    return 1 + max((_depth(kind.field(i).type) for i in range(kind.num_fields)), default=0)


def _read_parquet(reader: Any, codec: str | None, limits: Limits) -> Iterator[pa.Table]:
    source: Any = reader
    if codec or not hasattr(reader, "seek"):
        source = pa.BufferReader(_Bounded(reader, codec, limits.in_memory_bytes).read())
    try:
        file = pq.ParquetFile(source, pre_buffer=False)
        meta = file.metadata
        size = sum(meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
        if size > limits.decompressed_bytes:
            raise Refused(f"it is {size} bytes when decompressed, over the limit of {limits.decompressed_bytes}")
        _check_shape(file.schema_arrow, limits)
        for batch in file.iter_batches(batch_size=PARQUET_ROWS):
            yield pa.Table.from_batches([batch])
    except pa.ArrowException as error:
        raise Refused(f"it is no Parquet file, or is cut off: {error}") from None


def _read_text(stream: Any, name: str, limits: Limits) -> Iterator[pa.Table]:
    """A row for each line, blank ones too: their numbers are the file's."""
    rest, number, began = b"", 1, False
    while data := stream.read(BLOCK_BYTES):
        if not began:
            data, began = data.removeprefix(codecs.BOM_UTF8), True
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > limits.row_bytes:
            lines, rest = [*lines, rest], b""
        if lines:
            yield _lines(lines, name, number, limits)
        number += len(lines)
    if rest:
        yield _lines([rest], name, number, limits)


def _lines(lines: list[bytes], name: str, first: int, limits: Limits) -> pa.Table:
    texts = []
    for number, line in enumerate(lines, first):
        if len(line) > limits.row_bytes:
            raise Refused(f"it is longer than {limits.row_bytes} bytes", line=number)
        texts.append(_decoded(line.removesuffix(b"\r"), number))
    numbers = pa.array(range(first, first + len(texts)), pa.int64())
    return pa.Table.from_arrays([pa.array([name] * len(texts)), numbers, pa.array(texts)], schema=TEXT)


def _read_note(stream: Any, name: str, limits: Limits) -> Iterator[pa.Table]:
    data = stream.read(limits.row_bytes + 1)
    if len(data) > limits.row_bytes:
        raise Refused(f"the note is longer than {limits.row_bytes} bytes")
    text = _decoded(data.removeprefix(codecs.BOM_UTF8), 1)
    if text.strip():
        yield pa.Table.from_pylist([parse_note(text, name, limits)], schema=NOTE)


def _decoded(data: bytes, line: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        at = line + data.count(b"\n", 0, error.start)
        raise Refused(f"it is not UTF-8: {error.reason}", line=at) from None


class _Bounded:
    """The decompressed bytes, of which there may be so many and no more: a bomb is refused while it unfolds."""

    def __init__(self, reader: Any, codec: Any, limit: int) -> None:
        self._source = pa.CompressedInputStream(pa.PythonFile(reader, mode="r"), codec) if codec else reader
        self._limit, self._seen = limit, 0

    def read(self, size: int = -1) -> bytes:
        """As many as asked for, unless the end comes first: what follows may then rely on that."""
        wanted = self._limit + 1 - self._seen if size < 0 else size
        parts = []
        while wanted > 0 and (part := self._source.read(min(wanted, BLOCK_BYTES))):
            parts.append(part)
            wanted -= len(part)
            self._seen += len(part)
            if self._seen > self._limit:
                raise Refused(f"it is over {self._limit} bytes when decompressed")
        return b"".join(parts)
