"""Runs a plan in this process: makes the SQL of its scans, and runs it in DuckDB, which reads the files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import Invalid, LakeError
from catalog.iceberg import LiveFile, LiveFiles
from catalog.query.bind.binding import Binding
from catalog.query.plan.file_statistics import FileStatistics
from catalog.query.plan.planning import Plan, VerifiedFiles
from catalog.query.plan.predicates import Mask
from catalog.query.plan.relation_names import PlannedRelation, engine_text, with_views
from catalog.query.run.engine import PARALLEL_BYTES, THREADS, Session
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.search import SearchRound
from catalog.query.scan.lake_files import LakeObject, QueryFiles
from catalog.query.scan.object_ranges import Buffer, ObjectRanges
from catalog.query.scan.parquet_footers import FooterCache, ParquetOpener
from catalog.query.scan.parquet_objects import Footers, SmallObjects, Traffic
from catalog.query.scan.relations import RelationReader, RelationScan, naming_the_file, with_placeholder_columns
from catalog.query.scan.scan_sql import ScanBuilder, registered_sql
from catalog.query.scan.verified_io import Evidence, VerifiedIO, VerifiedManifests
from catalog.tables import Tables
from catalog.timeline import Attestations, Timeline

PARALLEL_OPENS = 8
_EXPLAINED = pa.schema([("explain_key", pa.string()), ("explain_value", pa.string())])


class Execution:
    """Safe to share between threads: everything it caches is immutable."""

    def __init__(self, tables: Tables, timeline: Callable[[], Timeline], attestations: Attestations) -> None:
        self._timeline, self._attestations = timeline, attestations
        self._store = ObjectRanges(tables.table_store.io.store)
        self._objects, self._footers = SmallObjects(self._store), FooterCache()
        self._reader = RelationReader(self._objects, tables.table_store.io, Footers())
        self._pool = ThreadPoolExecutor(PARALLEL_OPENS, thread_name_prefix="footers")

    def run(
        self, plan: Plan, limits: EngineLimits, traffic: Traffic, verified: VerifiedFiles, deadline: float
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows, batch by batch. Invalid, before the first, for most errors of the statement."""
        if plan.metadata_answer is not None:
            return iter([plan.metadata_answer])
        if plan.searches:
            return self._search(plan, limits, traffic, deadline)
        return self._load_and_run(plan, limits, traffic, verified, deadline, SearchRound())

    def explain(self, plan: Plan, limits: EngineLimits, traffic: Traffic, deadline: float, *, analyze: bool) -> str:
        """DuckDB's own plan of the statement over its scans; with `analyze`, runs it, and returns its profile as JSON.

        Reads the footers of the files; with `analyze` what the query reads."""
        prefix = "EXPLAIN (ANALYZE, FORMAT JSON) " if analyze else "EXPLAIN "
        explained = replace(plan, schema=_EXPLAINED)
        batches = self._load_and_run(explained, limits, traffic, {}, deadline, SearchRound(), prefix)
        return str(pa.Table.from_batches(batches, _EXPLAINED).column("explain_value")[0].as_py())

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
        prefix: str = "",
    ) -> Iterator[pa.RecordBatch]:
        run = _Run(limits, THREADS if plan.explanation.bytes > PARALLEL_BYTES else 1)
        try:
            sources = {}
            for relation in plan.relations:
                verified_io = verified[relation.label][0] if verified else None
                with translate_aws_errors(relation.label):
                    sources[relation.name] = (
                        f"({self._source(run, plan, relation, traffic, verified_io, search_round)})"
                    )
            for function in search_round.functions:
                name = f"{function.name}_{run.files.token}"
                run.session.add_function(name, function.arguments, function.result, function.call)
            text = engine_text(
                plan.statement,
                plan.refs,
                with_views(sources, plan.views),
                [
                    *plan.searches.replacements(f"_{run.files.token}"),
                    *plan.system.registered(run.session, run.register),
                ],
            )
            return run.start(prefix + text, plan, deadline)
        except BaseException:
            run.close()
            raise

    def _source(
        self,
        run: _Run,
        plan: Plan,
        planned: PlannedRelation,
        traffic: Traffic,
        verified_io: VerifiedIO | None,
        search_round: SearchRound,
    ) -> str:
        """The SELECT that reads the relation: from Parquet files, or from rows that are in memory already."""
        relation, requirements = planned.bound.relation, plan.scans[planned.name]
        if planned.ref_start is not None:
            batches = self._searched_rows(plan, planned, traffic, search_round)
            rows = pa.Table.from_batches(batches, relation.arrow)
            return registered_sql(relation, run.register(rows))
        fetch = requirements.fetch if verified_io is None else None  # by the manifest's counts, also the writer's word
        mask = _fetched_files(relation.statistics, plan.verdicts[planned.name].might_match, fetch)
        opener = ParquetOpener(self._objects, self._footers, traffic)

        def open_file(live: LiveFile) -> tuple[LakeObject, pa.Schema]:
            with naming_the_file(live, relation):
                object_, physical = opener.open(live.file.file_path, live.file.file_size_in_bytes)

            def read_range(start: int, end: int) -> Buffer:
                with translate_aws_errors(planned.label), naming_the_file(live, relation):
                    return object_.read(start, end)

            return replace(object_, read=read_range), physical

        def read(files: Sequence[LiveFile]) -> pa.Table:
            chosen = {live.file.file_path for live in files}
            some = np.array([live.file.file_path in chosen for live in relation.statistics.files], dtype=bool)
            scan = RelationScan(relation, some, requirements.columns, requirements.predicate)
            rows = pa.Table.from_batches(self._reader.read(scan, traffic, verified_io), relation.arrow)
            run.count(sum(rows.column(name).nbytes for name in requirements.columns))
            return rows

        files = [relation.statistics.files[number] for number in np.flatnonzero(mask)]
        if verified_io is not None:  # DuckDB would believe the statistics in a footer, which are the writer's word
            name = f"strandline_rows_{run.files.token}_{planned.name}"
            return registered_sql(relation, run.session.register(name, read(files)))
        builder = ScanBuilder(
            run.session,
            run.files,
            self._pool,
            open_file,
            lambda live: self._reader.positions(live, traffic, verified_io),
            read,
        )
        return builder.sql(relation, files, addressed=planned.addressed)

    def _searched_rows(
        self, plan: Plan, planned: PlannedRelation, traffic: Traffic, search_round: SearchRound
    ) -> list[pa.RecordBatch]:
        relation, requirements, ref_start = planned.bound.relation, plan.scans[planned.name], planned.ref_start
        assert ref_start is not None
        if ref_start in search_round.rows:  # the vector table returned every column the query needs
            rows = search_round.rows[ref_start].select(requirements.columns)
            rows = rows.cast(pa.schema([relation.arrow.field(name) for name in requirements.columns]))
            return [with_placeholder_columns(batch, relation.arrow) for batch in rows.to_batches()]
        predicate, files = requirements.predicate, plan.verdicts[planned.name].might_match
        if ref_start in search_round.keys:
            predicate = search_round.predicate(ref_start, predicate)
            files = relation.statistics.evaluate(predicate, relation.schema).might_match
        scan = RelationScan(relation, files, requirements.columns, predicate)
        return search_round.restrict(ref_start, self._reader.read(scan, traffic))

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


def _fetched_files(statistics: FileStatistics, files: Mask, fetch: int | None) -> Mask:
    """The files that are needed: the first ones, if any `fetch` rows are enough."""
    if fetch is None or statistics.has_deletes[files].any():
        return files
    numbers = np.flatnonzero(files)
    enough = int(np.searchsorted(np.cumsum(statistics.rows[numbers]), fetch)) + 1
    mask = np.zeros(len(statistics), dtype=bool)
    mask[numbers[:enough]] = True
    return mask


class _Run:
    """One run of the engine: its session, the files that it may open, and what it holds in memory."""

    def __init__(self, limits: EngineLimits, threads: int) -> None:
        self._limits = limits
        self.session, self.files = Session(limits.memory_bytes, threads), QueryFiles()
        self._held = 0

    def count(self, size: int) -> None:
        """Counts rows in memory. Invalid if they are more than the limit."""
        self._held += size
        if self._held > self._limits.memory_bytes:
            raise Invalid(
                f"the query needs more than {self._limits.memory_bytes >> 20} MiB: select fewer columns or rows, or "
                "run it on Spark"
            )

    def register(self, rows: pa.Table) -> str:
        self.count(rows.nbytes)
        return self.session.register(f"strandline_rows_{self.files.token}_{self._held}_{id(rows)}", rows)

    def start(self, text: str, plan: Plan, deadline: float) -> Iterator[pa.RecordBatch]:
        """Runs the statement until its first batch, so that its errors come before any row."""
        batches = self._batches(text, plan, deadline)
        first = next(batches, None)
        return iter(()) if first is None else chain([first], batches)

    def _batches(self, text: str, plan: Plan, deadline: float) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.session.run(text, plan.parameters, plan.schema, deadline, self._limits)
        except LakeError:
            if self.files.error is not None:
                raise self.files.error from None
            raise
        finally:
            self.close()

    def close(self) -> None:
        self.session.close()
        self.files.close()
