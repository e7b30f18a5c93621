"""A query before anything of its data is read: its relations at their snapshots, what it needs of each, and the route.

Made from metadata alone. Masks and row filters are part of the plan, so no engine that runs it goes around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from catalog.query import metadata_answers, searching
from catalog.query.binding import Binding, Bound, Caller
from catalog.query.direct import Direct, direct
from catalog.query.engine import Limits, Session, quoted
from catalog.query.inventory import Inventory
from catalog.query.predicates import Mask, Verdict
from catalog.query.routing import Explanation, TableEstimate, choose, only_here
from catalog.query.scans import Scan, scans_of
from catalog.query.searching import Searches
from catalog.query.statement import AsOf, Statement, splice
from catalog.query.verification import CheckedIO

_VERSIONS, _BEHIND = "strandline_versions", "strandline_tables"
_WORD_BYTES = 12
Checks = Mapping[str, tuple[CheckedIO, Inventory]]
"""By a relation's label: a reader that checks, and its files as checked manifests name them."""


@dataclass(frozen=True)
class Rules:
    """What one caller sees of one table: rows for which `row_filter` is true, and columns as `columns` says.

    A column maps to the SQL that stands for it; None leaves it out. Columns not named are seen as they are.
    """

    row_filter: str | None = None
    columns: Mapping[str, str | None] | None = None


RulesOf = Callable[[Caller | None, str], Rules | None]


@dataclass(frozen=True)
class Placed:
    """One relation of the query and its name in the engine."""

    bound: Bound
    database: str
    table: str
    label: str
    mention: int | None = None
    """Of a mention that is searched: where its name begins in the text. It has rows of its own."""

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def front(self) -> tuple[str, str]:
        """Where the text finds the relation: in front of it if a view stands there."""
        if self.database != _BEHIND:
            return self.database, self.table
        database, _, table = self.table.partition(".")
        return database, table


@dataclass(frozen=True)
class View:
    """A query that stands in front of a relation, under the name the text knows."""

    database: str
    table: str
    sql: str


@dataclass(frozen=True)
class Plan:
    statement: Statement
    binding: Binding
    placed: tuple[Placed, ...]
    views: tuple[View, ...]
    text: str
    parameters: Mapping[str, Any]
    schema: pa.Schema
    scans: dict[str, Scan]
    verdicts: dict[str, Verdict]
    ready: pa.RecordBatch | None
    explanation: Explanation
    exact_decimals: bool
    searches: Searches
    direct: Direct | None = None

    def unbound(self) -> Plan:
        """The same to be kept, with none of the lists of files that it was bound to."""
        return replace(self, binding=Binding(None, None, {}, {}), placed=(), searches=Searches())

    def bound_again(self, binding: Binding, rules: Callable[[str], Rules | None], searches: Searches) -> Plan:
        """An `unbound` one, for the same text over the same snapshots under the same rules."""
        placed, _, _ = _place(self.statement, binding, rules, searches)
        return replace(self, binding=binding, placed=placed, searches=searches)


def plan(
    statement: Statement,
    binding: Binding,
    parameters: Mapping[str, Any],
    rules: Callable[[str], Rules | None],
    limits: Limits,
    *,
    limit_bytes: int | None = None,
    checked: Checks | None = None,
    searches: Searches,
) -> Plan:
    """Plans the query over empty tables. Invalid with the engine's reason when it makes no sense. No request."""
    placed, views, text = _place(statement, binding, rules, searches)
    placed = tuple(_with_inventory(one, checked or {}) for one in placed)
    decimals = _exact_decimals(placed)
    session = Session(memory_bytes=limits.memory_bytes, exact_decimals=decimals, recursive=statement.recursive)
    for one in placed:
        session.add(one.database, one.table, one.bound.relation.arrow)
    for view in views:
        session.add_view(view.database, view.table, view.sql)
    for function in searches.placeholders():
        session.add_function(function.name, function.arguments, function.result, function.call, known=False)
    frame = session.plan(text, parameters)
    schema = frame.schema()
    names = {one.name: tuple(one.bound.relation.arrow.names) for one in placed}
    scans = scans_of(session.optimised(frame), names)
    verdicts = {
        one.name: one.bound.relation.inventory.judge(scans[one.name].predicate, one.bound.relation.schema)
        for one in placed
    }
    ready = None
    wanted = metadata_answers.aggregates(statement.tree)
    if wanted is not None and len(placed) == 1 and not (views or searches) and scans[placed[0].name].exact:
        ready = metadata_answers.answer(wanted, placed[0].bound.relation, verdicts[placed[0].name], schema)
    estimates = [_estimate(one, scans[one.name], verdicts[one.name].may) for one in placed]
    explanation = choose(estimates, limits, answered=ready is not None, limit_bytes=limit_bytes)
    if searches:
        explanation = only_here(explanation, searches.reason())
    short = None if views else direct(statement.tree, searches, parameters)
    made = (statement, binding, placed, views, text, parameters, schema, scans, verdicts, ready)
    return Plan(*made, explanation, decimals, searches, short)


def _place(
    statement: Statement, binding: Binding, rules_of: Callable[[str], Rules | None], searches: Searches
) -> tuple[tuple[Placed, ...], tuple[View, ...], str]:
    """Each relation's place in the engine, the views in front of some, and the text that names them."""
    placed: dict[tuple[str, AsOf | None, int | None], Placed] = {}
    views: list[View] = []
    parts: list[tuple[int, int, str]] = searches.parts()
    for ref in statement.refs:
        name = binding.names[ref]
        database, _, table = name.partition(".")
        front = (database, table) if ref.as_of is None else (_VERSIONS, f"r{ref.start}")
        mention = ref.start if searches.placed(ref.start) else None
        if mention is not None:
            front = (searching.PLACE, f"r{ref.start}")
        key = (name, ref.as_of, mention)
        if key not in placed:
            rules = rules_of(name)
            place = front if rules is None else (_BEHIND, f"{'.'.join(front)}")
            label = name if ref.as_of is None else f"{name}@{ref.as_of}"
            made = Placed(binding.of(ref), *place, label, mention)
            placed[key] = made
            if rules is not None:
                views.append(View(*front, _view(made, rules)))
        else:
            front = placed[key].front
        if ref.as_of is not None or ref.database is None or mention is not None:
            alias = "" if ref.aliased else f" AS {quoted(ref.table)}"
            parts.append((ref.start, ref.end, f"{quoted(front[0])}.{quoted(front[1])}{alias}"))
    return tuple(placed.values()), tuple(views), splice(statement.text, parts)


def _view(placed: Placed, rules: Rules) -> str:
    columns = rules.columns or {}
    seen = []
    for name in placed.bound.relation.arrow.names:
        shown = columns.get(name, quoted(name))
        if shown is not None:
            seen.append(f"{shown} AS {quoted(name)}")
    where = f" WHERE {rules.row_filter}" if rules.row_filter else ""
    return f"SELECT {', '.join(seen)} FROM {quoted(placed.database)}.{quoted(placed.table)}{where}"  # noqa: S608


def _with_inventory(placed: Placed, checked: Checks) -> Placed:
    if placed.label not in checked:
        return placed
    relation = replace(placed.bound.relation, inventory=checked[placed.label][1])
    return replace(placed, bound=replace(placed.bound, relation=relation))


def _exact_decimals(placed: tuple[Placed, ...]) -> bool:
    """Over decimals `0.1` should be one too; over doubles it must not be, for NaN and 1e300 have no decimal."""
    kinds = [field.type for one in placed for field in one.bound.relation.arrow]
    return any(map(pa.types.is_decimal, kinds)) and not any(map(pa.types.is_floating, kinds))


def _estimate(placed: Placed, scan: Scan, chosen: Mask) -> TableEstimate:
    relation = placed.bound.relation
    inventory = relation.inventory
    snapshot = None if relation.snapshot_id is None else str(relation.snapshot_id)
    return TableEstimate(
        placed.label,
        snapshot,
        int(chosen.sum()),
        len(inventory),
        int(inventory.rows[chosen].sum()),
        inventory.width(relation.fields(scan.columns), chosen) if scan.columns else 0,
        int(inventory.sizes.sum()),
        scan.columns,
        bool(inventory.touched[chosen].any()),
        sum(_least_bytes(relation.arrow.field(name).type) for name in scan.columns),
    )


def _least_bytes(kind: pa.DataType) -> int:
    """A value in memory: as wide as its type, or an offset and a short word."""
    try:
        return max(kind.bit_width // 8, 1)
    except ValueError:
        return _WORD_BYTES
