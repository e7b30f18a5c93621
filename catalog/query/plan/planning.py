"""Plans a query from metadata alone: its relations at their snapshots, what it needs of each, and the route.

Masks and row filters are part of the plan, so every engine that runs it applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.query.bind.binding import Binding
from catalog.query.plan import metadata_answers
from catalog.query.plan.analysis import Analyses, analyse
from catalog.query.plan.file_statistics import FileStatistics
from catalog.query.plan.predicates import Mask, Verdict
from catalog.query.plan.relation_names import AccessRules, PlannedRelation, View, name_relations
from catalog.query.plan.routing import Explanation, TableEstimate, choose, only_in_process
from catalog.query.plan.scan_requirements import ScanRequirements
from catalog.query.run.direct_search import DirectSearch, direct_search
from catalog.query.run.engine import Session
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.search import Searches
from catalog.query.scan.verified_io import VerifiedIO
from catalog.query.sql.statement import Statement
from catalog.query.system.system_tables import NO_SYSTEM_TABLES, SystemTables

_TEXT_BYTES = 12
VerifiedFiles = Mapping[str, tuple[VerifiedIO, FileStatistics]]
"""By a relation's label: a FileIO that verifies, and the live files as read from verified manifests."""


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
    scans: Mapping[str, ScanRequirements]
    verdicts: dict[str, Verdict]
    metadata_answer: pa.RecordBatch | None
    explanation: Explanation
    searches: Searches
    direct: DirectSearch | None = None
    system: SystemTables = NO_SYSTEM_TABLES

    def unbound(self) -> Plan:
        """A copy for the plan cache, which does not keep the bound tables' lists of files in memory."""
        return replace(self, binding=Binding(None, None, {}, {}), relations=(), searches=Searches())

    def rebind(self, binding: Binding, rules: Callable[[str], AccessRules | None], searches: Searches) -> Plan:
        """A cached plan bound again, for the same text, snapshots and rules."""
        names = name_relations(self.statement, binding, rules, searches)
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
    analyses: Analyses | None = None,
    system: SystemTables = NO_SYSTEM_TABLES,
    addressed: int | None = None,
) -> Plan:
    """Plans the query over empty tables, without a request. Invalid, with the engine's reason, if that fails."""
    names = name_relations(statement, binding, rules, searches, addressed)
    relations = tuple(_with_verified_files(planned, verified or {}) for planned in names.relations)
    session = Session(limits.memory_bytes)
    try:
        analysis, scans = analyse(statement, names, searches, parameters, session, analyses or Analyses(), system)
    finally:
        session.close()
    tree, schema = analysis.tree, analysis.schema
    verdicts = {planned.name: _verdict(planned, scans[planned.name], verified) for planned in relations}
    metadata_answer = None
    if len(relations) == 1 and not (names.views or searches or system) and scans[relations[0].name].exact:
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
        system=system,
    )


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
