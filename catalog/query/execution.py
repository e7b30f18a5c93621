"""A plan run in this process: its relations loaded side by side, within the memory there is, then DataFusion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from catalog.errors import Invalid
from catalog.query.binding import Binding
from catalog.query.engine import PARALLEL_BYTES, Limits, Session, run
from catalog.query.footers import Footers, SmallObjects, Traffic
from catalog.query.inventory import Inventory
from catalog.query.planning import Checks, Placed, Plan
from catalog.query.relations import Reader, Reading, with_phantoms
from catalog.query.searching import Found
from catalog.query.verification import CheckedIO, CheckedManifests, Evidence
from catalog.refusals import explained
from catalog.tables.live import LiveFiles
from catalog.tables.manager import Tables
from catalog.timeline.attest import Attestations
from catalog.timeline.proofs import Timeline

CORES = 2
LOADS = 4


class Execution:
    """Safe to share between threads; what is cached is immutable."""

    def __init__(self, tables: Tables, timeline: Callable[[], Timeline], attestations: Attestations) -> None:
        self._timeline, self._attestations = timeline, attestations
        self._store = tables.catalogue.io.store
        self._reader = Reader(SmallObjects(self._store), tables.catalogue.io, Footers())
        self._pool = ThreadPoolExecutor(LOADS, thread_name_prefix="relations")

    def run(
        self, plan: Plan, limits: Limits, traffic: Traffic, checked: Checks, deadline: float
    ) -> Iterator[pa.RecordBatch]:
        """The answer, batch by batch. Invalid when it needs more than the limits give: before anything is given out."""
        if plan.ready is not None:
            return iter([plan.ready])
        if plan.searches:
            return self._searched(plan, limits, traffic, deadline)
        return self._load_and_run(plan, limits, traffic, checked, deadline, Found())

    def _searched(self, plan: Plan, limits: Limits, traffic: Traffic, deadline: float) -> Iterator[pa.RecordBatch]:
        """Wider each time, until the limit is met or every row was looked at. Only a root with a limit needs that."""
        if plan.direct is not None:
            rows = plan.direct.answer(plan.searches, plan.schema)
            # Out of time or memory? The engine says so in its words.
            if rows is not None and rows.nbytes <= limits.memory_bytes and time.monotonic() < deadline:
                return iter([rows] if rows.num_rows else [])
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
        self, plan: Plan, limits: Limits, traffic: Traffic, checked: Checks, deadline: float, found: Found
    ) -> Iterator[pa.RecordBatch]:
        loaded: list[tuple[Placed, list[pa.RecordBatch]]] = []
        held = 0
        for one, batches in zip(plan.placed, self._loads(plan, traffic, checked, found), strict=True):
            held += _bytes(batches, plan.scans[one.name].columns)
            if held > limits.memory_bytes:
                raise Invalid(
                    f"the query needs more than {limits.memory_bytes >> 20} MiB: select fewer columns or rows, or "
                    "run it on Spark"
                )
            loaded.append((one, batches))
        session = Session(
            memory_bytes=limits.memory_bytes - held,
            partitions=CORES if held > PARALLEL_BYTES else 1,
            exact_decimals=plan.exact_decimals,
            recursive=plan.statement.recursive,
        )
        for one, batches in loaded:
            session.add(one.database, one.table, one.bound.relation.arrow, batches)
        for view in plan.views:
            session.add_view(view.database, view.table, view.sql)
        for function in found.functions:
            session.add_function(function.name, function.arguments, function.result, function.call)
        return run(session.plan(plan.text, plan.parameters), deadline, limits)

    def checked(self, binding: Binding, evidence: Evidence) -> Checks:
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

    def _loads(self, plan: Plan, traffic: Traffic, checked: Checks, found: Found) -> Iterator[list[pa.RecordBatch]]:
        """Each relation's rows, in the plan's order; all are fetched side by side."""

        def load(one: Placed) -> list[pa.RecordBatch]:
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


def _bytes(batches: list[pa.RecordBatch], columns: tuple[str, ...]) -> int:
    return sum(batch.column(name).nbytes for batch in batches for name in columns)
