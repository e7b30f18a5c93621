"""Rows from the catalog and the tables' metadata: tables, columns, snapshots and data files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import ancestors_of

from catalog.query.bind.binding import BoundTable, QueryCaller
from catalog.query.plan.relation_names import AccessRules
from catalog.query.run.engine import MIN_MEMORY_BYTES, Session, quote_identifier
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.scan.scan_sql import empty_relation_sql, engine_type_name
from catalog.tables import KEY_PROPERTY, TableVersion

CATALOG = "lake"
Types = dict[str, pa.DataType]
_MS = pa.timestamp("ms", "UTC")
_TABLES: Types = {"table_catalog": pa.string(), "table_schema": pa.string(), "table_name": pa.string()}
TABLES: Types = _TABLES | {"table_type": pa.string(), "is_insertable_into": pa.string()}
COLUMNS: Types = _TABLES | {
    "column_name": pa.string(),
    "ordinal_position": pa.int32(),
    "column_default": pa.string(),
    "is_nullable": pa.string(),
    "data_type": pa.string(),
}
DESCRIBED: Types = {
    "column_name": pa.string(),
    "column_type": pa.string(),
    "null": pa.string(),
    "key": pa.string(),
    "default": pa.string(),
    "extra": pa.string(),
}
SNAPSHOTS: Types = {
    "snapshot_id": pa.int64(),
    "parent_id": pa.int64(),
    "committed": _MS,
    "operation": pa.string(),
    "names": pa.list_(pa.string()),
    "is_current": pa.bool_(),
    "added_rows": pa.int64(),
    "deleted_rows": pa.int64(),
    "total_rows": pa.int64(),
}
FILES: Types = {
    "path": pa.string(),
    "format": pa.string(),
    "rows": pa.int64(),
    "bytes": pa.int64(),
    "has_deletes": pa.bool_(),
    "partition": pa.string(),
    "spec_id": pa.int32(),
}


def as_table(rows: Iterable[Mapping[str, Any]], types: Mapping[str, pa.DataType]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(list(types.items())))


def tables(names: Sequence[str], caller: QueryCaller | None) -> pa.Table:
    """information_schema.tables: one LIST of the catalog, which found the names."""
    rows = [
        _named(name) | {"table_type": "BASE TABLE", "is_insertable_into": "YES" if _may_write(caller, name) else "NO"}
        for name in sorted(names)
    ]
    return as_table(rows, TABLES)


def columns(versions: Iterable[tuple[TableVersion, AccessRules | None]]) -> pa.Table:
    """information_schema.columns. The tables are loaded already: one request for each."""
    rows = []
    for version, rules in versions:
        for number, field in enumerate(_shown(version, version.schema, rules), 1):
            rows.append(
                _named(version.name)
                | {
                    "column_name": field["column_name"],
                    "ordinal_position": number,
                    "is_nullable": field["null"],
                    "data_type": field["column_type"],
                }
            )
    return as_table(rows, COLUMNS)


def described(version: TableVersion, schema: Schema, rules: AccessRules | None) -> pa.Table:
    """DESCRIBE: the columns as DuckDB's types, with the table's own key."""
    return as_table(_shown(version, schema, rules), DESCRIBED)


def snapshots(version: TableVersion, *, shows_counts: bool) -> pa.Table:
    """Main's snapshots that have not expired, newest first."""
    metadata = version.metadata
    names: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        names.setdefault(ref.snapshot_id, []).append(name)
    rows = []
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        summary = snapshot.summary
        row = {
            "snapshot_id": snapshot.snapshot_id,
            "parent_id": snapshot.parent_snapshot_id,
            "committed": snapshot.timestamp_ms,
            "operation": None if summary is None else summary.operation.value,
            "names": sorted(names.get(snapshot.snapshot_id, [])),
            "is_current": snapshot.snapshot_id == metadata.current_snapshot_id,
        }
        if shows_counts and summary is not None:
            for column, key in (("added", "added"), ("deleted", "deleted"), ("total", "total")):
                count = summary.get(f"{key}-records")
                row[f"{column}_rows"] = None if count is None else int(count)
        rows.append(row)
    return as_table(rows, SNAPSHOTS)


def files(bound: BoundTable) -> pa.Table:
    """The live data files of the bound snapshot."""
    rows = [
        {
            "path": live.file.file_path,
            "format": str(live.file.file_format.value).lower(),
            "rows": live.file.record_count,
            "bytes": live.file.file_size_in_bytes,
            "has_deletes": bool(live.own or live.shared),
            "partition": _partition(bound, live.file),
            "spec_id": live.file.spec_id,
        }
        for live in bound.relation.statistics.files
    ]
    return as_table(rows, FILES)


def _partition(bound: BoundTable, file: Any) -> str | None:
    """The partition as text, `day=2026-03-01/region=eu`; None if the file has none."""
    spec = bound.relation.metadata.specs()[file.spec_id]
    if spec.is_unpartitioned():
        return None
    return spec.partition_to_path(file.partition, bound.relation.metadata.schema())


def _named(name: str) -> dict[str, str]:
    database, _, table = name.partition(".")
    return {"table_catalog": CATALOG, "table_schema": database, "table_name": table}


def _may_write(caller: QueryCaller | None, name: str) -> bool:
    return caller is None or bool(caller.writable([name]))


def _shown(version: TableVersion, schema: Schema, rules: AccessRules | None) -> list[dict[str, Any]]:
    masks = {} if rules is None or rules.columns is None else dict(rules.columns)
    key = version.properties.get(KEY_PROPERTY, "").split(",")
    rows = []
    for field in schema.fields:
        mask = masks.get(field.name, field.name)
        if mask is None:
            continue
        masked = field.name in masks
        type_ = _masked_type(version, schema, mask) if masked else engine_type_name(field.field_type)
        rows.append(
            {
                "column_name": field.name,
                "column_type": type_,
                "null": "YES" if masked or not field.required else "NO",
                "key": "PRI" if field.name in key else None,
                "extra": field.doc,
            }
        )
    return rows


def _masked_type(version: TableVersion, schema: Schema, mask: str) -> str:
    """The type of what is shown instead of a column, as DuckDB names it."""
    limits, session = EngineLimits(MIN_MEMORY_BYTES), Session(MIN_MEMORY_BYTES)
    try:
        source = f"({empty_relation_sql(schema)}) AS {quote_identifier(version.name.partition('.')[2])}"
        text = f"SELECT any_value(column_type) AS t FROM (DESCRIBE SELECT {mask} AS m FROM {source})"  # noqa: S608
        deadline = time.monotonic() + limits.seconds
        (batch,) = session.run(text, {}, pa.schema([("t", pa.string())]), deadline, limits)
        return str(batch.column(0)[0].as_py())
    finally:
        session.close()
