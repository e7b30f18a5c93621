"""`Queries`: SQL in, Arrow and a receipt out. One flow: read the text, bind its tables to a cut, plan, prune, route,
load what is left, run.

What a user may not read is decided before a name is looked up, and masks and row filters are part of the plan; so no
route goes around them.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from catalog.errors import Invalid
from catalog.query import metadata_answers, search_binding, searching
from catalog.query.binding import Binder, Binding, Bound, Caller
from catalog.query.engine import PARALLEL_BYTES, Limits, Parameters, Session, memory_of_process, quoted, run
from catalog.query.footers import Footers, SmallObjects, Traffic
from catalog.query.inventory import Inventory
from catalog.query.predicates import Mask, Verdict
from catalog.query.relations import Reader, Reading, with_phantoms
from catalog.query.results import Answer, Receipt, ResultCache
from catalog.query.routing import Explanation, Route, TableEstimate, choose, only_here
from catalog.query.scans import Scan, scans_of
from catalog.query.searching import Found, Ranking, Searches
from catalog.query.statement import AsOf, Statement, parse, splice
from catalog.query.verification import CheckedIO, CheckedManifests, Evidence
from catalog.tables.answers import explained
from catalog.tables.live import LiveFiles
from catalog.tables.manager import Tables
from catalog.timeline.attest import Attestations
from catalog.timeline.proofs import Timeline
from catalog.timeline.publish import Publisher

logger = logging.getLogger(__name__)

_VERSIONS, _BEHIND = "strandline_versions", "strandline_tables"
CORES = 2
LOADS = 4


@dataclass(frozen=True)
class Rules:
    """What one caller sees of one table: rows for which `row_filter` is true, and columns as `columns` says.

    A column maps to the SQL that stands for it; None leaves it out. Columns not named are seen as they are.
    """

    row_filter: str | None = None
    columns: Mapping[str, str | None] | None = None


RulesOf = Callable[[Caller | None, str], Rules | None]


@dataclass(frozen=True)
class _Placed:
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


@dataclass(frozen=True)
class _Plan:
    """A query before anything of its data is read."""

    statement: Statement
    binding: Binding
    placed: tuple[_Placed, ...]
    views: tuple[tuple[str, str, str], ...]
    text: str
    parameters: Parameters
    schema: pa.Schema
    scans: dict[str, Scan]
    verdicts: dict[str, Verdict]
    ready: pa.RecordBatch | None
    explanation: Explanation
    exact_decimals: bool
    searches: Searches


class Queries:
    """The lake's queries. Safe to share between threads; what is cached is immutable.

    `timeline` gives the reader of the timeline, `rules` the masks and row filters of a caller, `observe` is told of
    every query what was estimated and what happened, `ranking` gives the vector tables to search.
    """

    def __init__(
        self,
        tables: Tables,
        timeline: Callable[[], Timeline],
        attestations: Attestations,
        *,
        limits: Limits | None = None,
        rules: RulesOf | None = None,
        observe: Callable[[dict[str, Any]], None] | None = None,
        ranking: Callable[[], Ranking] | None = None,
    ) -> None:
        self.limits = limits or Limits(memory_of_process())
        self._tables, self._timeline, self._attestations = tables, timeline, attestations
        self._rules, self._observe, self._ranking = rules, observe, ranking
        published = Publisher(attestations.s3, attestations.bucket).published
        self._binder = Binder(tables, timeline, lambda: bool(published().note))
        self._store = tables.catalogue.io.store
        self._reader = Reader(SmallObjects(self._store), tables.catalogue.io, Footers())
        self._cache = ResultCache()
        self._pool = ThreadPoolExecutor(LOADS, thread_name_prefix="relations")

    def run(
        self,
        sql: str,
        *,
        parameters: Parameters = None,
        as_of: AsOf | None = None,
        caller: Caller | None = None,
        verify: bool = False,
        limit_bytes: int | None = None,
        fresh: bool = False,
        limits: Limits | None = None,
    ) -> Answer:
        """Answers one SELECT. `EXPLAIN ROUTE SELECT …` is answered with the explanation, a line a row.

        `parameters`: a mapping for `$name`, a sequence for `$1`. `as_of`: a timeline index, a time or a name, for all
        tables that have no AS OF of their own; by default the newest index. `fresh`: each table's own newest
        snapshot, sequenced or not. `verify`: every object read is hashed and compared with the timeline first;
        Unverified names the one that is not what its commit wrote. `limit_bytes`: the most data to read here.

        Warm, a query makes no request but for data. Invalid when it makes no sense or does not fit.
        """
        began = time.monotonic()
        bounds = limits or self.limits
        statement = parse(sql)
        binding = self._binder.bind(statement.refs, as_of, fresh, caller)
        searches = self._searches(statement, binding, parameters, caller)
        if searches and verify:
            raise Invalid(
                "a search cannot be verified row by row: leave verify out; `strandline vectors verify` compares the "
                "manifests of a vector table with the timeline"
            )
        key = self._key(statement, parameters, binding, caller, searches)
        if key is not None and not verify and not statement.explain and (kept := self._cache.get(key)) is not None:
            return self._kept(kept, binding, bounds, searches)
        evidence = Evidence() if verify else None
        checked = self._checked(binding, evidence) if evidence is not None else {}
        plan = self._plan(statement, binding, parameters, caller, bounds, limit_bytes, checked, searches)
        if statement.explain:
            return _explained(plan, self._receipt(plan, Traffic(), None))
        if plan.explanation.route is Route.SPARK:
            raise Invalid(
                f"the query is too large to run here: {plan.explanation.reason}; narrow it, or submit it as a job",
                subject="route",
            )
        traffic = Traffic()
        batches = self._execute(plan, bounds, traffic, checked, began + bounds.seconds)
        if key is not None and not verify:
            batches = self._cache.filling(key, plan.schema, batches)
        receipt = self._receipt(plan, traffic, evidence)
        return Answer(plan.schema, self._watched(batches, plan, traffic, began), receipt, plan.explanation)

    def explain(
        self,
        sql: str,
        *,
        parameters: Parameters = None,
        as_of: AsOf | None = None,
        caller: Caller | None = None,
        limit_bytes: int | None = None,
        fresh: bool = False,
        limits: Limits | None = None,
    ) -> Explanation:
        """What `run` would do and why, from metadata alone: no data is read."""
        statement = parse(sql)
        binding = self._binder.bind(statement.refs, as_of, fresh, caller)
        searches = self._searches(statement, binding, parameters, caller)
        bounds = limits or self.limits
        return self._plan(statement, binding, parameters, caller, bounds, limit_bytes, {}, searches).explanation

    def _searches(
        self, statement: Statement, binding: Binding, parameters: Parameters, caller: Caller | None
    ) -> Searches:
        def rules(table: str) -> Rules | None:
            return self._rules(caller, table) if self._rules is not None else None

        return search_binding.bind(statement, binding, parameters, self._ranking, rules)

    def _plan(
        self,
        statement: Statement,
        binding: Binding,
        parameters: Parameters,
        caller: Caller | None,
        limits: Limits,
        limit_bytes: int | None,
        checked: Mapping[str, tuple[CheckedIO, Inventory]],
        searches: Searches,
    ) -> _Plan:
        placed, views, text = self._place(statement, binding, caller, searches)
        parameters = searches.without_vectors(parameters) if searches else parameters
        placed = tuple(_with_inventory(one, checked) for one in placed)
        decimals = _exact_decimals(placed)
        session = Session(memory_bytes=limits.memory_bytes, exact_decimals=decimals, recursive=statement.recursive)
        for one in placed:
            session.add(one.database, one.table, one.bound.relation.arrow)
        for view in views:
            session.add_view(*view)
        for function in searches.placeholders():
            session.add_function(function.name, function.arguments, function.result, function.call)
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
        if wanted is not None and len(placed) == 1 and not views and not searches and scans[placed[0].name].exact:
            ready = metadata_answers.answer(wanted, placed[0].bound.relation, verdicts[placed[0].name], schema)
        estimates = [_estimate(one, scans[one.name], verdicts[one.name].may) for one in placed]
        explanation = choose(estimates, limits, answered=ready is not None, limit_bytes=limit_bytes)
        if searches:
            explanation = only_here(explanation, searches.reason())
        made = (statement, binding, placed, views, text, parameters, schema, scans, verdicts, ready)
        return _Plan(*made, explanation, decimals, searches)

    def _place(
        self, statement: Statement, binding: Binding, caller: Caller | None, searches: Searches
    ) -> tuple[tuple[_Placed, ...], tuple[tuple[str, str, str], ...], str]:
        """Each relation's place in the engine, the views in front of some, and the text that names them."""
        placed: dict[tuple[str, AsOf | None, int | None], _Placed] = {}
        views: list[tuple[str, str, str]] = []
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
                rules = self._rules(caller, name) if self._rules is not None else None
                place = front if rules is None else (_BEHIND, f"{'.'.join(front)}")
                label = name if ref.as_of is None else f"{name}@{ref.as_of}"
                made = _Placed(binding.of(ref), *place, label, mention)
                placed[key] = made
                if rules is not None:
                    views.append((*front, _view(made, rules)))
            else:
                front = _front(placed[key])
            if ref.as_of is not None or ref.database is None or mention is not None:
                alias = "" if ref.aliased else f" AS {quoted(ref.table)}"
                parts.append((ref.start, ref.end, f"{quoted(front[0])}.{quoted(front[1])}{alias}"))
        return tuple(placed.values()), tuple(views), splice(statement.text, parts)

    def _execute(
        self,
        plan: _Plan,
        limits: Limits,
        traffic: Traffic,
        checked: Mapping[str, tuple[CheckedIO, Inventory]],
        deadline: float,
    ) -> Iterator[pa.RecordBatch]:
        if plan.ready is not None:
            return iter([plan.ready])
        if plan.searches:
            return self._searched(plan, limits, traffic, deadline)
        return self._load_and_run(plan, limits, traffic, checked, deadline, Found())

    def _searched(self, plan: _Plan, limits: Limits, traffic: Traffic, deadline: float) -> Iterator[pa.RecordBatch]:
        """Wider each time, until the limit is met or every row was looked at. Only a root with a limit needs that."""
        columns = {one.mention: plan.scans[one.name].columns for one in plan.placed if one.mention is not None}
        for found in plan.searches.rounds(columns):
            batches = self._load_and_run(plan, limits, traffic, {}, deadline, found)
            if not found.missing:
                return batches
            held = list(batches)
            if found.enough(sum(batch.num_rows for batch in held)):
                return iter(held)
        raise AssertionError

    def _load_and_run(
        self,
        plan: _Plan,
        limits: Limits,
        traffic: Traffic,
        checked: Mapping[str, tuple[CheckedIO, Inventory]],
        deadline: float,
        found: Found,
    ) -> Iterator[pa.RecordBatch]:
        loaded: list[tuple[_Placed, list[pa.RecordBatch]]] = []
        held = 0
        for one, batches in zip(plan.placed, self._loads(plan, traffic, checked, found), strict=True):
            held += _bytes(batches, plan.scans[one.name].columns)
            if held > limits.memory_bytes:
                raise Invalid(
                    f"the query needs more than {limits.memory_bytes >> 20} MiB: select fewer columns or rows, or "
                    "run it on Spark"
                )
            loaded.append((one, batches))
        partitions = CORES if held > PARALLEL_BYTES else 1
        session = Session(
            memory_bytes=limits.memory_bytes - held,
            partitions=partitions,
            exact_decimals=plan.exact_decimals,
            recursive=plan.statement.recursive,
        )
        for one, batches in loaded:
            session.add(one.database, one.table, one.bound.relation.arrow, batches)
        for view in plan.views:
            session.add_view(*view)
        for function in found.functions:
            session.add_function(function.name, function.arguments, function.result, function.call)
        frame = session.plan(plan.text, plan.parameters)
        return run(frame, deadline, limits)

    def _loads(
        self, plan: _Plan, traffic: Traffic, checked: Mapping[str, tuple[CheckedIO, Inventory]], found: Found
    ) -> Iterator[list[pa.RecordBatch]]:
        """Each relation's rows, in the plan's order; all are fetched side by side."""

        def load(one: _Placed) -> list[pa.RecordBatch]:
            relation, scan, chosen = one.bound.relation, plan.scans[one.name], plan.verdicts[one.name].may
            if one.mention in found.rows:  # the vector table had all that is asked of them
                kept = found.rows[one.mention].select(scan.columns)
                kept = kept.cast(pa.schema([relation.arrow.field(name) for name in scan.columns]))
                return [with_phantoms(batch, relation.arrow) for batch in kept.to_batches()]
            predicate = scan.predicate
            if one.mention in found.keys:
                predicate = found.predicate(one.mention, predicate)
                chosen = relation.inventory.judge(predicate, relation.schema).may
            reading = Reading(relation, chosen, scan.columns, predicate, scan.fetch)
            with explained(one.label):
                read = self._reader.read(reading, traffic, checked[one.label][0] if checked else None)
            return read if one.mention is None else found.restrict(one.mention, read)

        return map(load, plan.placed) if len(plan.placed) == 1 else self._pool.map(load, plan.placed)

    def _checked(self, binding: Binding, evidence: Evidence) -> dict[str, tuple[CheckedIO, Inventory]]:
        """For each table a reader that checks, and its files as checked manifests name them."""
        if binding.index is None:
            raise Invalid(f"nothing can be verified: {binding.fresh}")
        found: dict[str, tuple[CheckedIO, Inventory]] = {}
        for (name, own), bound in binding.tables.items():
            label = name if own is None else f"{name}@{own}"
            checked = CheckedIO(self._store, self._timeline(), self._attestations, name, evidence)
            with explained(label):
                live = LiveFiles.of(checked, CheckedManifests(checked), bound.snapshot, name)
            found[label] = (checked, Inventory(live.data, live.manifests, bound.relation.metadata.specs()))
        return found

    def _key(
        self,
        statement: Statement,
        parameters: Parameters,
        binding: Binding,
        caller: Caller | None,
        searches: Searches,
    ) -> Hashable | None:
        """All that an answer depends on; None if that cannot be said."""
        if statement.volatile:
            return None
        snapshots = tuple(
            (name, str(own), bound.relation.metadata.table_uuid, bound.relation.snapshot_id, str(bound.relation.schema))
            for (name, own), bound in sorted(binding.tables.items(), key=lambda item: (item[0][0], str(item[0][1])))
        )
        try:
            given = json.dumps(parameters, sort_keys=True)
        except TypeError:
            given = repr(parameters)
        rules = tuple(repr(self._rules(caller, name)) for name, *_ in snapshots) if self._rules else ()
        roles = tuple(map(str, caller.roles)) if caller is not None else None
        return statement.normalised, given, snapshots, roles, rules, searches.versions()

    def _kept(self, kept: pa.Table, binding: Binding, limits: Limits, searches: Searches) -> Answer:
        explanation = choose([], limits, answered=True)
        explanation = replace(explanation, reason="the same query was answered from the same snapshots before")
        receipt = replace(self._stated(binding, Route.METADATA), cached=True, searched=searches.receipt())
        return Answer(kept.schema, iter(kept.to_batches()), receipt, explanation)

    def _receipt(self, plan: _Plan, traffic: Traffic, evidence: Evidence | None) -> Receipt:
        receipt = self._stated(plan.binding, plan.explanation.route)
        searched = plan.searches.receipt()
        receipt = replace(receipt, requests=traffic.requests, bytes=traffic.bytes, searched=searched)
        if evidence is None:
            return receipt
        return replace(receipt, verified=True, objects=tuple(evidence.objects), proofs=dict(evidence.proofs))

    def _stated(self, binding: Binding, route: Route) -> Receipt:
        snapshots = {
            name if own is None else f"{name}@{own}": None
            if bound.snapshot is None
            else str(bound.snapshot.snapshot_id)
            for (name, own), bound in binding.tables.items()
        }
        checkpoint = binding.checkpoint
        if checkpoint is None:
            return Receipt(None, None, None, snapshots, route, binding.fresh)
        return Receipt(binding.index, checkpoint.size, checkpoint.root.hex(), snapshots, route)

    def _watched(
        self, batches: Iterator[pa.RecordBatch], plan: _Plan, traffic: Traffic, began: float
    ) -> Iterator[pa.RecordBatch]:
        """The same batches; at the end it is recorded what was estimated and what happened."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            yield batch
        chosen = plan.explanation
        happened = {
            "route": str(chosen.route),
            "estimated_bytes": chosen.bytes,
            "estimated_memory": chosen.memory_bytes,
            "estimated_seconds": round(next(iter(chosen.seconds.values())), 3),
            "bytes": traffic.bytes,
            "requests": traffic.requests,
            "rows": rows,
            "seconds": round(time.monotonic() - began, 3),
        }
        logger.info("query answered", extra=happened)
        if self._observe is not None:
            self._observe(happened)


def _front(placed: _Placed) -> tuple[str, str]:
    """Where the text finds the relation: in front of it if a view stands there."""
    if placed.database != _BEHIND:
        return placed.database, placed.table
    database, _, table = placed.table.partition(".")
    return database, table


def _view(placed: _Placed, rules: Rules) -> str:
    columns = rules.columns or {}
    seen = []
    for name in placed.bound.relation.arrow.names:
        shown = columns.get(name, quoted(name))
        if shown is not None:
            seen.append(f"{shown} AS {quoted(name)}")
    where = f" WHERE {rules.row_filter}" if rules.row_filter else ""
    return f"SELECT {', '.join(seen)} FROM {quoted(placed.database)}.{quoted(placed.table)}{where}"  # noqa: S608


def _with_inventory(placed: _Placed, checked: Mapping[str, tuple[CheckedIO, Inventory]]) -> _Placed:
    if placed.label not in checked:
        return placed
    relation = replace(placed.bound.relation, inventory=checked[placed.label][1])
    return replace(placed, bound=replace(placed.bound, relation=relation))


def _exact_decimals(placed: tuple[_Placed, ...]) -> bool:
    """Over decimals `0.1` should be one too; over doubles it must not be, for NaN and 1e300 have no decimal."""
    kinds = [field.type for one in placed for field in one.bound.relation.arrow]
    return any(map(pa.types.is_decimal, kinds)) and not any(map(pa.types.is_floating, kinds))


def _estimate(placed: _Placed, scan: Scan, chosen: Mask) -> TableEstimate:
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
    )


def _bytes(batches: list[pa.RecordBatch], columns: tuple[str, ...]) -> int:
    return sum(batch.column(name).nbytes for batch in batches for name in columns)


def _explained(plan: _Plan, receipt: Receipt) -> Answer:
    lines = pa.table({"plan": plan.explanation.lines()})
    return Answer(lines.schema, iter(lines.to_batches()), receipt, plan.explanation)
