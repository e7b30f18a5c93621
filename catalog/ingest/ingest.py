"""Ingestion from start to end: reads each file, commits a table's files together, quarantines what is rejected, and
writes the outcomes into the ledger.

The unit of ingestion is a version of an object, whose token is in the table: a version that is delivered twice, even
concurrently, commits its rows once, and after a crash anywhere the next delivery completes the work. An older version
that is delivered late does not replace the rows of a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalog.core.errors import Conflict, Invalid, LakeError, as_lake_error
from catalog.core.logs import correlation
from catalog.formats import FileRejected, FormatLimits, Inference, NoRows, detect, is_known, read_rows, unify
from catalog.ingest.attempts import MAX_DEATHS, Attempts
from catalog.ingest.commit import FileRows, Result, SourceVersions, append_files, append_large_file, padded_bytes
from catalog.ingest.landed_object import DigestingStream, Gone, LandedObject
from catalog.ingest.ledger import Ledger
from catalog.ingest.media import read_media
from catalog.ingest.outcomes import Outcome, log_outcome
from catalog.ingest.rules import RuleStore
from catalog.ingest.s3_events import Destination, LandedFile, parse_key
from catalog.ingest.target_table import TargetTable
from catalog.tables import Tables

READERS = 4
HOLD_BYTES = 16 << 20
"""Rows of a file up to this size stay in memory until the commit; a larger file is read a second time."""
SCHEMAS = 50
GROUP_BYTES = 128 << 20
"""Files are committed once the rows in memory reach this size."""


@dataclass(eq=False)
class _File:
    """A file that is being ingested. `batches` is None if its rows are too large to stay in memory."""

    source: LandedObject
    destination: Destination
    outcome: Outcome
    schemas: list[pa.Schema] = field(default_factory=list)
    batches: list[pa.RecordBatch] | None = None
    held: int = 0
    names: set[str] = field(default_factory=set)
    inference: Inference | None = None

    def add_schema(self, schema: pa.Schema) -> None:
        if schema in self.schemas:
            return
        self.names.update(schema.names)
        self.schemas.append(schema)
        if len(self.schemas) > SCHEMAS:  # a sparse file may have as many as it has batches
            self.schemas = [unify(self.schemas)]

    @property
    def is_media(self) -> bool:
        return not is_known(self.destination.name)


class Ingest:
    """Ingests files into tables. Safe to run in many processes at once; one `run` uses a few threads.

    Rules, media and the ledger are in `bucket`, the lake's own.
    """

    def __init__(self, s3: Any, tables: Tables, bucket: str, limits: FormatLimits | None = None) -> None:
        self._s3, self._tables, self._limits = s3, tables, limits or FormatLimits()
        self._rules, self._ledger = RuleStore(s3, bucket, tables), Ledger(s3, bucket)
        self._attempts = Attempts(s3, bucket)

    def run(self, files: Sequence[LandedFile]) -> list[Outcome]:
        """Ingests the files; returns their outcomes in the same order. Raises nothing: an error is a file's outcome."""
        outcomes = [Outcome(landed) for landed in files]
        by_table: dict[str, list[_File]] = {}
        for outcome in outcomes:
            source = LandedObject(self._s3, outcome.landed)
            try:
                destination = parse_key(outcome.landed.key)
            except Invalid as error:
                self._reject(source, None, outcome, error)
                continue
            outcome.table = destination.full_table
            by_table.setdefault(destination.full_table, []).append(_File(source, destination, outcome))
        with ThreadPoolExecutor(READERS, thread_name_prefix="ingest") as pool:
            for name, table_files in by_table.items():
                self._ingest(name, table_files, pool)
            list(pool.map(self._write_record, outcomes))
        for outcome in outcomes:
            log_outcome(outcome)
        return outcomes

    def run_alone(self, landed: LandedFile) -> Outcome:
        """Ingests one file that may have ended the processes which read it before: after MAX_DEATHS attempts it is
        quarantined without being read. Raises nothing. Two PUTs and a GET more than `run`."""
        outcome = Outcome(landed)
        try:
            deaths = self._attempts.begin(landed)
            if deaths < MAX_DEATHS:
                outcome = self.run([landed])[0]
            else:
                self._refuse_to_read(outcome, deaths)
            self._attempts.end(landed)
        except LakeError as error:
            outcome.error, outcome.status = outcome.error or error, "failed"
        return outcome

    def _refuse_to_read(self, outcome: Outcome, deaths: int) -> None:
        reason = f"{deaths} processes ended while they read this file, out of memory or time: split it, or correct it"
        try:
            destination: Destination | None = parse_key(outcome.landed.key)
        except Invalid:
            destination = None
        outcome.table = destination.full_table if destination else None
        self._reject(LandedObject(self._s3, outcome.landed), destination, outcome, FileRejected(reason))
        self._write_record(outcome)
        log_outcome(outcome)

    def _ingest(self, name: str, files: list[_File], pool: ThreadPoolExecutor) -> None:
        try:
            self._ingest_all(name, files, pool)
        except Exception as error:
            # The table's fault, not a file's: it is the outcome of every file without one.
            for file in files:
                if file.outcome.status == "failed":
                    self._fail(file, error)

    def _ingest_all(self, name: str, files: list[_File], pool: ThreadPoolExecutor) -> None:
        """Ingests one table's files: reads a few at a time, and commits them together unless their rows exceed
        GROUP_BYTES."""
        target = TargetTable(self._tables, self._rules, name)
        pending: list[_File] = []
        for start in range(0, len(files), READERS):
            part = files[start : start + READERS]
            list(pool.map(self._read, part, [target] * len(part)))
            pending += [file for file in part if file.outcome.is_open]
            if sum(file.held for file in pending) >= GROUP_BYTES:
                self._commit(target, pending)
                pending = []
        self._commit(target, pending)

    def _read(self, file: _File, target: TargetTable) -> None:
        """Reads the whole file for its digest, its columns, and its rows if they fit into memory; or for its fault."""
        file.schemas, file.names, file.batches, file.held, file.outcome.rows = [], set(), [], 0, 0
        with correlation(file.outcome.landed.correlation_id):
            stream = None
            try:
                stream = file.source.stream(self._limits)
                file.outcome.size = file.source.size
                if not file.source.size:
                    raise NoRows("the file is empty")
                file.inference = None if file.is_media else target.start_inference(file.destination.name)
                for batch in self._rows(file, stream, target):
                    if file.inference is not None:
                        file.inference.observe(batch)
                    file.outcome.rows += batch.num_rows
                    file.add_schema(batch.schema)
                    file.held += padded_bytes(batch, max(len(target.columns or ()), len(file.names)))
                    if file.batches is not None and file.held <= HOLD_BYTES:
                        file.batches.append(batch)
                    else:
                        file.batches = None
                file.outcome.digest = stream.digest()
                file.outcome.token = file.source.object_version(file.outcome.digest).token
            except Exception as error:
                self._fail(file, error)
            finally:
                if stream is not None:
                    stream.close()
        file.held = 0 if file.batches is None else file.held

    def _rows(self, file: _File, stream: DigestingStream, target: TargetTable) -> Iterator[pa.RecordBatch]:
        name = file.destination.name
        if target.holds_media not in (None, file.is_media):
            holds, this = ("metadata of media", "a file of rows") if target.holds_media else ("rows", "a media file")
            raise FileRejected(f"{target.name} holds {holds}, and this is {this}: put it below another table")
        if file.is_media:
            return read_media(file.source, stream, name)
        format_ = detect(name)
        by_ranges = format_.kind == "parquet" and format_.codec is None and file.source.size > HOLD_BYTES
        source = file.source.ranges() if by_ranges else stream
        return read_rows(source, name, self._limits, target.columns, target.csv)

    def _commit(self, target: TargetTable, files: list[_File]) -> None:
        """Commits the files in memory together, and each large file on its own. Creates the table first if needed."""
        # A commit announces one correlation id, also when it creates the table: the first file's. The log line of each
        # file names the snapshot.
        with correlation(files[0].outcome.landed.correlation_id if files else None):
            files = self._fit_table(target, files)
        # Of two rows with the same key, the one that landed later is committed.
        files.sort(key=lambda file: (file.source.modified, file.outcome.landed.sequencer or ""))
        held = [file for file in files if file.batches is not None]
        if held:
            rows = [self._file_rows(file, target) for file in held]
            with correlation(held[0].outcome.landed.correlation_id):
                results = append_files(self._tables, target.name, rows, key=target.key, ledger=self._ledger)
                self._apply_results(held, results)
            for file in held:
                file.batches = []
        for file in files:
            if file not in held:
                self._commit_large(target, file)

    def _fit_table(self, target: TargetTable, files: list[_File]) -> list[_File]:
        """The files that fit the table, which is created or gets the columns that they need. A file that was read
        before the table had its columns is read again."""
        fitting, columns, inference = list[_File](), pa.schema([]), Inference(options=target.csv)
        for file in files:
            try:
                if target.columns is None and fitting and fitting[0].is_media != file.is_media:
                    raise FileRejected("media and rows cannot share a table: put them below different tables")
                target.check_creation(file.source.metadata)
                inferred = inference if file.inference is None else inference.add(file.inference)
                schemas = [inferred.typed(schema) for each in (*fitting, file) for schema in each.schemas]
                columns = unify(target.new_columns(schemas))
            except Invalid as error:
                self._fail(file, error)
                continue
            inference = inferred
            fitting.append(file)
        if fitting and target.evolve(columns, inference):
            columns = target.columns or pa.schema([])
            for file in fitting:
                if any(column not in columns for schema in file.schemas for column in schema):
                    self._read(file, target)
        return [file for file in fitting if file.outcome.is_open]

    def _commit_large(self, target: TargetTable, file: _File) -> None:
        with correlation(file.outcome.landed.correlation_id):
            try:
                rows = self._file_rows(file, target)
                committed = append_large_file(self._tables, target.name, rows, key=target.key, ledger=self._ledger)
                self._apply_results([file], {rows.token: committed})
            except Exception as error:
                self._fail(file, error)

    def _file_rows(self, file: _File, target: TargetTable) -> FileRows:
        outcome, held = file.outcome, file.batches
        assert outcome.digest is not None
        own = file.source.object_version(outcome.digest)

        def read_again() -> Iterator[pa.RecordBatch]:
            stream = file.source.stream(self._limits)
            yield from map(target.select_columns, self._rows(file, stream, target))
            if stream.digest() != outcome.digest:
                raise Conflict(f"{outcome.landed.key} changed while it was read: it will be read again")

        def of_version(version: str) -> Iterator[pa.RecordBatch]:
            other = _File(file.source.other(version), file.destination, Outcome(outcome.landed))
            return map(target.select_columns, self._rows(other, other.source.stream(self._limits), target))

        batches = read_again if held is None else lambda: map(target.select_columns, held)
        versions = SourceVersions(own, of_version, file.source.current_version)
        return FileRows(own.token, outcome.source, outcome.rows, batches, versions)

    def _apply_results(self, files: Sequence[_File], results: dict[str, Result]) -> None:
        applied = set[str]()
        for file in files:
            outcome = file.outcome
            assert outcome.token is not None
            result = results[outcome.token]
            if isinstance(result, Invalid):
                self._fail(file, result)
                continue
            outcome.table_uuid, outcome.snapshot_id = result.table_uuid, result.receipt.snapshot_id
            outcome.status = "duplicate" if result.receipt.replayed or outcome.token in applied else "committed"
            applied.add(outcome.token)

    def _fail(self, file: _File, error: Exception) -> None:
        if file.outcome.error is None:
            self._reject(file.source, file.destination, file.outcome, as_lake_error(error))

    def _reject(
        self, source: LandedObject, destination: Destination | None, outcome: Outcome, error: LakeError
    ) -> None:
        """Quarantines bad input, which ends its ingestion; after any other error the message is delivered again."""
        outcome.error, outcome.status = error, "failed"
        try:
            if isinstance(error, Gone):
                outcome.status = "gone"
            elif isinstance(error, NoRows):
                outcome.digest = outcome.digest or source.digest(self._limits)
                outcome.status, outcome.error = "empty", None
            elif isinstance(error, Invalid):
                outcome.digest = outcome.digest or source.digest(self._limits)
                outcome.report = source.quarantine(destination, outcome.digest, error)
                outcome.status = "quarantined"
        except LakeError as second:
            outcome.error = second

    def _write_record(self, outcome: Outcome) -> None:
        """Writes the ledger's record, with one small PUT. If that fails the file fails: its message is delivered again,
        and its rows are found in the table."""
        try:
            record = outcome.record()
            if record is not None and outcome.status == "failed":
                self._ledger.write_failure(record)
            if record is not None and (outcome.status != "failed" or outcome.digest is not None):
                self._ledger.write(record)
        except LakeError as error:
            outcome.error, outcome.status = outcome.error or error, "failed"
