"""Runs a plan in this process: loads its relations in parallel, within the memory limit, then runs DataFusion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import Invalid
from catalog.iceberg import LiveFiles
from catalog.query.bind.binding import Binding
from catalog.query.plan.file_statistics import FileStatistics
from catalog.query.plan.planning import Plan, PlannedRelation, VerifiedFiles
from catalog.query.run.engine import PARALLEL_BYTES, Session, execute
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.search import SearchRound
from catalog.query.scan.parquet_objects import Footers, SmallObjects, Traffic
from catalog.query.scan.relations import RelationReader, RelationScan, with_placeholder_columns
from catalog.query.scan.verified_io import Evidence, VerifiedIO, VerifiedManifests
from catalog.tables import Tables
from catalog.timeline import Attestations, Timeline

CORES = 2
PARALLEL_LOADS = 4


class Execution:
    """Safe to share between threads: everything it caches is immutable."""

    def __init__(self, tables: Tables, timeline: Callable[[], Timeline], attestations: Attestations) -> None:
        self._timeline, self._attestations = timeline, attestations
        self._store = tables.table_store.io.store
        self._reader = RelationReader(SmallObjects(self._store), tables.table_store.io, Footers())
        self._pool = ThreadPoolExecutor(PARALLEL_LOADS, thread_name_prefix="relations")

    def run(
        self, plan: Plan, limits: EngineLimits, traffic: Traffic, verified: VerifiedFiles, deadline: float
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows, batch by batch. Invalid, before the first, if the relations exceed the memory limit."""
        if plan.metadata_answer is not None:
            return iter([plan.metadata_answer])
        if plan.searches:
            return self._search(plan, limits, traffic, deadline)
        return self._load_and_run(plan, limits, traffic, verified, deadline, SearchRound())

    def _search(self, plan: Plan, limits: EngineLimits, traffic: Traffic, deadline: float) -> Iterator[pa.RecordBatch]:
        """Widens the search until the query's LIMIT is filled or every row was compared."""
        if plan.direct is not None:
            rows = plan.direct.answer(plan.searches, plan.schema)
            # Over the time or memory limit, the engine runs the query and raises its error.
            if rows is not None and rows.nbytes <= limits.memory_bytes and time.monotonic() < deadline:
                return iter([rows] if rows.num_rows else [])
        columns = {
            relation.ref_start: plan.scans[relation.name].columns
            for relation in plan.relations
            if relation.ref_start is not None
        }
        for search_round in plan.searches.rounds(columns):
            batches = self._load_and_run(plan, limits, traffic, {}, deadline, search_round)
            if not search_round.may_find_more:
                return batches
            collected = list(batches)
            if search_round.is_enough(sum(batch.num_rows for batch in collected)):
                return iter(collected)
        raise AssertionError

    def _load_and_run(
        self,
        plan: Plan,
        limits: EngineLimits,
        traffic: Traffic,
        verified: VerifiedFiles,
        deadline: float,
        search_round: SearchRound,
    ) -> Iterator[pa.RecordBatch]:
        loaded: list[tuple[PlannedRelation, list[pa.RecordBatch]]] = []
        loaded_bytes = 0
        for relation, batches in zip(plan.relations, self._load(plan, traffic, verified, search_round), strict=True):
            loaded_bytes += _bytes(batches, plan.scans[relation.name].columns)
            if loaded_bytes > limits.memory_bytes:
                raise Invalid(
                    f"the query needs more than {limits.memory_bytes >> 20} MiB: select fewer columns or rows, or "
                    "run it on Spark"
                )
            loaded.append((relation, batches))
        session = Session(
            memory_bytes=limits.memory_bytes - loaded_bytes,
            partitions=CORES if loaded_bytes > PARALLEL_BYTES else 1,
            exact_decimals=plan.exact_decimals,
            recursive=plan.statement.recursive,
        )
        for relation, batches in loaded:
            session.add(relation.database, relation.table, relation.bound.relation.arrow, batches)
        for view in plan.views:
            session.add_view(view.database, view.table, view.sql)
        for function in search_round.functions:
            session.add_function(function.name, function.arguments, function.result, function.call)
        return execute(session.plan(plan.text, plan.parameters), plan.schema, deadline, limits)

    def verified_files(self, binding: Binding, evidence: Evidence) -> VerifiedFiles:
        """For each table a FileIO that verifies, and its live files as read from verified manifests."""
        if binding.index is None:
            raise Invalid(f"nothing can be verified without the timeline: {binding.fresh}")
        files: dict[str, tuple[VerifiedIO, FileStatistics]] = {}
        for (name, as_of), table in binding.tables.items():
            label = name if as_of is None else f"{name}@{as_of}"
            uuid = str(table.relation.metadata.table_uuid)
            if table.proven is not None and table.proven.table_uuid is not None:
                uuid = table.proven.table_uuid
            verified_io = VerifiedIO(self._store, self._timeline(), self._attestations, name, evidence, uuid)
            with translate_aws_errors(label):
                live = LiveFiles.of(verified_io, VerifiedManifests(verified_io), table.snapshot, name)
            statistics = FileStatistics(live.data, live.manifests, table.relation.metadata.specs())
            files[label] = (verified_io, statistics)
        return files

    def _load(
        self, plan: Plan, traffic: Traffic, verified: VerifiedFiles, search_round: SearchRound
    ) -> Iterator[list[pa.RecordBatch]]:
        """Yields each relation's rows, in the plan's order; the relations are read in parallel."""

        def load(planned: PlannedRelation) -> list[pa.RecordBatch]:
            relation, requirements = planned.bound.relation, plan.scans[planned.name]
            if planned.ref_start in search_round.rows:  # the vector table returned every column the query needs
                rows = search_round.rows[planned.ref_start].select(requirements.columns)
                rows = rows.cast(pa.schema([relation.arrow.field(name) for name in requirements.columns]))
                return [with_placeholder_columns(batch, relation.arrow) for batch in rows.to_batches()]
            predicate, files = requirements.predicate, plan.verdicts[planned.name].might_match
            if planned.ref_start in search_round.keys:
                predicate = search_round.predicate(planned.ref_start, predicate)
                files = relation.statistics.evaluate(predicate, relation.schema).might_match
            scan = RelationScan(relation, files, requirements.columns, predicate, requirements.fetch)
            with translate_aws_errors(planned.label):
                batches = self._reader.read(scan, traffic, verified[planned.label][0] if verified else None)
            return batches if planned.ref_start is None else search_round.restrict(planned.ref_start, batches)

        return map(load, plan.relations) if len(plan.relations) == 1 else self._pool.map(load, plan.relations)


def _bytes(batches: list[pa.RecordBatch], columns: tuple[str, ...]) -> int:
    return sum(batch.column(name).nbytes for batch in batches for name in columns)
