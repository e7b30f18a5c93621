"""`Queries`: SQL in, Arrow and a receipt out. One flow: read the text, bind its tables to a cut, plan, prune, route;
then load what is left and run it here, or submit it to Spark.

What a user may not read is decided before a name is looked up, and masks and row filters are part of the plan; so no
route goes around them. The route is chosen before anything runs: a query that fails here is not tried elsewhere.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypedDict, Unpack
from uuid import uuid4

import pyarrow as pa

from catalog.errors import Invalid, Unavailable
from catalog.query import planning, search_binding
from catalog.query.binding import Binder, Binding, Caller
from catalog.query.engine import Limits, Parameters, memory_of_process
from catalog.query.execution import Execution
from catalog.query.footers import Traffic
from catalog.query.history import History, said, shape_of
from catalog.query.planning import Checks, Plan, Rules, RulesOf
from catalog.query.results import Answer, Receipt, ResultCache
from catalog.query.routing import Explanation, Route, choose
from catalog.query.searching import Ranking, Searches
from catalog.query.spark_sql import translate
from catalog.query.statement import AsOf, Statement, parse
from catalog.query.submissions import Asked, Reads, digest_of
from catalog.query.submitted import Page, Status, Submitted
from catalog.query.submitted import Reader as SubmittedReader
from catalog.query.verification import Evidence
from catalog.tables.manager import Tables
from catalog.timeline.attest import Attestations
from catalog.timeline.proofs import Timeline
from catalog.timeline.publish import Publisher

__all__ = ["Queries", "Rules"]

logger = logging.getLogger(__name__)

KEPT_PLANS = 256
Engine = Literal["auto", "lambda", "spark"]


class Options(TypedDict, total=False):
    """What may be said of every query.

    `parameters`: a mapping for `$name`, a sequence for `$1`. `as_of`: a timeline index, a time or a name, for all
    tables that have no AS OF of their own; by default the newest index. `fresh`: each table's own newest snapshot,
    sequenced or not. `limit_bytes`: the most data to read here.
    """

    parameters: Parameters
    as_of: AsOf | None
    caller: Caller | None
    fresh: bool
    limit_bytes: int | None
    limits: Limits | None


@dataclass(frozen=True)
class _Asked:
    """A query that was read and bound; `began` is when. `rules`: by table, as they were then."""

    sql: str
    options: Options
    statement: Statement
    binding: Binding
    rules: Mapping[str, Rules | None]
    searches: Searches
    given: Mapping[str, Any]
    """The parameters that are the engine's."""
    limits: Limits
    began: float

    @property
    def caller(self) -> Caller | None:
        return self.options.get("caller")

    @property
    def request(self) -> tuple[Any, ...]:
        as_of = self.options.get("as_of")
        plain = _plain(self.options.get("parameters"))
        return self.sql, plain, None if as_of is None else str(as_of), self.options.get("fresh", False)

    @cached_property
    def state(self) -> Hashable:
        """All of the lake and of the caller that the plan and the answer depend on."""
        tables = sorted(self.binding.tables.items(), key=lambda item: (item[0][0], str(item[0][1])))
        snapshots = tuple(
            (name, str(own), bound.relation.metadata.table_uuid, bound.relation.snapshot_id, str(bound.relation.schema))
            for (name, own), bound in tables
        )
        rules = tuple(repr(self.rules.get(name)) for name, *_ in snapshots)
        roles = tuple(map(str, self.caller.roles)) if self.caller is not None else None
        return snapshots, roles, rules, self.searches.versions()


class Queries:
    """The lake's queries. Safe to share between threads; what is cached is immutable.

    `timeline` gives the reader of the timeline, `rules` the masks and row filters of a caller, `observe` is told of
    every query what was estimated and what happened; `history` keeps it. Without `submitted` nothing goes to Spark, and
    without `ranking`, which gives the vector tables, nothing is searched.
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
        history: History | None = None,
        submitted: Submitted | None = None,
        ranking: Callable[[], Ranking] | None = None,
    ) -> None:
        self.limits = limits or Limits(memory_of_process())
        self._rules, self._observe, self._history, self._jobs = rules, observe, history, submitted
        self._ranking = ranking
        published = Publisher(attestations.s3, attestations.bucket).published
        self._binder = Binder(tables, timeline, lambda: bool(published().note))
        self._execution = Execution(tables, timeline, attestations)
        self._cache = ResultCache()
        self._plans: dict[Hashable, Plan] = {}

    def run(self, sql: str, *, verify: bool = False, **options: Unpack[Options]) -> Answer:
        """Answers one SELECT in this process. `EXPLAIN ROUTE SELECT …` is answered with the explanation, a line a row.

        `verify`: every object read is hashed and compared with the timeline first; Unverified names the one that is not
        what its commit wrote. Warm, a query makes no request but for data. Invalid when it makes no sense or does not
        fit.
        """
        found = self.ask(sql, engine="lambda", verify=verify, **options)
        assert isinstance(found, Answer)
        return found

    def ask(
        self,
        sql: str,
        *,
        engine: Engine = "auto",
        verify: bool = False,
        id: str | None = None,
        **options: Unpack[Options],
    ) -> Answer | Status:
        """Answers one SELECT where it is cheapest: here, or as a job whose status is given instead (see `submit`)."""
        asked = self._read(sql, options)
        if asked.searches and verify:
            raise Invalid(
                "a search cannot be verified row by row: leave verify out; `strandline vectors verify` compares the "
                "manifests of a vector table with the timeline"
            )
        key = self._key(asked)
        cacheable = key is not None and engine != "spark" and not verify and not asked.statement.explain
        if cacheable and (kept := self._cache.get(key)) is not None:
            return self._kept(kept, asked)
        evidence = Evidence() if verify else None
        checked = self._execution.checked(asked.binding, evidence) if evidence is not None else {}
        plan = self._planned(asked, checked)
        if asked.statement.explain:
            return self._explained(plan)
        if engine == "spark" or plan.explanation.route is Route.SPARK:
            if engine == "lambda" or verify:
                tried = "a verified query runs here alone" if verify else "submit it as a job, with the engine spark"
                raise Invalid(
                    f"the query is too large to run here: {plan.explanation.reason}; narrow it; {tried}",
                    subject="route",
                )
            return self._submitted().submit(self._translated(plan, asked, id))
        traffic = Traffic()
        batches = self._execution.run(plan, asked.limits, traffic, checked, asked.began + asked.limits.seconds)
        if key is not None and not verify:
            batches = self._cache.filling(key, plan.schema, batches)
        receipt = _receipt(plan, traffic, evidence)
        return Answer(plan.schema, self._watched(batches, plan, traffic, asked.began), receipt, plan.explanation)

    def explain(self, sql: str, **options: Unpack[Options]) -> Explanation:
        """What `ask` would do and why, from metadata alone: no data is read."""
        return self._with_history(self._planned(self._read(sql, options)))

    # On Spark

    def submit(self, sql: str, *, id: str | None = None, **options: Unpack[Options]) -> Status:
        """Runs the query as a job, whatever its size. The same `id` again is the same query; Unverified if it is not.

        Bound to its snapshots now, so what is committed while it waits changes nothing. Invalid, before anything is
        started, when it makes no sense or is not known to mean the same on Spark.
        """
        found = self.ask(sql, engine="spark", id=id, **options)
        if isinstance(found, Answer):
            raise Invalid("EXPLAIN ROUTE is answered at once: there is nothing to submit")
        return found

    def translated(self, sql: str, *, id: str | None = None, **options: Unpack[Options]) -> Asked:
        """What `submit` would give to Spark. Starts nothing."""
        asked = self._read(sql, options)
        return self._translated(self._planned(asked), asked, id)

    def status(self, id: str, caller: SubmittedReader | None = None) -> Status:
        """How a submitted query stands. NotFound if there is none, or it is somebody else's."""
        return self._submitted().status(id, caller)

    def wait(self, id: str, seconds: float, caller: SubmittedReader | None = None) -> Status:
        return self._submitted().wait(id, caller, seconds)

    def page(self, id: str, token: int = 0, caller: SubmittedReader | None = None) -> Page:
        """Rows of a submitted query that is done: the first page, or the one that `next` of the page before names."""
        return self._submitted().page(id, token, caller)

    def answer(self, id: str, caller: SubmittedReader | None = None) -> Answer:
        """All rows of a submitted query that is done, fetched page by page as they are read."""
        asked = self._submitted().asked(id, caller)
        first = self.page(id, 0, caller)
        receipt, explanation = Receipt.of(asked.receipt), Explanation.of(asked.explanation)
        return Answer(first.rows.schema, self._batches(id, first, caller), receipt, explanation)

    def _batches(self, id: str, page: Page, caller: SubmittedReader | None) -> Iterator[pa.RecordBatch]:
        yield from page.rows.to_batches()
        while page.next is not None:
            page = self.page(id, page.next, caller)
            yield from page.rows.to_batches()

    def cancel(self, id: str, caller: SubmittedReader | None = None) -> None:
        """Ends a submitted query and forgets its rows."""
        self._submitted().cancel(id, caller)

    def _submitted(self) -> Submitted:
        if self._jobs is None:
            raise Unavailable("nothing runs large queries here: narrow the query")
        return self._jobs

    def _translated(self, plan: Plan, asked: _Asked, id: str | None) -> Asked:
        if plan.searches:
            raise Invalid("a search is not run on Spark: its vector tables are read here; leave the engine out")
        for field in plan.schema:
            if pa.types.is_interval(field.type) or pa.types.is_duration(field.type):
                raise Invalid(f"the query cannot run on Spark: its column {field.name} is an interval; cast it")
        text, relations = translate(plan)
        return Asked(
            id=id or uuid4().hex,
            subject=getattr(asked.caller, "subject", None),
            digest=digest_of(*asked.request),
            shape=shape_of(plan.statement.normalised),
            submitted_ms=int(time.time() * 1000),
            sql=text,
            reads=tuple(
                Reads(one.view, one.table, None if one.snapshot_id is None else str(one.snapshot_id), one.sql)
                for one in relations
            ),
            schema=plan.schema,
            receipt=_stated(plan.binding, Route.SPARK).as_dict(),
            explanation=plan.explanation.as_dict(),
        )

    # Here

    def _read(self, sql: str, options: Options) -> _Asked:
        began, statement = time.monotonic(), parse(sql)
        parameters, caller = options.get("parameters"), options.get("caller")
        binding = self._binder.bind(statement.refs, options.get("as_of"), options.get("fresh", False), caller)
        # Asked for once: what is remembered under them below was then made under them.
        rules = {name: self._rules(caller, name) for name, _ in binding.tables} if self._rules is not None else {}
        searches = search_binding.bind(statement, binding, parameters, self._ranking, rules.get)
        given, limits = searches.for_engine(parameters), options.get("limits") or self.limits
        return _Asked(sql, options, statement, binding, rules, searches, given, limits, began)

    def _planned(self, asked: _Asked, checked: Checks | None = None) -> Plan:
        """A search comes again with another vector, on which no plan depends: its plan is remembered."""
        key = self._plan_key(asked) if not checked else None
        if key is not None and (made := self._plans.get(key)) is not None:
            return made.bound_again(asked.binding, asked.rules.get, asked.searches)
        plan = planning.plan(
            asked.statement,
            asked.binding,
            asked.given,
            asked.rules.get,
            asked.limits,
            searches=asked.searches,
            limit_bytes=asked.options.get("limit_bytes"),
            checked=checked,
        )
        if key is not None:
            if len(self._plans) >= KEPT_PLANS:
                self._plans = {}
            self._plans[key] = plan.unbound()
        return plan

    def _plan_key(self, asked: _Asked) -> Hashable | None:
        """All that the plan of a search depends on; None if that cannot be said, or it is no search."""
        statement = asked.statement
        if statement.volatile or not asked.searches:
            return None
        try:
            given = json.dumps(asked.given, sort_keys=True)
        except TypeError:
            return None
        return statement.text, statement.refs, given, asked.state, asked.limits, asked.options.get("limit_bytes")

    def _key(self, asked: _Asked) -> Hashable | None:
        """All that an answer depends on; None if that cannot be said."""
        if asked.statement.volatile:
            return None
        return asked.statement.normalised, asked.searches.asked(), _plain(asked.given), asked.state

    def _kept(self, kept: pa.Table, asked: _Asked) -> Answer:
        explanation = choose([], asked.limits, answered=True)
        explanation = replace(explanation, reason="the same query was answered from the same snapshots before")
        receipt = replace(_stated(asked.binding, Route.METADATA), cached=True, searched=asked.searches.receipt())
        return Answer(kept.schema, iter(kept.to_batches()), receipt, explanation)

    def _explained(self, plan: Plan) -> Answer:
        explanation = self._with_history(plan)
        lines = pa.table({"plan": explanation.lines()})
        return Answer(lines.schema, iter(lines.to_batches()), _receipt(plan, Traffic(), None), explanation)

    def _with_history(self, plan: Plan) -> Explanation:
        records = self._history.of(shape_of(plan.statement.normalised)) if self._history is not None else []
        return replace(plan.explanation, seen=tuple(said(records)))

    def _watched(
        self, batches: Iterator[pa.RecordBatch], plan: Plan, traffic: Traffic, began: float
    ) -> Iterator[pa.RecordBatch]:
        """The same batches; at the end it is recorded what was estimated and what happened."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            yield batch
        chosen = plan.explanation
        happened = {
            "shape": shape_of(plan.statement.normalised),
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
        if self._history is not None:
            self._history.keep(happened)


def _receipt(plan: Plan, traffic: Traffic, evidence: Evidence | None) -> Receipt:
    receipt = _stated(plan.binding, plan.explanation.route)
    searched = plan.searches.receipt()
    receipt = replace(receipt, requests=traffic.requests, bytes=traffic.bytes, searched=searched)
    if evidence is None:
        return receipt
    return replace(receipt, verified=True, objects=tuple(evidence.objects), proofs=dict(evidence.proofs))


def _stated(binding: Binding, route: Route) -> Receipt:
    snapshots = {
        name if own is None else f"{name}@{own}": None if bound.snapshot is None else str(bound.snapshot.snapshot_id)
        for (name, own), bound in binding.tables.items()
    }
    checkpoint = binding.checkpoint
    if checkpoint is None:
        return Receipt(None, None, None, snapshots, route, binding.fresh)
    return Receipt(binding.index, checkpoint.size, checkpoint.root.hex(), snapshots, route)


def _plain(parameters: Parameters) -> str:
    try:
        return json.dumps(parameters, sort_keys=True)
    except TypeError:
        return repr(parameters)
