"""Plans a query from metadata alone: its relations at their snapshots, what it needs of each, and the route.

Masks and row filters are part of the plan, so every engine that runs it applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from catalog.core.errors import Invalid
from catalog.core.point_in_time import PointInTime
from catalog.query.bind.binding import Binding, BoundTable, QueryCaller
from catalog.query.plan import metadata_answers
from catalog.query.plan.file_statistics import FileStatistics
from catalog.query.plan.predicates import Mask, Verdict
from catalog.query.plan.routing import Explanation, TableEstimate, choose, only_in_process
from catalog.query.plan.scan_requirements import ScanRequirements, is_aggregate_of_scan, scans_of
from catalog.query.run import search
from catalog.query.run.direct_search import DirectSearch, direct_search
from catalog.query.run.engine import Session, quote_identifier
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.search import Searches
from catalog.query.scan.verified_io import VerifiedIO
from catalog.query.sql.joined_columns import check_joined_columns, joins_by_name
from catalog.query.sql.statement import DIALECT, Statement, splice

_VERSIONS_DATABASE = "strandline_versions"
"""The engine's database of tables that are read at an AS OF of their own."""
_UNDERLYING_DATABASE = "strandline_tables"
"""The engine's database of tables that the statement reaches only through a view."""
_TEXT_BYTES = 12
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

    @property
    def statement_name(self) -> tuple[str, str]:
        """Database and table as the statement names them: those of the view, if the relation has one."""
        if self.database != _UNDERLYING_DATABASE:
            return self.database, self.table
        database, _, table = self.table.partition(".")
        return database, table


@dataclass(frozen=True)
class View:
    """A query over a relation, registered under the name that the statement uses."""

    database: str
    table: str
    sql: str


@dataclass(frozen=True)
class Plan:
    """`text`: the statement as the engine gets it. `metadata_answer`: the result, if statistics alone give it.

    `scans` and `verdicts` are by relation name. `direct`: how to answer a search without the engine.
    """

    statement: Statement
    binding: Binding
    relations: tuple[PlannedRelation, ...]
    views: tuple[View, ...]
    text: str
    parameters: Mapping[str, Any]
    schema: pa.Schema
    scans: dict[str, ScanRequirements]
    verdicts: dict[str, Verdict]
    metadata_answer: pa.RecordBatch | None
    explanation: Explanation
    exact_decimals: bool
    searches: Searches
    direct: DirectSearch | None = None

    def unbound(self) -> Plan:
        """A copy for the plan cache, which does not keep the bound tables' lists of files in memory."""
        return replace(self, binding=Binding(None, None, {}, {}), relations=(), searches=Searches())

    def rebind(self, binding: Binding, rules: Callable[[str], AccessRules | None], searches: Searches) -> Plan:
        """A cached plan bound again, for the same text, snapshots and rules."""
        relations, _, _ = _name_relations(self.statement, binding, rules, searches)
        return replace(self, binding=binding, relations=relations, searches=searches)


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
    relations, views, text = _name_relations(statement, binding, rules, searches)
    relations = tuple(_with_verified_files(planned, verified or {}) for planned in relations)
    decimals = _exact_decimals(relations)
    session = Session(memory_bytes=limits.memory_bytes, exact_decimals=decimals, recursive=statement.recursive)
    for planned in relations:
        session.add(planned.database, planned.table, planned.bound.relation.arrow)
    for view in views:
        session.add_view(view.database, view.table, view.sql)
    for function in searches.placeholders():
        session.add_function(function.name, function.arguments, function.result, function.call, stable=False)
    optimised = session.optimised(session.plan(text, parameters))
    schema = session.schema(optimised)
    if not len(schema):
        raise Invalid("the query selects no column: write SELECT * FROM …")
    names = {planned.name: tuple(planned.bound.relation.arrow.names) for planned in relations}
    scans = scans_of(optimised, names)
    verdicts = {planned.name: _verdict(planned, scans[planned.name], verified) for planned in relations}
    metadata_answer = None
    aggregates = metadata_answers.aggregates(statement.tree)
    one_scan = len(relations) == 1 and not (views or searches) and scans[relations[0].name].exact
    if aggregates is not None and one_scan and is_aggregate_of_scan(optimised):
        relation, verdict = relations[0].bound.relation, verdicts[relations[0].name]
        metadata_answer = metadata_answers.answer(aggregates, relation, verdict, schema)
    estimates = [_estimate(planned, scans[planned.name], verdicts[planned.name].might_match) for planned in relations]
    explanation = choose(estimates, limits, answered=metadata_answer is not None, limit_bytes=limit_bytes)
    if searches:
        explanation = only_in_process(explanation, searches.reason())
    return Plan(
        statement=statement,
        binding=binding,
        relations=relations,
        views=views,
        text=text,
        parameters=parameters,
        schema=schema,
        scans=scans,
        verdicts=verdicts,
        metadata_answer=metadata_answer,
        explanation=explanation,
        exact_decimals=decimals,
        searches=searches,
        direct=None if views else direct_search(statement.tree, searches, parameters),
    )


def _name_relations(
    statement: Statement, binding: Binding, rules_of: Callable[[str], AccessRules | None], searches: Searches
) -> tuple[tuple[PlannedRelation, ...], tuple[View, ...], str]:
    """The relations under their names in the engine, the views over some of them, and the text with these names."""
    relations: dict[tuple[str, PointInTime | None, int | None], PlannedRelation] = {}
    views: list[View] = []
    replacements: list[tuple[int, int, str]] = searches.replacements()
    for ref in statement.refs:
        name = binding.names[ref]
        database, _, table = name.partition(".")
        statement_name = (database, table) if ref.as_of is None else (_VERSIONS_DATABASE, f"r{ref.start}")
        searched_at = ref.start if searches.includes(ref.start) else None
        if searched_at is not None:
            statement_name = (search.SEARCH_DATABASE, f"r{ref.start}")
        key = (name, ref.as_of, searched_at)
        if key not in relations:
            rules = rules_of(name)
            engine_name = statement_name if rules is None else (_UNDERLYING_DATABASE, ".".join(statement_name))
            label = name if ref.as_of is None else f"{name}@{ref.as_of}"
            relation = PlannedRelation(binding.of(ref), *engine_name, label, searched_at)
            relations[key] = relation
            if rules is not None:
                views.append(View(*statement_name, _view_sql(relation, rules)))
        else:
            statement_name = relations[key].statement_name
        if ref.as_of is not None or ref.database is None or searched_at is not None:
            alias = "" if ref.aliased else f" AS {quote_identifier(ref.table)}"
            new = ".".join(map(quote_identifier, statement_name)) + alias
            replacements.append((ref.start, ref.end, new))
    text = splice(statement.text, replacements)
    if any(map(joins_by_name, statement.tree.find_all(exp.Join))):  # with the table names that the engine gets
        check_joined_columns(sqlglot.parse_one(text, read=DIALECT))
    return tuple(relations.values()), tuple(views), text


def _view_sql(planned: PlannedRelation, rules: AccessRules) -> str:
    masks = rules.columns or {}
    columns = []
    for name in planned.bound.relation.arrow.names:
        expression = masks.get(name, quote_identifier(name))
        if expression is not None:
            columns.append(f"{expression} AS {quote_identifier(name)}")
    where = f" WHERE {rules.row_filter}" if rules.row_filter else ""
    table = f"{quote_identifier(planned.database)}.{quote_identifier(planned.table)}"
    return f"SELECT {', '.join(columns)} FROM {table}{where}"  # noqa: S608


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


def _exact_decimals(relations: tuple[PlannedRelation, ...]) -> bool:
    """Whether a literal such as `0.1` is a decimal: if there are decimal columns, and no floating-point columns, since
    NaN and 1e300 have no decimal."""
    types = [field.type for planned in relations for field in planned.bound.relation.arrow]
    return any(map(pa.types.is_decimal, types)) and not any(map(pa.types.is_floating, types))


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
