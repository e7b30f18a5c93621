"""What a statement is, whatever its tables hold: the syntax tree, the schema of its rows, what it needs of each
table. Depends on the tables' columns alone, so that a statement sent again over a new snapshot is not analysed again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog.core.errors import Invalid
from catalog.query.plan.predicates import conjunction
from catalog.query.plan.relation_names import PlannedRelation, RelationNames, engine_text, with_views
from catalog.query.plan.scan_requirements import Needs, ScannedRelation, ScanRequirements, needs_of
from catalog.query.plan.syntax import TABLES_SCHEMA, Node, check_calls, nodes
from catalog.query.run.engine import Session, quote_identifier, unknown_column, unknown_column_of
from catalog.query.run.search import Searches
from catalog.query.scan.scan_sql import addressed_relation_sql, empty_relation_sql
from catalog.query.sql.statement import Statement
from catalog.query.system.system_tables import NO_SYSTEM_TABLES, SystemTables

MAX_CACHED = 256
MAX_TEXT = 8 * 1024
"""Longer statements are analysed each time."""


@dataclass(frozen=True)
class Analysis:
    """`needs` are by relation name: the statement's own, and those of the row filter and masks in front of it."""

    tree: Node
    schema: pa.Schema
    needs: Mapping[str, Needs]
    own_needs: Mapping[str, Needs]
    scans: Mapping[str, ScanRequirements] | None = None
    """The requirements, where no parameter decides them."""


class Analyses:
    """A cache of analyses; evicts the least recently used."""

    def __init__(self) -> None:
        self._cached: OrderedDict[Hashable, Analysis] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Analysis | None:
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
            return self._cached.get(key)

    def put(self, key: Hashable, analysis: Analysis) -> None:
        with self._lock:
            self._cached[key] = analysis
            if len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)


def analyse(
    statement: Statement,
    names: RelationNames,
    searches: Searches,
    parameters: Mapping[str, Any],
    session: Session,
    cache: Analyses,
    system: SystemTables = NO_SYSTEM_TABLES,
) -> tuple[Analysis, Mapping[str, ScanRequirements]]:
    """The analysis, and what the statement needs of each relation, by its name. Invalid, with the engine's reason, if
    the statement is not valid. Statements over system tables, and those that write, are analysed each time."""
    is_cached = len(statement.text) <= MAX_TEXT and not system and not any(r.addressed for r in names.relations)
    key = _key(statement, names, searches, parameters) if is_cached else None
    analysis = cache.get(key) if key is not None else None
    if analysis is None:
        analysis = _analyse(statement, names, searches, parameters, session, system)
        scans = _scans(analysis, names, session, parameters)
        if key is not None:
            shared = None if parameters else scans
            cache.put(key, Analysis(analysis.tree, analysis.schema, analysis.needs, analysis.own_needs, shared))
        return analysis, scans
    return analysis, analysis.scans if analysis.scans is not None else _scans(analysis, names, session, parameters)


def _key(
    statement: Statement, names: RelationNames, searches: Searches, parameters: Mapping[str, Any]
) -> tuple[Hashable, ...]:
    """Everything that an analysis depends on."""
    types = tuple(sorted((name, _type_key(value)) for name, value in parameters.items()))
    tables = tuple(
        (planned.name, planned.bound.relation.name, empty_relation_sql(planned.bound.relation.schema))
        for planned in names.relations
    )
    refs = tuple(sorted(names.refs.items()))
    operators = (*searches.replacements(), *searches.placeholders())
    return statement.text, refs, tables, names.views, operators, types


def _type_key(value: Any) -> str:
    """What DuckDB types a parameter by: for most types the type, for others the value."""
    if value is None or isinstance(value, bool | str | float):
        return type(value).__name__
    if isinstance(value, int):
        return f"int {max(value.bit_length(), 31)}"
    return f"{type(value).__name__} {value!r}"


def _analyse(
    statement: Statement,
    names: RelationNames,
    searches: Searches,
    parameters: Mapping[str, Any],
    session: Session,
    system: SystemTables,
) -> Analysis:
    sources = {name: _table(name) for name in names.refs.values()}
    replacements = [*searches.replacements(), *system.placeholders()]
    tree = session.syntax_tree(engine_text(statement, names.refs, sources, replacements))
    check_calls(tree, {bound.name for bound in searches.bound})
    _check_parameters(tree, parameters)
    schema = _schema(session, statement, names, searches, parameters, system)
    masked = {view.name: view for view in names.views}
    scanned = {}
    for planned in names.relations:
        view = masked.get(planned.name)
        changed = frozenset() if view is None else view.changed
        scanned[planned.name] = ScannedRelation(planned.bound.relation.schema, changed)
    own = {}
    for name, view in masked.items():  # a row filter is a condition on the table itself
        inner = session.syntax_tree(view.sql(_table(name)))
        check_calls(inner)
        own[name] = needs_of(inner, {name: ScannedRelation(scanned[name].schema)})[name]
    return Analysis(tree, schema, needs_of(tree, scanned), own)


def _table(name: str) -> str:
    """How a syntax tree has the relation."""
    return f"{TABLES_SCHEMA}.{quote_identifier(name)}"


def _check_parameters(tree: Node, parameters: Mapping[str, Any]) -> None:
    named = {str(node["identifier"]) for node in nodes(tree) if node.get("class") == "PARAMETER"}
    for name in sorted(named - parameters.keys()):
        raise Invalid(f"parameter ${name} has no value: pass it with the query")
    for name in sorted(parameters.keys() - named):
        raise Invalid(f"the query does not name parameter ${name}: leave it out")


def _schema(
    session: Session,
    statement: Statement,
    names: RelationNames,
    searches: Searches,
    parameters: Mapping[str, Any],
    system: SystemTables,
) -> pa.Schema:
    sources = {planned.name: f"({_empty_sql(planned)})" for planned in names.relations}
    sources = with_views(sources, names.views)
    own = system.registered(session)
    text = engine_text(statement, names.refs, sources, [*searches.placeholders(), *own])
    try:
        schema = session.schema(text, parameters)
    except Invalid as error:
        column = unknown_column_of(error)
        if column is None:
            raise
        shown = {name for planned in names.relations for name in planned.bound.relation.arrow.names}
        hidden = {name for view in names.views for name in view.hidden}
        shown |= {name for _, rows in system.rows for name in rows.column_names}
        raise (unknown_column(column, sorted(shown - hidden)) or error) from None
    labels = _readable(session, list(schema.names), {name: sources[name] for name in names.refs.values()})
    return pa.schema([pa.field(label, _utc(field.type)) for label, field in zip(labels, schema, strict=True)])


def _empty_sql(planned: PlannedRelation) -> str:
    schema = planned.bound.relation.schema
    return addressed_relation_sql(schema) if planned.addressed else empty_relation_sql(schema)


def _readable(session: Session, labels: list[str], sources: Mapping[str, str]) -> list[str]:
    """The columns' names. DuckDB names a column after its expression: there a table has its own name again."""
    if not any("CAST(NULL AS" in label for label in labels):
        return labels
    for name, source in sources.items():
        shown = session.schema(f"SELECT (SELECT 1 FROM {source} AS strandline)", {}).names[0]  # noqa: S608
        inner = shown.partition(" FROM ")[2].rpartition(" AS strandline")[0]
        labels = [label.replace(inner, name) for label in labels]
    return labels


def _utc(type_: Any) -> Any:
    return pa.timestamp(type_.unit, "UTC") if pa.types.is_timestamp(type_) and type_.tz is not None else type_


def _scans(
    analysis: Analysis, names: RelationNames, session: Session, parameters: Mapping[str, Any]
) -> dict[str, ScanRequirements]:
    """What the statement needs of each relation, with the values of its parameters."""
    scans = {name: needs.requirements(session, parameters) for name, needs in analysis.needs.items()}
    masked = {view.name: view for view in names.views}
    for planned in names.relations:
        if planned.name not in masked:
            continue
        scan, own = scans[planned.name], analysis.own_needs[planned.name].requirements(session, {})
        parts = [part for part in (scan.predicate, own.predicate) if part is not None]
        columns = {*scan.columns, *own.columns}
        kept = tuple(name for name in planned.bound.relation.arrow.names if name in columns)
        scans[planned.name] = ScanRequirements(kept, conjunction(parts), exact=False)
    return scans
