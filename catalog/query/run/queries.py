"""`Queries` runs SQL: it parses the text, binds its tables to one cut of the timeline, plans, prunes and routes, and
then runs the query in this process or submits it to Spark. The result is Arrow with a receipt.

Read permission is checked before a name is resolved, and masks and row filters are part of the plan; so they hold on
every route. The route is chosen before anything runs: a query that fails on one route is not retried on another.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, Literal, Unpack
from uuid import uuid4

import pyarrow as pa

from catalog.core.errors import Invalid, Unavailable
from catalog.core.point_in_time import point_in_time
from catalog.query.bind import search_binding
from catalog.query.bind.binding import Binder
from catalog.query.plan import planning
from catalog.query.plan.analysis import Analyses
from catalog.query.plan.estimate_history import EstimateHistory, history_lines, shape_of
from catalog.query.plan.planning import Plan, VerifiedFiles
from catalog.query.plan.relation_names import AccessRules, RulesOf
from catalog.query.plan.routing import Explanation, Route, choose
from catalog.query.run.bound_query import BoundQuery, QueryOptions
from catalog.query.run.engine import parameters_by_name
from catalog.query.run.engine_limits import EngineLimits, default_memory_budget
from catalog.query.run.execution import Execution
from catalog.query.run.results import Answer, QueryReceipt, ResultCache, binding_receipt, plan_receipt
from catalog.query.run.search import VectorRanking
from catalog.query.scan.parquet_objects import Traffic
from catalog.query.scan.verified_io import Evidence
from catalog.query.spark.query_record import QueryRecord, TableRead, digest_of
from catalog.query.spark.spark_queries import IdentifiedCaller, QueryStatus, ResultPage, SparkQueries
from catalog.query.spark.sql import translate
from catalog.query.sql.limits import check_parameters, refuse_recursion
from catalog.query.sql.statement import ExplainKind, parse
from catalog.query.system.explained import operator_lines, redacted, traffic_lines
from catalog.query.system.relations import Asker, SystemRelations
from catalog.tables import Tables
from catalog.timeline import Attestations, Publisher, Timeline

__all__ = ["AccessRules", "Queries"]

logger = logging.getLogger(__name__)

MAX_CACHED_PLANS = 256
Engine = Literal["auto", "lambda", "spark"]


class Queries:
    """Runs the queries of one lake. Safe to share between threads: everything it caches is immutable.

    `timeline` returns the timeline's reader, `rules` a caller's masks and row filters for a table. `observe` is called
    after every query with its estimates and measurements, and `history` stores them. Without `spark_queries` nothing
    runs on Spark; without `ranking`, which returns the vector tables, search operators are rejected.
    """

    def __init__(
        self,
        tables: Tables,
        timeline: Callable[[], Timeline],
        attestations: Attestations,
        *,
        limits: EngineLimits | None = None,
        rules: RulesOf | None = None,
        observe: Callable[[dict[str, Any]], None] | None = None,
        history: EstimateHistory | None = None,
        spark_queries: SparkQueries | None = None,
        ranking: Callable[[], VectorRanking] | None = None,
    ) -> None:
        self.limits = limits or EngineLimits(default_memory_budget())
        self._rules, self._observe, self._history, self._spark_queries = rules, observe, history, spark_queries
        self._ranking = ranking
        published = Publisher(attestations.s3, attestations.bucket).published
        self._binder = Binder(tables, timeline, lambda: bool(published().note))
        self._system = SystemRelations(tables, timeline, self._binder, rules)
        self._execution = Execution(tables, timeline, attestations)
        self._cache = ResultCache()
        self._plans: dict[Hashable, Plan] = {}
        self._analyses = Analyses()

    def run(self, sql: str, *, verify: bool = False, **options: Unpack[QueryOptions]) -> Answer:
        """Runs one SELECT in this process. `EXPLAIN ROUTE SELECT …` returns the explanation, one row per line.

        `verify`: hashes every object that is read and compares it with the timeline before use; Unverified names an
        object that differs from what its commit wrote. With warm caches a query only requests data. Invalid when the
        query is not valid SQL or exceeds the limits.
        """
        answer = self.ask(sql, engine="lambda", verify=verify, **options)
        assert isinstance(answer, Answer)
        return answer

    def ask(
        self,
        sql: str,
        *,
        engine: Engine = "auto",
        verify: bool = False,
        id: str | None = None,
        **options: Unpack[QueryOptions],
    ) -> Answer | QueryStatus:
        """Runs one SELECT on the cheapest route: in this process, or as a job, and then returns its status."""
        query = self._bind(sql, options)
        if query.system and verify:
            raise Invalid(
                f"{query.system.rows[0][0].name} is not read from objects that could be verified: leave verify out"
            )
        if query.searches and verify:
            raise Invalid(
                "a search cannot be verified row by row: leave verify out; `strandline vectors verify` compares the "
                "manifests of a vector table with the timeline"
            )
        key = query.result_key()
        cacheable = key is not None and engine != "spark" and not verify and not query.statement.explain
        if cacheable and (rows := self._cache.get(key)) is not None:
            return self._cached_answer(rows, query)
        evidence = Evidence() if verify else None
        verified = self._execution.verified_files(query.binding, evidence) if evidence is not None else {}
        plan = self._plan(query, verified)
        if query.statement.explain is not None:
            return self._explanation_answer(plan, query)
        if engine == "spark" or plan.explanation.route is Route.SPARK:
            if engine == "lambda" or verify:
                advice = "a verified query cannot run on Spark" if verify else "or submit it with the engine spark"
                raise Invalid(
                    f"the query is too large for this process: {plan.explanation.reason}; narrow it; {advice}",
                    subject="route",
                )
            return self._on_spark().submit(self._translate(plan, query, id))
        traffic = Traffic()
        batches = self._execution.run(plan, query.limits, traffic, verified, query.began + query.limits.seconds)
        if key is not None and not verify:
            batches = self._cache.store_when_complete(key, plan.schema, batches)
        receipt = plan_receipt(plan, traffic, evidence)
        return Answer(plan.schema, self._observed(batches, plan, traffic, query.began), receipt, plan.explanation)

    def wait_for_timeline(self, size: int, seconds: float = 5.0) -> None:
        """Waits until queries see a timeline of that size: each process's reader follows it with a delay of its own."""
        self._binder.wait_for_size(size, seconds)

    def explain(self, sql: str, **options: Unpack[QueryOptions]) -> Explanation:
        """What `ask` would do and why, from metadata alone: reads no data."""
        plan = self._plan(self._bind(sql, options))
        return redacted(self._with_history(plan), plan)

    # Queries that run on Spark

    def submit(self, sql: str, *, id: str | None = None, **options: Unpack[QueryOptions]) -> QueryStatus:
        """Runs the query as a job, whatever its size. Repeating an `id` returns the same query; Conflict if it differs.

        The query is bound to snapshots now: commits made while it waits do not change its result. Invalid, before
        anything is started, when the query is not valid or Spark is not known to give the same rows.
        """
        status = self.ask(sql, engine="spark", id=id, **options)
        if isinstance(status, Answer):
            raise Invalid("EXPLAIN ROUTE cannot be submitted: run it without the engine spark")
        return status

    def translated(self, sql: str, *, id: str | None = None, **options: Unpack[QueryOptions]) -> QueryRecord:
        """The record that `submit` would store for Spark. Starts nothing."""
        query = self._bind(sql, options)
        return self._translate(self._plan(query), query, id)

    def status(self, id: str, caller: IdentifiedCaller | None = None) -> QueryStatus:
        """The status of a submitted query. NotFound if it does not exist or belongs to another caller."""
        return self._on_spark().status(id, caller)

    def wait(self, id: str, seconds: float, caller: IdentifiedCaller | None = None) -> QueryStatus:
        """The status when the query has ended, or after `seconds`."""
        return self._on_spark().wait(id, caller, seconds)

    def page(self, id: str, token: int = 0, caller: IdentifiedCaller | None = None) -> ResultPage:
        """One page of a finished query's rows. `token`: 0 for the first page, then the `next` of the page before."""
        return self._on_spark().page(id, token, caller)

    def answer(self, id: str, caller: IdentifiedCaller | None = None) -> Answer:
        """All rows of a finished query, fetched page by page while they are read."""
        record = self._on_spark().record(id, caller)
        first = self.page(id, 0, caller)
        receipt, explanation = QueryReceipt.of(record.receipt), Explanation.of(record.explanation)
        return Answer(first.rows.schema, self._page_batches(id, first, caller), receipt, explanation)

    def _page_batches(self, id: str, page: ResultPage, caller: IdentifiedCaller | None) -> Iterator[pa.RecordBatch]:
        yield from page.rows.to_batches()
        while page.next is not None:
            page = self.page(id, page.next, caller)
            yield from page.rows.to_batches()

    def cancel(self, id: str, caller: IdentifiedCaller | None = None) -> None:
        """Stops a submitted query and deletes its rows."""
        self._on_spark().cancel(id, caller)

    def _on_spark(self) -> SparkQueries:
        if self._spark_queries is None:
            raise Unavailable("this lake has no Spark to run large queries: narrow the query")
        return self._spark_queries

    @refuse_recursion()
    def _translate(self, plan: Plan, query: BoundQuery, id: str | None) -> QueryRecord:
        if plan.system:
            raise Invalid(
                f"{plan.system.rows[0][0].name} cannot be read on Spark, which has only tables: leave the engine out"
            )
        if plan.searches:
            raise Invalid("a search cannot run on Spark, which has no vector tables: leave the engine out")
        for field in plan.schema:
            if pa.types.is_interval(field.type) or pa.types.is_duration(field.type):
                raise Invalid(f"the query cannot run on Spark: its column {field.name} is an interval; cast it")
        text, relations = translate(plan)
        return QueryRecord(
            id=id or uuid4().hex,
            subject=getattr(query.caller, "subject", None),
            digest=digest_of(*query.request),
            shape=_shape(plan),
            submitted_ms=int(time.time() * 1000),
            sql=text,
            reads=tuple(
                TableRead(
                    relation.view,
                    relation.table,
                    None if relation.snapshot_id is None else str(relation.snapshot_id),
                    relation.sql,
                )
                for relation in relations
            ),
            schema=plan.schema,
            receipt=binding_receipt(plan.binding, Route.SPARK).as_dict(),
            explanation=plan.explanation.as_dict(),
        )

    # Queries that run in this process

    @refuse_recursion()
    def _bind(self, sql: str, options: QueryOptions) -> BoundQuery:
        check_parameters(options.get("parameters"))
        began, statement = time.monotonic(), parse(sql)
        parameters, caller = options.get("parameters"), options.get("caller")
        as_of = options.get("as_of")
        point = None if as_of is None else point_in_time(as_of)
        binding = self._binder.bind(statement.refs, point, options.get("fresh", False), caller)
        # Read once per query: the plan and the cache keys are made from the same rules.
        rules = {name: self._rules(caller, name) for name, _ in binding.tables} if self._rules is not None else {}
        searches = search_binding.bind(statement, binding, parameters, self._ranking, rules.get)
        engine_parameters, limits = searches.for_engine(parameters), options.get("limits") or self.limits
        given = parameters_by_name(parameters)
        asker = Asker(caller, binding.index, point, limits)
        system = self._system.bind([ref.bound(given) for ref in statement.system], asker)
        engine_parameters = {k: v for k, v in engine_parameters.items() if k not in statement.arguments}
        return BoundQuery(sql, options, statement, binding, rules, searches, engine_parameters, limits, began, system)

    @refuse_recursion()
    def _plan(self, query: BoundQuery, verified: VerifiedFiles | None = None) -> Plan:
        """The plan. Plans of searches are cached: a repeated search differs in its vector, which no plan depends on."""
        key = query.plan_key() if not verified else None
        if key is not None and (cached := self._plans.get(key)) is not None:
            return cached.rebind(query.binding, query.rules.get, query.searches)
        plan = planning.plan(
            query.statement,
            query.binding,
            query.engine_parameters,
            query.rules.get,
            query.limits,
            searches=query.searches,
            system=query.system,
            addressed=query.options.get("addressed"),
            limit_bytes=query.options.get("limit_bytes"),
            verified=verified,
            analyses=self._analyses,
        )
        if key is not None:
            if len(self._plans) >= MAX_CACHED_PLANS:
                self._plans = {}
            self._plans[key] = plan.unbound()
        return plan

    def _cached_answer(self, rows: pa.Table, query: BoundQuery) -> Answer:
        explanation = choose([], query.limits, answered=True)
        explanation = replace(explanation, reason="the result of the same query over the same snapshots is cached")
        receipt = binding_receipt(query.binding, Route.METADATA)
        receipt = replace(receipt, cached=True, searched=query.searches.receipt())
        return Answer(rows.schema, iter(rows.to_batches()), receipt, explanation)

    def _explanation_answer(self, plan: Plan, query: BoundQuery) -> Answer:
        """EXPLAIN: where the query runs and why; then DuckDB's plan, or what happened by operator."""
        explanation, traffic = redacted(self._with_history(plan), plan), Traffic()
        lines, kind = explanation.lines(), query.statement.explain
        in_engine = plan.explanation.route is Route.LAMBDA and not (plan.views or plan.searches)
        if kind is ExplainKind.ANALYZE and not in_engine:
            raise Invalid(
                "EXPLAIN ANALYZE shows queries that DuckDB runs in this process over tables that you see as they are: "
                f"this one is on the route {plan.explanation.route}; write EXPLAIN"
            )
        if kind is not ExplainKind.ROUTE and in_engine:
            deadline, analyze = query.began + query.limits.seconds, kind is ExplainKind.ANALYZE
            text = self._execution.explain(plan, query.limits, traffic, deadline, analyze=analyze)
            lines += [*operator_lines(text), *traffic_lines(traffic)] if analyze else ["", *text.splitlines()]
        rows = pa.table({"plan": lines})
        return Answer(rows.schema, iter(rows.to_batches()), plan_receipt(plan, traffic, None), explanation)

    def _with_history(self, plan: Plan) -> Explanation:
        records = self._history.newest(_shape(plan)) if self._history is not None else []
        return replace(plan.explanation, seen=tuple(history_lines(records)))

    def _observed(
        self, batches: Iterator[pa.RecordBatch], plan: Plan, traffic: Traffic, began: float
    ) -> Iterator[pa.RecordBatch]:
        """The same batches; after the last one, records the query's estimates and measurements."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            yield batch
        explanation = plan.explanation
        measurement = {
            "shape": _shape(plan),
            "route": str(explanation.route),
            "estimated_bytes": explanation.bytes,
            "estimated_memory": explanation.memory_bytes,
            "estimated_seconds": round(next(iter(explanation.seconds.values())), 3),
            "bytes": traffic.bytes,
            "requests": traffic.requests,
            "rows": rows,
            "seconds": round(time.monotonic() - began, 3),
        }
        logger.info("query answered", extra=measurement)
        if self._observe is not None:
            self._observe(measurement)
        if self._history is not None:
            self._history.record(measurement)


def _shape(plan: Plan) -> str:
    return shape_of(plan.statement.normalised, {name for name, _ in plan.binding.tables})
