"""Exporting: a stream of Arrow batches into Parquet, CSV or JSON lines, whole files or nothing under their names."""

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

from catalog.errors import Conflict, Invalid
from cli.row_files import ExportFormat

ROW_GROUP = 128 * 1024
_CODECS = {"gz": "gzip", "zst": "zstd"}
_SUFFIXES = {"parquet": "parquet", "csv": "csv", "jsonl": "jsonl", "ndjson": "jsonl"}


@dataclass(frozen=True)
class Target:
    """Where an export goes: a file, a directory of parts, or stdout."""

    path: str
    format: ExportFormat
    codec: str | None = None

    @property
    def is_directory(self) -> bool:
        return self.path.endswith(("/", os.sep)) or Path(self.path).is_dir()

    @classmethod
    def of(cls, path: str, format_: ExportFormat | None) -> Target:
        """The format by suffix, unless it is told; a directory's parts are Parquet."""
        stem, _, last = Path(path).name.lower().rpartition(".")
        codec = _CODECS.get(last)
        suffix = stem.rpartition(".")[2] if codec else last
        known = format_ or (ExportFormat(_SUFFIXES[suffix]) if suffix in _SUFFIXES else None)
        target = cls(path, known or ExportFormat.PARQUET, codec)
        if known is None and not target.is_directory:
            raise Invalid(f"{path}: say --format parquet, csv or jsonl; its name does not", subject=path)
        if codec and target.format is ExportFormat.PARQUET:
            raise Invalid(f"{path}: Parquet is compressed inside; leave .{last} off", subject=path)
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
    target: Target,
    *,
    rows_per_file: int,
    overwrite: bool,
    tell: Callable[[str], None],
) -> Exported:
    """Writes beside the name and moves into place at the end: what is cut short leaves no half file behind.

    Memory: one batch, or one row group of Parquet.
    """
    check_columns(schema, target)
    done = Exported()

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done.rows += batch.num_rows
            tell(f"{done.rows:,} rows")
            yield batch

    if target.path == "-":
        _write(counted(), schema, target, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    elif target.is_directory:
        _export_parts(counted(), schema, target, rows_per_file, overwrite, done)
    else:
        path = Path(target.path)
        if path.exists() and not overwrite:
            raise Conflict(f"{path} exists already: say --overwrite, or choose another name", subject=str(path))
        with beside(path, keep=True) as part:
            with part.open("wb") as stream:
                _write(counted(), schema, target, stream)
            done.bytes, done.files = part.stat().st_size, 1
    return done


def check_columns(schema: pa.Schema, target: Target) -> None:
    """Invalid, before anything is read, for what CSV cannot hold."""
    for field in schema if target.format is ExportFormat.CSV else ():
        if pt.is_nested(field.type) or pt.is_binary(field.type) or pt.is_fixed_size_binary(field.type):
            raise Invalid(
                f"column {field.name!r} is a {field.type}, which CSV cannot hold: take jsonl or parquet, or --columns"
            )


def _export_parts(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, target: Target, size: int, overwrite: bool, done: Exported
) -> None:
    folder, ending = Path(target.path), f".{target.format}"
    folder.mkdir(parents=True, exist_ok=True)
    old = list(folder.glob(f"part-*{ending}"))
    if any(folder.iterdir()) and not (overwrite and old):
        raise Conflict(f"{folder} is not empty: choose another directory, or say --overwrite", subject=str(folder))
    made: list[Path] = []
    try:
        for number, part in enumerate(_divided(batches, schema, size)):
            made.append(folder / f".part-{number:05}{ending}")
            with made[-1].open("wb") as stream:
                _write(part, schema, target, stream)
            done.bytes, done.files = done.bytes + made[-1].stat().st_size, done.files + 1
        for path in old:
            path.unlink()
        for path in made:
            path.replace(folder / path.name.removeprefix("."))
    finally:
        for path in made:
            path.unlink(missing_ok=True)


def _divided(batches: Iterator[pa.RecordBatch], schema: pa.Schema, size: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """The stream in parts of so many rows, each read before the next begins; one empty part if there is no row."""
    rest: list[pa.RecordBatch] = []
    first = next(batches, None)
    if first is None:
        yield iter(())
        return
    rest.append(first)

    def part() -> Iterator[pa.RecordBatch]:
        left = size
        while left:
            batch = rest.pop() if rest else next(batches, None)
            if batch is None:
                return
            if batch.num_rows > left:
                rest.append(batch.slice(left))
                batch = batch.slice(0, left)
            left -= batch.num_rows
            yield batch
        if not rest and (following := next(batches, None)) is not None:
            rest.append(following)

    while rest:
        yield part()


@contextmanager
def beside(path: Path, *, keep: bool = False) -> Iterator[Path]:
    """A name next to the path, which takes its place at the end if it is to `keep`; otherwise it is removed."""
    part = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        if keep:
            part.replace(path)
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error}", subject=str(path)) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _write(batches: Iterable[pa.RecordBatch], schema: pa.Schema, target: Target, stream: BinaryIO) -> None:
    raw: Any = stream
    codec: Any = target.codec
    sink: Any = pa.PythonFile(raw, mode="w")
    compressed = pa.CompressedOutputStream(sink, codec) if codec else sink
    kinds: dict[ExportFormat, Callable[[Any, pa.Schema], _Writer]] = {
        ExportFormat.PARQUET: _Parquet,
        ExportFormat.CSV: _Csv,
        ExportFormat.JSONL: _JsonLines,
    }
    writer = kinds[target.format](compressed, schema)
    for batch in batches:
        writer.write(batch)
    writer.close()
    if codec:
        compressed.close()  # closes what it stands on, too


class _Parquet:
    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(sink, schema, compression="zstd")
        self._schema, self._held, self._rows = schema, list[pa.RecordBatch](), 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Batches of many small files share a row group."""
        self._held.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema), row_group_size=ROW_GROUP)
        self._held, self._rows = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


class _Csv:
    """Text is quoted and null is not, so that an empty text and a null come back as what they were."""

    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        fields = [field.with_type(_plain(field.type)) for field in schema]
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


def _plain(kind: Any) -> Any:
    return pa.string() if isinstance(kind, pa.BaseExtensionType) or pt.is_decimal(kind) else kind


class _JsonLines:
    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch) -> None:
        lines = [json.dumps(json_value(row), ensure_ascii=False) for row in batch.to_pylist()]
        self._sink.write(("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        self._sink.flush()


def json_value(value: Any) -> Any:
    """Times as ISO 8601, decimals and what is no finite number as text, bytes as base64, maps as pairs."""
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
