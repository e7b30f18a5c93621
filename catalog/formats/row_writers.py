"""Arrow batches to Parquet, CSV or JSON lines: one rule for what each format can represent, and how.

Streams: memory is one batch, or one row group of Parquet.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalog.core.column_names import check_column_names
from catalog.core.errors import Invalid
from catalog.formats.export_format import ExportFormat

ROW_GROUP = 128 * 1024


class RowWriter(Protocol):
    """Writes batches of one schema to a sink, which stays open."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def open_writer(format_: ExportFormat, sink: Any, schema: pa.Schema) -> RowWriter:
    """A writer to a file object. Invalid if the format cannot represent a column."""
    check_representable(schema, format_)
    writers: dict[ExportFormat, Callable[[Any, pa.Schema], RowWriter]] = {
        ExportFormat.PARQUET: _Parquet,
        ExportFormat.CSV: _Csv,
        ExportFormat.JSONL: _JsonLines,
    }
    return writers[format_](sink, schema)


def check_representable(schema: pa.Schema, format_: ExportFormat) -> None:
    """Invalid, before anything is read, for columns that the format cannot represent."""
    kind = "json" if format_ is ExportFormat.JSONL else format_.value
    check_column_names(schema.names, kind, "export to CSV")
    for field in schema if format_ is ExportFormat.CSV else ():
        if pt.is_nested(field.type) or _is_binary(field.type):
            message = f"column {field.name!r} is a {field.type}, which CSV cannot represent"
            raise Invalid(f"{message}: choose jsonl or parquet, or leave the column out")


def _is_binary(kind: Any) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)


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
        try:
            rows = batch.to_pylist()
        except (OverflowError, ValueError) as error:  # another engine may commit a time that Python does not have
            raise Invalid(f"a value has no form in JSON ({error}): export to Parquet, or cast the column") from None
        lines = [json.dumps(json_value(row), ensure_ascii=False) for row in rows]
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
