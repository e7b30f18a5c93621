"""Makes the rows that show the lake itself, as one caller may see them.

A table that the caller may not read is in none of them, and asking for it by name is an error as for a table that does
not exist. For a table with masks or a row filter the caller sees no hidden column and no count, and neither its files
nor its changes, which would show the rows as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog.core.errors import Denied, Invalid
from catalog.core.point_in_time import PointInTime, TimelineIndex
from catalog.query.bind.binding import Binder, QueryCaller
from catalog.query.plan.relation_names import AccessRules, RulesOf
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.sql.statement import TableRef
from catalog.query.sql.system_refs import INFORMATION_SCHEMA, SystemRef
from catalog.query.system import catalog_rows, timeline_rows
from catalog.query.system.system_tables import SystemTables
from catalog.tables import Tables, TableVersion
from catalog.timeline import Timeline

_MEMORY_SHARE = 4
"""Rows of the lake itself may take this part of a query's memory: 1/4."""


@dataclass(frozen=True)
class Asker:
    """Who asks, and at which point: `index` is the query's cut, None without one; `as_of` what the caller named."""

    caller: QueryCaller | None
    index: int | None
    as_of: PointInTime | None
    limits: EngineLimits


class SystemRelations:
    def __init__(
        self, tables: Tables, timeline: Callable[[], Timeline], binder: Binder, rules: RulesOf | None = None
    ) -> None:
        self._tables, self._timeline, self._binder, self._rules = tables, timeline, binder, rules

    def bind(self, refs: Sequence[SystemRef], asker: Asker) -> SystemTables:
        """The rows of every reference. Costs what their functions say; nothing is cached."""
        rows = tuple((ref, self._rows(ref, asker)) for ref in refs)
        size = sum(table.nbytes for _, table in rows)
        if size > asker.limits.memory_bytes // _MEMORY_SHARE:
            raise Invalid(f"{refs[0].name} has {size >> 20} MiB, too much for one query: name a shorter range")
        return SystemTables(rows)

    def _rows(self, ref: SystemRef, asker: Asker) -> pa.Table:
        if ref.name.startswith(INFORMATION_SCHEMA):
            return self._information_schema(ref, asker)
        if ref.name == "timeline":
            return self._whole_timeline(ref, asker)
        version = self._binder.find_table(_table_ref(ref), asker.caller)
        rules = self._rules_of(version.name, asker)
        if ref.name == "table_columns":
            return self._columns_of(version, ref, rules, asker)
        if ref.name == "files":
            return self._files(version, ref, rules, asker)
        if ref.name == "changes":
            return self._changes(version, ref, rules, asker)
        if asker.as_of is not None and ref.name == "snapshots":
            raise Invalid("snapshots shows a table's snapshots as they are now: leave as_of out")
        if ref.name == "snapshots":
            return catalog_rows.snapshots(version, shows_counts=rules is None)
        return timeline_rows.history(self._timeline(), version, asker.index, shows_counts=rules is None)

    def _information_schema(self, ref: SystemRef, asker: Asker) -> pa.Table:
        if asker.as_of is not None:
            raise Invalid(f"{ref.name} shows the lake as it is now: leave as_of out")
        names = self._binder.readable(asker.caller)
        if ref.name.endswith("tables"):
            return catalog_rows.tables(names, asker.caller)
        versions = self._binder.load_tables(names)
        return catalog_rows.columns([(version, self._rules_of(version.name, asker)) for version in versions])

    def _columns_of(self, version: TableVersion, ref: SystemRef, rules: AccessRules | None, asker: Asker) -> pa.Table:
        point = ref.point(1) or asker.as_of
        if point is None:
            return catalog_rows.described(version, version.schema, rules)
        binding = self._binder.bind([_table_ref(ref)], point, False, asker.caller)
        (bound,) = binding.tables.values()
        return catalog_rows.described(version, bound.relation.schema, rules)

    def _files(self, version: TableVersion, ref: SystemRef, rules: AccessRules | None, asker: Asker) -> pa.Table:
        _require_raw(version.name, "its files", rules)
        at = None if asker.index is None else TimelineIndex(asker.index)
        point = ref.point(1) or at
        binding = self._binder.bind([_table_ref(ref)], point, point is None, asker.caller)
        (bound,) = binding.tables.values()
        return catalog_rows.files(bound)

    def _changes(self, version: TableVersion, ref: SystemRef, rules: AccessRules | None, asker: Asker) -> pa.Table:
        _require_raw(version.name, "its changes", rules)
        bounds: list[Any] = [*ref.arguments[1:], None, None]
        until = bounds[1] if bounds[1] is not None or asker.as_of is None else asker.as_of
        most = asker.limits.memory_bytes // _MEMORY_SHARE
        return timeline_rows.changes(self._timeline(), self._tables.table_store.table(version), bounds[0], until, most)

    def _whole_timeline(self, ref: SystemRef, asker: Asker) -> pa.Table:
        may_read = asker.caller.readable if asker.caller is not None else list
        filtered = lambda table: self._rules_of(table, asker) is not None  # noqa: E731
        return timeline_rows.leaves(self._timeline(), ref, asker.index, may_read, filtered)

    def _rules_of(self, name: str, asker: Asker) -> AccessRules | None:
        return None if self._rules is None else self._rules(asker.caller, name)


def _table_ref(ref: SystemRef) -> TableRef:
    database, dot, table = ref.table.rpartition(".")
    if "." in database:
        raise Invalid(f"{ref.table} has too many parts: write <database>.<table>")
    return TableRef(database if dot else None, table, ref.start, ref.end, True)


def _require_raw(table: str, what: str, rules: AccessRules | None) -> None:
    if rules is not None:
        raise Denied(
            f"you see {table} through a filter or masks, so not {what}: read its rows with SELECT", subject=table
        )
