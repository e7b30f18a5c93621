"""Write requests: checked when they are made, and turned into plans that every attempt at a commit runs again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from catalog.core.errors import Invalid
from catalog.tables.addresses import AddressedChange, StaleRead
from catalog.tables.delta import Delta
from catalog.tables.glue_store import GlueTableStore, TableVersion
from catalog.tables.matching import FilterMatcher
from catalog.tables.planner import KEY_PROPERTY, WritePlanner
from catalog.tables.row_validation import Rows, check_keys, check_rows


@dataclass(frozen=True)
class WriteRequest:
    """A write to one table. `rows`: how many are written; None for a delete, where the plan counts them."""

    table: str
    plan: Callable[[WritePlanner], Delta]
    rows: int | None = None


def validate(
    table_store: GlueTableStore, name: str, rows: Rows, columns: Sequence[str] | None = None
) -> tuple[pa.Table, TableVersion]:
    """The rows under the schema that this process last read, without a request; if they do not fit, under the current
    one. Invalid if they fit neither."""
    rows = rows if isinstance(rows, pa.Table) or hasattr(rows, "__len__") else _materialized(rows)
    version = table_store.cached(name)
    try:
        return check_rows(_selected(version, columns), rows, table=name), version
    except Invalid:
        current = table_store.load(name)
        if current.shape == version.shape:
            raise
        return check_rows(_selected(current, columns), rows, table=name), current


def insert_request(table_store: GlueTableStore, name: str, rows: Rows) -> WriteRequest:
    valid, _ = validate(table_store, name, rows)

    def plan(planner: WritePlanner) -> Delta:
        return planner.insert(check_rows(planner.version.schema, valid, table=name))

    return WriteRequest(name, plan, valid.num_rows)


def upsert_request(table_store: GlueTableStore, name: str, rows: Rows, key: Sequence[str] | None) -> WriteRequest:
    valid, version = validate(table_store, name, rows)
    checked_key = _key(version, key)
    check_keys(valid, checked_key, table=name)

    def plan(planner: WritePlanner) -> Delta:
        rows, current_key = check_rows(planner.version.schema, valid, table=name), _key(planner.version, key)
        if current_key != checked_key:  # another writer changed the table's key
            check_keys(rows, current_key, table=name)
        return planner.upsert(rows, current_key)

    return WriteRequest(name, plan, valid.num_rows)


def delete_request(
    table_store: GlueTableStore, name: str, where: str | BooleanExpression | None, keys: Rows
) -> WriteRequest:
    if (where is None) == (keys is None):
        raise Invalid(f"{name}: give either a filter or keys to delete", subject=name)
    version = table_store.cached(name)
    if where is not None:
        condition = where
        FilterMatcher(version, condition)  # Invalid now, not in the plan, if it cannot be parsed
        return WriteRequest(name, lambda planner: planner.delete(condition))
    key = _key(version, None)
    valid, _ = validate(table_store, name, keys, key)

    def plan(planner: WritePlanner) -> Delta:
        return planner.delete_keys(check_rows(_selected(planner.version, key), valid, table=name), key)

    return WriteRequest(name, plan)


def addressed_request(
    table_store: GlueTableStore,
    name: str,
    base_snapshot_id: int | None,
    changes: Sequence[AddressedChange],
    inserted: Rows = None,
) -> WriteRequest:
    """Deletes and updates rows by their addresses in one snapshot, and inserts others. StaleRead if the table has moved
    on from it."""
    valid = None if inserted is None else validate(table_store, name, inserted)[0]

    def plan(planner: WritePlanner) -> Delta:
        head = planner.version.head(planner.branch)
        if (None if head is None else head.snapshot_id) != base_snapshot_id:
            raise StaleRead(f"{name} was changed while the statement was running: run it again", subject=name)
        schema = planner.version.schema
        checked = [
            AddressedChange(addresses, updates if updates is None else _checked(schema, updates, name))
            for addresses, updates in changes
        ]
        return planner.replace_addressed(checked, None if valid is None else check_rows(schema, valid, table=name))

    deletes_only = valid is None and all(change.updates is None for change in changes)
    rows = sum(len(change.addresses) for change in changes) + (0 if valid is None else valid.num_rows)
    return WriteRequest(name, plan, None if deletes_only else rows)


def _checked(schema: Schema, updates: pa.Table, name: str) -> pa.Table:
    return check_rows(schema.select(*updates.column_names), updates, table=name)


def table_key(version: TableVersion) -> tuple[str, ...]:
    """The table's own key; empty if it has none."""
    return tuple(name for name in version.properties.get(KEY_PROPERTY, "").split(",") if name)


def _key(version: TableVersion, key: Sequence[str] | None) -> tuple[str, ...]:
    columns = (key,) if isinstance(key, str) else tuple(key or table_key(version))
    if not columns:
        raise Invalid(f"{version.name} has no key: name one, or set it with alter(key=…)", subject=version.name)
    for column in columns:
        if column not in [field.name for field in version.schema.fields]:
            raise Invalid(f"{version.name}: there is no column {column!r} to be a key", subject=version.name)
    return columns


def _selected(version: TableVersion, columns: Sequence[str] | None) -> Schema:
    return version.schema if columns is None else version.schema.select(*columns)


def _materialized(rows: Rows) -> Rows:
    """An iterator's rows as a list or table: they are read again if the first check fails."""
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    return list(rows) if hasattr(rows, "__iter__") else rows
