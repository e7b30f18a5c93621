"""What ingestion would make of files: the table's columns and key, each file's rows or fault. Writes nothing.

Runs the same readers, inference and rules as ingestion does, over bytes that the caller opens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from catalog.core.errors import Invalid
from catalog.formats import (
    OUT_OF_RANGE,
    CsvOptions,
    FileRejected,
    FormatLimits,
    Inference,
    NoRows,
    detect,
    first_time_out_of_range,
    is_known,
    read_dialect,
    read_rows,
    unify,
)
from catalog.ingest.rules import RuleStore
from catalog.ingest.target_table import TargetTable
from catalog.tables import Tables, as_schema

SAMPLE_ROWS = 5
Open = Callable[[], BinaryIO]


@dataclass(frozen=True)
class PlannedColumn:
    """`type` is Iceberg's name. `source`: the table or its rule decides it (`table`), or all rows do (`rows`)."""

    name: str
    type: str
    source: str
    doubt: str | None = None


@dataclass
class PlannedFile:
    """`error` says why the file would be quarantined; `rows` counts those before it. `dialect` is of CSV only."""

    name: str
    format: str
    rows: int = 0
    dialect: CsvOptions | None = None
    error: str | None = None


@dataclass(frozen=True)
class IngestPlan:
    table: str
    exists: bool
    key: tuple[str, ...]
    mode: str
    columns: list[PlannedColumn]
    files: list[PlannedFile]
    sample: list[dict[str, Any]]


def plan_files(
    tables: Tables, rules: RuleStore, table: str, files: Mapping[str, Open], limits: FormatLimits | None = None
) -> IngestPlan:
    """The plan for files by their names below the table. Reads each file once, and the beginning of one again.

    NotFound or Invalid if the table's name or namespace cannot be.
    """
    limits, target = limits or FormatLimits(), TargetTable(tables, rules, table)
    columns = target.columns or pa.schema([])
    planned, schemas, inference, first = list[PlannedFile](), list[pa.Schema](), Inference(options=target.csv), None
    for name, open_file in files.items():
        file = PlannedFile(name, detect(name).kind if is_known(name) else "media")
        planned.append(file)
        if file.format == "media":
            file.rows = 1
            continue
        try:
            file_schemas, file_inference = _observe(file, open_file, target, limits)
            inferred = inference if file_inference is None else inference.add(file_inference)
            combined = [inferred.typed(schema) for schema in (*schemas, *file_schemas)]
            new = unify(target.new_columns(combined))
            _check_columns(target, file_schemas)
        except NoRows:
            continue
        except Invalid as error:
            file.error = error.message
            continue
        inference, schemas = inferred, [*schemas, *file_schemas]
        columns, first = pa.schema([*(target.columns or ()), *new]), first or (name, open_file)
    sample = _sample(first, columns, inference.with_order(), limits) if first else []
    mode = target.rule.mode
    return IngestPlan(table, target.exists, target.key, mode, _described(columns, target, inference), planned, sample)


def _observe(
    file: PlannedFile, open_file: Open, target: TargetTable, limits: FormatLimits
) -> tuple[list[pa.Schema], Inference | None]:
    inference, schemas = target.start_inference(file.name), list[pa.Schema]()
    if file.format in ("csv", "tsv"):
        with open_file() as stream:
            file.dialect = read_dialect(stream, file.name, limits, target.csv)
    with open_file() as stream:
        for batch in read_rows(stream, file.name, limits, target.columns, target.csv):
            _check_times(batch, file.rows)
            file.rows += batch.num_rows
            if inference is not None:
                inference.observe(batch)
            if batch.schema not in schemas:
                schemas.append(batch.schema)
    return schemas, inference


def _check_columns(target: TargetTable, schemas: list[pa.Schema]) -> None:
    if target.columns is None or target.rule.unknown != "reject":
        return
    for name in (name for schema in schemas for name in schema.names):
        if name not in target.columns.names:
            has = ", ".join(target.columns.names)
            advice = "a rule with `--unknown evolve` adds such columns, one with `--unknown ignore` drops them"
            raise FileRejected(f"unknown column: {target.name} has {has}; {advice}", column=name)


def _sample(first: tuple[str, Open], columns: pa.Schema, csv: CsvOptions, limits: FormatLimits) -> list[dict[str, Any]]:
    name, open_file = first
    with open_file() as stream:
        for batch in read_rows(stream, name, limits, columns, csv):
            rows: list[dict[str, Any]] = batch.slice(0, SAMPLE_ROWS).to_pylist()
            return rows
    return []


def _check_times(batch: pa.RecordBatch, first: int) -> None:
    """Raises FileRejected, with the row in the file, for a time that no table can hold."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if (row := first_time_out_of_range(column)) is not None:
            raise FileRejected(OUT_OF_RANGE, row=first + row, column=name)


def _described(columns: pa.Schema, target: TargetTable, inference: Inference) -> list[PlannedColumn]:
    doubts = {column.name: column.doubt for column in inference.columns()}
    known = set(target.columns.names if target.columns is not None else ())
    iceberg = {field.name: str(field.field_type) for field in as_schema(columns).fields}
    return [
        PlannedColumn(name, iceberg[name], "table" if name in known else "rows", doubts.get(name))
        for name in columns.names
    ]
