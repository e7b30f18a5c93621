"""Reads one file's bytes as ingestion does when it creates a table: the types of all rows first, then the rows."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog.formats import CsvOptions, FormatLimits, InferredColumn, read_rows, start_inference, unify


@dataclass(frozen=True)
class ReadFile:
    """`columns` has the inferred ones only, by name."""

    rows: list[dict[str, Any]]
    schema: pa.Schema
    columns: dict[str, InferredColumn]
    csv: CsvOptions


def read_file(name: str, data: bytes, limits: FormatLimits | None = None, **options: Any) -> ReadFile:
    limits, csv = limits or FormatLimits(), CsvOptions(**options)
    inference, schemas = start_inference(name, None, csv), list[pa.Schema]()
    for batch in read_rows(io.BytesIO(data), name, limits, None, csv):
        if inference is not None:
            inference.observe(batch)
        schemas.append(batch.schema)
    columns = {column.name: column for column in inference.columns()} if inference else {}
    schema = unify(map(inference.typed, schemas) if inference else schemas)
    csv = inference.with_order() if inference else csv
    rows = list[dict[str, Any]]()
    for batch in read_rows(io.BytesIO(data), name, limits, schema, csv):
        table = pa.Table.from_batches([batch])
        for field in table.schema:  # text of JSON becomes the table's type when it is inserted
            if pa.types.is_string(field.type) and field.type != schema.field(field.name).type:
                at = table.schema.get_field_index(field.name)
                table = table.set_column(at, field.name, table.column(at).cast(schema.field(field.name).type))
        rows += table.to_pylist()
    return ReadFile(rows, schema, columns, csv)
