"""A plan run in this process: its relations loaded side by side, within the memory there is, then DataFusion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from catalog.errors import Invalid
from catalog.query.binding import Binding
from catalog.query.engine import PARALLEL_BYTES, Limits, Session, run
from catalog.query.footers import Footers, SmallObjects, Traffic
from catalog.query.inventory import Inventory
from catalog.query.planning import Checks, Placed, Plan
from catalog.query.relations import Reader, Reading
from catalog.query.verification import CheckedIO, CheckedManifests, Evidence
from catalog.tables.answers import explained
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
        loaded: list[tuple[Placed, list[pa.RecordBatch]]] = []
        held = 0
        for one, batches in zip(plan.placed, self._loads(plan, traffic, checked), strict=True):
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

    def _loads(self, plan: Plan, traffic: Traffic, checked: Checks) -> Iterator[list[pa.RecordBatch]]:
        """Each relation's rows, in the plan's order; all are fetched side by side."""

        def load(one: Placed) -> list[pa.RecordBatch]:
            scan, chosen = plan.scans[one.name], plan.verdicts[one.name].may
            reading = Reading(one.bound.relation, chosen, scan.columns, scan.predicate, scan.fetch)
            with explained(one.label):
                return self._reader.read(reading, traffic, checked[one.label][0] if checked else None)

        return map(load, plan.placed) if len(plan.placed) == 1 else self._pool.map(load, plan.placed)


def _bytes(batches: list[pa.RecordBatch], columns: tuple[str, ...]) -> int:
    return sum(batch.column(name).nbytes for batch in batches for name in columns)
