"""Exports a stream of Arrow batches to Parquet, CSV or JSON lines. A file gets its name only when it is complete."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalog import Conflict, Invalid
from catalog.core.column_names import check_column_names
from cli.row_files import ExportFormat

ROW_GROUP = 128 * 1024
_CODECS = {"gz": "gzip", "zst": "zstd"}
_SUFFIXES = {"parquet": "parquet", "csv": "csv", "jsonl": "jsonl", "ndjson": "jsonl"}


@dataclass(frozen=True)
class ExportTarget:
    """Where an export goes: a file, a directory of parts, or stdout."""

    path: str
    format: ExportFormat
    codec: str | None = None

    @property
    def is_directory(self) -> bool:
        return self.path.endswith(("/", os.sep)) or Path(self.path).is_dir()

    @classmethod
    def of(cls, path: str, format_: ExportFormat | None) -> ExportTarget:
        """The format is `format_`, or follows from the suffix; parts in a directory are Parquet by default."""
        stem, _, last = Path(path).name.lower().rpartition(".")
        codec = _CODECS.get(last)
        suffix = stem.rpartition(".")[2] if codec else last
        known_format = format_ or (ExportFormat(_SUFFIXES[suffix]) if suffix in _SUFFIXES else None)
        target = cls(path, known_format or ExportFormat.PARQUET, codec)
        if known_format is None and not target.is_directory:
            raise Invalid(f"{path}: its suffix names no format: add --format parquet, csv or jsonl", subject=path)
        if codec and target.format is ExportFormat.PARQUET:
            raise Invalid(f"{path}: Parquet is compressed already: leave .{last} off the name", subject=path)
        return target


@dataclass
class Exported:
    rows: int = 0
    bytes: int = 0
    files: int = 0


class _Writer(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def export(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    target: ExportTarget,
    *,
    rows_per_file: int,
    overwrite: bool,
    progress: Callable[[str], None],
) -> Exported:
    """Writes to a temporary name and renames at the end, so that an interrupted export leaves no partial file.

    Memory: one batch, or one row group of Parquet.
    """
    check_columns(schema, target)
    done = Exported()

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done.rows += batch.num_rows
            progress(f"{done.rows:,} rows")
            yield batch

    if target.path == "-":
        _write(counted(), schema, target, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    elif target.is_directory:
        _export_parts(counted(), schema, target, rows_per_file, overwrite, done)
    else:
        path = Path(target.path)
        if path.exists() and not overwrite:
            raise Conflict(f"{path} exists already: add --overwrite, or choose another name", subject=str(path))
        with partial_file(path) as part:
            with part.open("wb") as stream:
                _write(counted(), schema, target, stream)
            done.bytes, done.files = part.stat().st_size, 1
    return done


def check_columns(schema: pa.Schema, target: ExportTarget) -> None:
    """Invalid, before anything is read, for columns that the format cannot represent."""
    kind = "json" if target.format is ExportFormat.JSONL else target.format.value
    check_column_names(schema.names, kind, "export to CSV")
    for field in schema if target.format is ExportFormat.CSV else ():
        if pt.is_nested(field.type) or pt.is_binary(field.type) or pt.is_fixed_size_binary(field.type):
            message = f"column {field.name!r} is a {field.type}, which CSV cannot represent"
            raise Invalid(f"{message}: use --format jsonl or parquet, or leave it out with --columns")


def _export_parts(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    target: ExportTarget,
    size: int,
    overwrite: bool,
    done: Exported,
) -> None:
    folder, ending = Path(target.path), f".{target.format}"
    folder.mkdir(parents=True, exist_ok=True)
    old = list(folder.glob(f"part-*{ending}"))
    if any(folder.iterdir()) and not (overwrite and old):
        raise Conflict(f"{folder} is not empty: choose another directory, or add --overwrite", subject=str(folder))
    written: list[Path] = []
    try:
        for number, part in enumerate(_parts(batches, schema, size)):
            written.append(folder / f".part-{number:05}{ending}")
            with written[-1].open("wb") as stream:
                _write(part, schema, target, stream)
            done.bytes, done.files = done.bytes + written[-1].stat().st_size, done.files + 1
        for path in old:
            path.unlink()
        for path in written:
            path.replace(folder / path.name.removeprefix("."))
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def _parts(batches: Iterator[pa.RecordBatch], schema: pa.Schema, size: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """The stream in parts of `size` rows; consume each before the next. One empty part if there is no row."""
    buffered: list[pa.RecordBatch] = []
    first = next(batches, None)
    if first is None:
        yield iter(())
        return
    buffered.append(first)

    def part() -> Iterator[pa.RecordBatch]:
        remaining = size
        while remaining:
            batch = buffered.pop() if buffered else next(batches, None)
            if batch is None:
                return
            if batch.num_rows > remaining:
                buffered.append(batch.slice(remaining))
                batch = batch.slice(0, remaining)
            remaining -= batch.num_rows
            yield batch
        if not buffered and (following := next(batches, None)) is not None:
            buffered.append(following)

    while buffered:
        yield part()


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """A temporary path in the same directory. It is renamed to `path` at the end, and removed after an error."""
    part = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(path)
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error}", subject=str(path)) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _write(batches: Iterable[pa.RecordBatch], schema: pa.Schema, target: ExportTarget, stream: BinaryIO) -> None:
    raw: Any = stream
    codec: Any = target.codec
    sink: Any = pa.PythonFile(raw, mode="w")
    compressed = pa.CompressedOutputStream(sink, codec) if codec else sink
    writers: dict[ExportFormat, Callable[[Any, pa.Schema], _Writer]] = {
        ExportFormat.PARQUET: _Parquet,
        ExportFormat.CSV: _Csv,
        ExportFormat.JSONL: _JsonLines,
    }
    writer = writers[target.format](compressed, schema)
    for batch in batches:
        writer.write(batch)
    writer.close()
    if codec:
        compressed.close()  # closes the sink, too


class _Parquet:
    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(sink, schema, compression="zstd")
        self._schema, self._buffered, self._rows = schema, list[pa.RecordBatch](), 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffers small batches, so that they share a row group."""
        self._buffered.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._buffered:
            self._writer.write_table(pa.Table.from_batches(self._buffered, self._schema), row_group_size=ROW_GROUP)
        self._buffered, self._rows = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


class _Csv:
    """Quotes text but not null, so that an empty text and a null stay different when they are read again."""

    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        fields = [field.with_type(_csv_type(field.type)) for field in schema]
        self._schema = pa.schema(fields)
        self._writer = csv.CSVWriter(sink, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [
            pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())
            if isinstance(column.type, pa.BaseExtensionType)
            else column.cast(field.type)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _csv_type(type_: Any) -> Any:
    return pa.string() if isinstance(type_, pa.BaseExtensionType) or pt.is_decimal(type_) else type_


class _JsonLines:
    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch) -> None:
        lines = [json.dumps(json_value(row), ensure_ascii=False) for row in batch.to_pylist()]
        self._sink.write(("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        self._sink.flush()


def json_value(value: Any) -> Any:
    """Times as ISO 8601, decimals and non-finite floats as text, bytes as base64, maps as pairs."""
    if isinstance(value, dict):
        return {name: json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | UUID) or (isinstance(value, float) and not isfinite(value)):
        return str(value)
    return value
