"""Exports a stream of Arrow batches to Parquet, CSV or JSON lines. A file gets its name only when it is complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from catalog import Conflict, Invalid
from catalog.formats import ExportFormat, check_representable, open_writer

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
    check_representable(schema, target.format)
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
    writer = open_writer(target.format, compressed, schema)
    for batch in batches:
        writer.write(batch)
    writer.close()
    if codec:
        compressed.close()  # closes the sink, too
