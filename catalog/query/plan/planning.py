"""Plans a query from metadata alone: its relations at their snapshots, what it needs of each, and the route.

Masks and row filters are part of the plan, so every engine that runs it applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.core.errors import Invalid
from catalog.core.point_in_time import PointInTime
from catalog.query.bind.binding import Binding, BoundTable, QueryCaller
from catalog.query.plan import metadata_answers
from catalog.query.plan.file_statistics import FileStatistics
from catalog.query.plan.predicates import Mask, Verdict, conjunction
from catalog.query.plan.routing import Explanation, TableEstimate, choose, only_in_process
from catalog.query.plan.scan_requirements import ScannedRelation, ScanRequirements, scans_of
from catalog.query.plan.syntax import TABLES_SCHEMA, Node, check_calls
from catalog.query.run import search
from catalog.query.run.direct_search import DirectSearch, direct_search
from catalog.query.run.engine import Session, quote_identifier, unknown_column, unknown_column_of
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.search import Searches
from catalog.query.scan.scan_sql import check_names, empty_relation_sql
from catalog.query.scan.verified_io import VerifiedIO
from catalog.query.sql.statement import Statement, splice

_VERSIONS_DATABASE = "strandline_versions"
"""The database, in a plan, of tables that are read at an AS OF of their own."""
_TEXT_BYTES = 12
_EVERY_ROW = (1 << 63) - 1
VerifiedFiles = Mapping[str, tuple[VerifiedIO, FileStatistics]]
"""By a relation's label: a FileIO that verifies, and the live files as read from verified manifests."""


@dataclass(frozen=True)
class AccessRules:
    """What one caller sees of one table: the rows for which `row_filter` is true, with `columns` masked.

    `columns` maps a column to the SQL expression shown instead of it, or to None to hide it. Other columns are shown
    unchanged.
    """

    row_filter: str | None = None
    columns: Mapping[str, str | None] | None = None


RulesOf = Callable[[QueryCaller | None, str], AccessRules | None]


@dataclass(frozen=True)
class PlannedRelation:
    """One relation of the query and its name in the engine. `label`: `table`, or `table@point-in-time`."""

    bound: BoundTable
    database: str
    table: str
    label: str
    ref_start: int | None = None
    """For a searched table reference, its offset in the text: a search reads different rows for each reference."""

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True)
class View:
    """What a caller sees of a relation: `items`, of the rows for which `row_filter` is true.

    `changed`: the columns that are masked or hidden. `hidden`: those that are not there at all.
    """

    name: str
    table: str
    items: tuple[str, ...]
    row_filter: str | None
    changed: frozenset[str]
    hidden: frozenset[str]

    def sql(self, source: str) -> str:
        """The SELECT over the relation's own source."""
        where = f" WHERE ({self.row_filter})" if self.row_filter else ""
        return f"SELECT {', '.join(self.items)} FROM {source} AS {quote_identifier(self.table)}{where}"  # noqa: S608

    def engine_sql(self, source: str) -> str:
        """The same for DuckDB: it moves no condition below a LIMIT. Else a condition of the caller that fails on a row
        which the filter hides could run first, and its error would show the row."""
        return f"{self.sql(source)} LIMIT {_EVERY_ROW}" if self.row_filter else self.sql(source)


@dataclass(frozen=True)
class Plan:
    """`text`: the statement with its relations' names, for Spark; `refs`: these names by the offset of each reference
    in the statement, for DuckDB, which gets a scan in their place (`engine_text`).

    `metadata_answer`: the result, if statistics alone give it.

    `scans` and `verdicts` are by relation name. `direct`: how to answer a search without the engine.
    """

    statement: Statement
    binding: Binding
    relations: tuple[PlannedRelation, ...]
    views: tuple[View, ...]
    refs: Mapping[int, str]
    text: str
    parameters: Mapping[str, Any]
    schema: pa.Schema
    scans: dict[str, ScanRequirements]
    verdicts: dict[str, Verdict]
    metadata_answer: pa.RecordBatch | None
    explanation: Explanation
    searches: Searches
    direct: DirectSearch | None = None

    def unbound(self) -> Plan:
        """A copy for the plan cache, which does not keep the bound tables' lists of files in memory."""
        return replace(self, binding=Binding(None, None, {}, {}), relations=(), searches=Searches())

    def rebind(self, binding: Binding, rules: Callable[[str], AccessRules | None], searches: Searches) -> Plan:
        """A cached plan bound again, for the same text, snapshots and rules."""
        names = _name_relations(self.statement, binding, rules, searches)
        return replace(self, binding=binding, relations=names.relations, refs=names.refs, searches=searches)


def plan(
    statement: Statement,
    binding: Binding,
    parameters: Mapping[str, Any],
    rules: Callable[[str], AccessRules | None],
    limits: EngineLimits,
    *,
    limit_bytes: int | None = None,
    verified: VerifiedFiles | None = None,
    searches: Searches,
) -> Plan:
    """Plans the query over empty tables, without a request. Invalid, with the engine's reason, if that fails."""
    names = _name_relations(statement, binding, rules, searches)
    relations = tuple(_with_verified_files(planned, verified or {}) for planned in names.relations)
    session = Session(limits.memory_bytes)
    try:
        tree = session.syntax_tree(_tree_text(statement, names, searches))
        check_calls(tree)
        schema = _schema(session, statement, names, searches, parameters)
        scans = _scans(tree, names, relations, session, parameters)
    finally:
        session.close()
    verdicts = {planned.name: _verdict(planned, scans[planned.name], verified) for planned in relations}
    metadata_answer = None
    if len(relations) == 1 and not (names.views or searches) and scans[relations[0].name].exact:
        relation, verdict = relations[0].bound.relation, verdicts[relations[0].name]
        aggregates = metadata_answers.aggregates(
            tree, {field.name.lower(): field.name for field in relation.schema.fields}
        )
        if aggregates is not None:
            metadata_answer = metadata_answers.answer(aggregates, relation, verdict, schema)
    estimates = [_estimate(planned, scans[planned.name], verdicts[planned.name].might_match) for planned in relations]
    explanation = choose(estimates, limits, answered=metadata_answer is not None, limit_bytes=limit_bytes)
    if searches:
        explanation = only_in_process(explanation, searches.reason())
    return Plan(
        statement=statement,
        binding=binding,
        relations=relations,
        views=names.views,
        refs=names.refs,
        text=names.text,
        parameters=parameters,
        schema=schema,
        scans=scans,
        verdicts=verdicts,
        metadata_answer=metadata_answer,
        explanation=explanation,
        searches=searches,
        direct=None if names.views else direct_search(statement.tree, searches, parameters),
    )


def _tree_text(statement: Statement, names: _Names, searches: Searches) -> str:
    """The text for the syntax tree, in which tables of the lake are `strandline.<relation>`."""
    sources = {name: f"{TABLES_SCHEMA}.{quote_identifier(name)}" for name in names.refs.values()}
    return engine_text(statement, names.refs, sources, searches.replacements())


def _schema(
    session: Session, statement: Statement, names: _Names, searches: Searches, parameters: Mapping[str, Any]
) -> pa.Schema:
    sources = {planned.name: f"({empty_relation_sql(planned.bound.relation.schema)})" for planned in names.relations}
    sources = with_views(sources, names.views)
    text = engine_text(statement, names.refs, sources, searches.placeholders())
    try:
        schema = session.schema(text, parameters)
    except Invalid as error:
        column = unknown_column_of(error)
        if column is None:
            raise
        shown = {name for planned in names.relations for name in planned.bound.relation.arrow.names}
        hidden = {name for view in names.views for name in view.hidden}
        raise (unknown_column(column, sorted(shown - hidden)) or error) from None
    labels = _readable(session, list(schema.names), {name: sources[name] for name in names.refs.values()})
    return pa.schema([pa.field(label, _utc(field.type)) for label, field in zip(labels, schema, strict=True)])


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
    tree: Node,
    names: _Names,
    relations: tuple[PlannedRelation, ...],
    session: Session,
    parameters: Mapping[str, Any],
) -> dict[str, ScanRequirements]:
    """What the statement needs of each relation. A row filter is a condition on the table itself."""
    masked = {view.name: view for view in names.views}
    scanned = {}
    for planned in relations:
        view = masked.get(planned.name)
        changed = frozenset() if view is None else view.changed
        scanned[planned.name] = ScannedRelation(planned.bound.relation, changed)
    scans = scans_of(tree, scanned, session, parameters)
    for planned in relations:
        view = masked.get(planned.name)
        if view is None:
            continue
        inner = session.syntax_tree(view.sql(f"{TABLES_SCHEMA}.{quote_identifier(planned.name)}"))
        check_calls(inner)
        own = scans_of(inner, {planned.name: ScannedRelation(planned.bound.relation)}, session, {})[planned.name]
        scan = scans[planned.name]
        parts = [part for part in (scan.predicate, own.predicate) if part is not None]
        columns = {*scan.columns, *own.columns} if view.changed else {*scan.columns}
        kept = tuple(name for name in planned.bound.relation.arrow.names if name in columns or name in own.columns)
        scans[planned.name] = ScanRequirements(kept, conjunction(parts), exact=False)
    return scans


def engine_text(
    statement: Statement,
    refs: Mapping[int, str],
    sources: Mapping[str, str],
    replacements: Sequence[tuple[int, int, str]] = (),
) -> str:
    """The statement with each table replaced by its source in SQL. `refs`: relation names by the offset of the ref."""
    parts = list(replacements)
    for ref in statement.refs:
        alias = "" if ref.aliased else f" AS {quote_identifier(ref.table)}"
        parts.append((ref.start, ref.end, sources[refs[ref.start]] + alias))
    return splice(statement.text, [*parts, *statement.qualifiers])


def with_views(sources: Mapping[str, str], views: Sequence[View]) -> dict[str, str]:
    """The sources, with masks and row filters in front of the tables that have them."""
    return {**sources, **{view.name: f"({view.engine_sql(sources[view.name])})" for view in views}}


@dataclass(frozen=True)
class _Names:
    """The relations under their names, the views over some of them, and the text for Spark with these names."""

    relations: tuple[PlannedRelation, ...]
    views: tuple[View, ...]
    refs: dict[int, str]
    text: str


def _name_relations(
    statement: Statement, binding: Binding, rules_of: Callable[[str], AccessRules | None], searches: Searches
) -> _Names:
    relations: dict[tuple[str, PointInTime | None, int | None], PlannedRelation] = {}
    views: list[View] = []
    refs: dict[int, str] = {}
    replacements: list[tuple[int, int, str]] = searches.replacements()
    for ref in statement.refs:
        name = binding.names[ref]
        database, _, table = name.partition(".")
        searched_at = ref.start if searches.includes(ref.start) else None
        key = (name, ref.as_of, searched_at)
        if key not in relations:
            engine_name = (database, table)
            if searched_at is not None:
                engine_name = (search.SEARCH_DATABASE, f"r{ref.start}")
            elif ref.as_of is not None:
                engine_name = (_VERSIONS_DATABASE, f"r{ref.start}")
            label = name if ref.as_of is None else f"{name}@{ref.as_of}"
            relation = PlannedRelation(binding.of(ref), *engine_name, label, searched_at)
            check_names(relation.bound.relation)
            relations[key] = relation
            rules = rules_of(name)
            if rules is not None:
                views.append(_view(relation, rules))
        planned = relations[key]
        refs[ref.start] = planned.name
        alias = "" if ref.aliased else f" AS {quote_identifier(ref.table)}"
        new = ".".join(map(quote_identifier, (planned.database, planned.table))) + alias
        replacements.append((ref.start, ref.end, new))
    text = splice(statement.text, [*replacements, *statement.qualifiers])
    return _Names(tuple(relations.values()), tuple(views), refs, text)


def _view(planned: PlannedRelation, rules: AccessRules) -> View:
    masks = rules.columns or {}
    items, changed, hidden = [], set(), set()
    for name in planned.bound.relation.arrow.names:
        expression = masks.get(name, quote_identifier(name))
        if name in masks:
            changed.add(name)
        if expression is None:
            hidden.add(name)
        else:
            items.append(f"{expression} AS {quote_identifier(name)}")
    table = planned.bound.relation.name.partition(".")[2]
    return View(planned.name, table, tuple(items), rules.row_filter, frozenset(changed), frozenset(hidden))


def _verdict(planned: PlannedRelation, requirements: ScanRequirements, verified: VerifiedFiles | None) -> Verdict:
    """Which files might match. A verified query reads all: statistics are the writer's word, and may be false."""
    statistics = planned.bound.relation.statistics
    if verified and planned.label in verified:
        count = len(statistics)
        return Verdict(np.ones(count, bool), np.zeros(count, bool))
    return statistics.evaluate(requirements.predicate, planned.bound.relation.schema)


def _with_verified_files(planned: PlannedRelation, verified: VerifiedFiles) -> PlannedRelation:
    if planned.label not in verified:
        return planned
    relation = replace(planned.bound.relation, statistics=verified[planned.label][1])
    return replace(planned, bound=replace(planned.bound, relation=relation))


def _estimate(planned: PlannedRelation, scan: ScanRequirements, files: Mask) -> TableEstimate:
    relation = planned.bound.relation
    statistics = relation.statistics
    snapshot = None if relation.snapshot_id is None else str(relation.snapshot_id)
    return TableEstimate(
        planned.label,
        snapshot,
        int(files.sum()),
        len(statistics),
        int(statistics.rows[files].sum()),
        statistics.column_bytes(relation.fields(scan.columns), files) if scan.columns else 0,
        int(statistics.sizes.sum()),
        scan.columns,
        bool(statistics.has_deletes[files].any()),
        sum(_min_value_bytes(relation.arrow.field(name).type) for name in scan.columns),
    )


def _min_value_bytes(type_: pa.DataType) -> int:
    """The least a value takes in memory: the width of its type, or an offset and a short text."""
    try:
        return max(type_.bit_width // 8, 1)
    except ValueError:
        return _TEXT_BYTES
