"""What callers ask for, checked as early as can be and turned into plans that every attempt runs anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from catalog.errors import Invalid
from catalog.tables.deltas import Delta
from catalog.tables.matching import FilterQuestion
from catalog.tables.rows import Rows, check_keys, check_rows
from catalog.tables.versions import Catalogue, Version
from catalog.tables.writes import KEY, Planner


@dataclass(frozen=True)
class Request:
    """A write to one table. `rows`: how many were given; None when only the plan will tell, as in a delete."""

    table: str
    plan: Callable[[Planner], Delta]
    rows: int | None = None


def checked(
    catalogue: Catalogue, name: str, rows: Rows, columns: Sequence[str] | None = None
) -> tuple[pa.Table, Version]:
    """The rows against the schema known here, without a request; and, if they do not fit, against the newest."""
    held = rows if isinstance(rows, pa.Table) or hasattr(rows, "__len__") else _held(rows)
    version = catalogue.known(name)
    try:
        return check_rows(_part(version, columns), held, table=name), version
    except Invalid:
        fresh = catalogue.load(name)
        if fresh.shape == version.shape:
            raise
        return check_rows(_part(fresh, columns), held, table=name), fresh


def insert_request(catalogue: Catalogue, name: str, rows: Rows) -> Request:
    early, _ = checked(catalogue, name, rows)

    def plan(planner: Planner) -> Delta:
        return planner.insert(check_rows(planner.version.schema, early, table=name))

    return Request(name, plan, early.num_rows)


def upsert_request(catalogue: Catalogue, name: str, rows: Rows, key: Sequence[str] | None) -> Request:
    early, version = checked(catalogue, name, rows)
    chosen = _key(version, key)
    check_keys(early, chosen, table=name)

    def plan(planner: Planner) -> Delta:
        rows, wanted = check_rows(planner.version.schema, early, table=name), _key(planner.version, key)
        if wanted != chosen:  # the table's key was changed elsewhere
            check_keys(rows, wanted, table=name)
        return planner.upsert(rows, wanted)

    return Request(name, plan, early.num_rows)


def delete_request(catalogue: Catalogue, name: str, where: str | BooleanExpression | None, keys: Rows) -> Request:
    if (where is None) == (keys is None):
        raise Invalid(f"{name}: delete takes either a filter or keys", subject=name)
    version = catalogue.known(name)
    if where is not None:
        condition = where
        FilterQuestion(version, condition)  # what cannot be read is refused here
        return Request(name, lambda planner: planner.delete(condition))
    chosen = _key(version, None)
    early, _ = checked(catalogue, name, keys, chosen)

    def plan(planner: Planner) -> Delta:
        return planner.delete_keys(check_rows(_part(planner.version, chosen), early, table=name), chosen)

    return Request(name, plan)


def key_of(version: Version) -> tuple[str, ...]:
    """The table's own key; empty if it has none."""
    return tuple(name for name in version.properties.get(KEY, "").split(",") if name)


def _key(version: Version, key: Sequence[str] | None) -> tuple[str, ...]:
    chosen = (key,) if isinstance(key, str) else tuple(key or key_of(version))
    if not chosen:
        raise Invalid(f"{version.name} has no key: name one, or set it with alter(key=…)", subject=version.name)
    for column in chosen:
        if column not in [field.name for field in version.schema.fields]:
            raise Invalid(f"{version.name}: there is no column {column!r} to be a key", subject=version.name)
    return chosen


def _part(version: Version, columns: Sequence[str] | None) -> Schema:
    return version.schema if columns is None else version.schema.select(*columns)


def _held(rows: Rows) -> Rows:
    """Iterators are run through once; a second look needs them kept."""
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    return list(rows) if hasattr(rows, "__iter__") else rows
