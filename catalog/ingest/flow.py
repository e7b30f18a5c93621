"""Ingestion, start to end: survey each file, commit a table's files together, keep aside what is refused, note it all.

The digest of a file's bytes is its token in the table, so a file that comes twice, at once or under another key makes
its rows once; and a crash anywhere is mended by running again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalog.errors import Conflict, Invalid, LakeError, as_lake_error
from catalog.ingest.appends import Load, Result, append, append_in_pieces
from catalog.ingest.ledger import Ledger
from catalog.ingest.media import read_media
from catalog.ingest.objects import DigestingStream, Gone, LandedObject
from catalog.ingest.outcomes import Outcome, tell
from catalog.ingest.rules import Rules
from catalog.ingest.target import Target
from catalog.logs import correlation
from catalog.pipeline.formats import detect, is_known, read_rows, unify
from catalog.pipeline.landing import Destination, Landed, parse_key
from catalog.pipeline.limits import Limits, Refused
from catalog.tables.manager import Tables

READERS = 4
HOLD_BYTES = 16 << 20
"""Rows of a file up to this are held from the survey to the commit; a larger file is read a second time."""
GROUP_BYTES = 128 << 20


@dataclass(eq=False)
class _File:
    """A file on its way. `batches` is None if there are too many to hold."""

    source: LandedObject
    destination: Destination
    outcome: Outcome
    schemas: list[pa.Schema] = field(default_factory=list)
    batches: list[pa.RecordBatch] | None = None
    held: int = 0

    @property
    def is_media(self) -> bool:
        return not is_known(self.destination.name)

    @property
    def is_loose(self) -> bool:
        """Whether its types were guessed from text, and may turn out to be text."""
        return not self.is_media and detect(self.destination.name).kind in ("csv", "tsv")


class Ingest:
    """Ingests files into tables. Safe to run in many processes at once; one `run` uses a few threads.

    Rules, media and the ledger are in `bucket`, the lake's own.
    """

    def __init__(self, s3: Any, tables: Tables, bucket: str, limits: Limits | None = None) -> None:
        self._s3, self._tables, self._limits = s3, tables, limits or Limits()
        self._rules, self._ledger = Rules(s3, bucket, tables), Ledger(s3, bucket)

    def run(self, files: Sequence[Landed]) -> list[Outcome]:
        """What became of each, in their order. Raises nothing: one file's fault is not the others'."""
        outcomes = [Outcome(landed) for landed in files]
        by_table: dict[str, list[_File]] = {}
        for outcome in outcomes:
            source = LandedObject(self._s3, outcome.landed)
            try:
                destination = parse_key(outcome.landed.key)
            except Invalid as error:
                self._refuse(source, None, outcome, error)
                continue
            outcome.table = destination.full_table
            by_table.setdefault(destination.full_table, []).append(_File(source, destination, outcome))
        with ThreadPoolExecutor(READERS, thread_name_prefix="ingest") as pool:
            for name, wanted in by_table.items():
                self._ingest(name, wanted, pool)
            list(pool.map(self._note, outcomes))
        for outcome in outcomes:
            tell(outcome)
        return outcomes

    def _ingest(self, name: str, files: list[_File], pool: ThreadPoolExecutor) -> None:
        try:
            self._ingest_all(name, files, pool)
        except Exception as error:
            # The table's fault, not one file's: those not yet dealt with share it.
            for file in files:
                if file.outcome.status == "failed":
                    self._fail(file, error)

    def _ingest_all(self, name: str, files: list[_File], pool: ThreadPoolExecutor) -> None:
        """One table's files: a few are read at a time, and committed together unless they are too many to hold."""
        target = Target(self._tables, self._rules, name)
        pending: list[_File] = []
        for start in range(0, len(files), READERS):
            part = files[start : start + READERS]
            list(pool.map(self._survey, part, [target] * len(part)))
            pending += [file for file in part if file.outcome.error is None]
            if sum(file.held for file in pending) >= GROUP_BYTES:
                self._commit(target, pending)
                pending = []
        self._commit(target, pending)

    def _survey(self, file: _File, target: Target) -> None:
        """Reads the file from end to end: its digest, its columns, its rows if they can be held, or its fault."""
        file.schemas, file.batches, file.held, file.outcome.rows = [], [], 0, 0
        with correlation(file.outcome.landed.correlation_id):
            stream = None
            try:
                stream = file.source.stream(self._limits)
                file.outcome.size = file.source.size
                for batch in self._rows(file, stream, target):
                    file.outcome.rows += batch.num_rows
                    if batch.schema not in file.schemas:
                        file.schemas.append(batch.schema)
                    file.held += batch.nbytes
                    if file.batches is not None and file.held <= HOLD_BYTES:
                        file.batches.append(batch)
                    else:
                        file.batches = None
                file.outcome.digest = stream.digest()
            except Exception as error:
                self._fail(file, error)
            finally:
                if stream is not None:
                    stream.close()
        file.held = 0 if file.batches is None else file.held

    def _rows(self, file: _File, stream: DigestingStream, target: Target) -> Iterator[pa.RecordBatch]:
        name = file.destination.name
        if target.holds_media not in (None, file.is_media):
            holds = "metadata of media" if target.holds_media else "rows"
            raise Refused(f"{target.name} holds {holds}, which this file does not have")
        if file.is_media:
            return read_media(file.source, stream, name)
        found = detect(name)
        large = found.kind == "parquet" and found.codec is None and file.source.size > HOLD_BYTES
        return read_rows(file.source.ranges() if large else stream, name, self._limits, target.columns)

    def _commit(self, target: Target, files: list[_File]) -> None:
        """Held files in one commit, large ones each in its own. A table that is not there yet is made first."""
        # One id for a commit's message, be it of the table's making or of its rows: the first file's. Each file's own
        # line names the snapshot.
        with correlation(files[0].outcome.landed.correlation_id if files else None):
            files = self._shape(target, files)
        held = [file for file in files if file.batches is not None]
        if target.key:  # of two rows with the same key, the one that landed later stays
            held.sort(key=lambda file: file.source.modified)
        if held:
            loads = [self._load(file, target) for file in held]
            with correlation(held[0].outcome.landed.correlation_id):
                self._settle(held, append(self._tables, target.name, loads, key=target.key, ledger=self._ledger))
            for file in held:
                file.batches = []
        for file in files:
            if file not in held:
                self._commit_large(target, file)

    def _shape(self, target: Target, files: list[_File]) -> list[_File]:
        """Those that fit. The table is made, or grows, as they need; what was read without that is read again."""
        fitting, news = list[_File](), list[pa.Schema]()
        loose = all(file.is_loose for file in files)
        for file in files:
            try:
                if target.columns is None and fitting and fitting[0].is_media != file.is_media:
                    raise Refused("media and rows have no table in common: drop them below different tables")
                wanted = target.news(file.schemas)
                unify([*news, *wanted], loose=loose)
            except Invalid as error:
                self._fail(file, error)
                continue
            news += wanted
            fitting.append(file)
        if fitting and target.grow(unify(news, loose=loose)):
            columns = target.columns or pa.schema([])
            for file in fitting:
                if any(found not in columns for schema in file.schemas for found in schema):
                    self._survey(file, target)
        return [file for file in fitting if file.outcome.error is None]

    def _commit_large(self, target: Target, file: _File) -> None:
        with correlation(file.outcome.landed.correlation_id):
            try:
                load = self._load(file, target)
                made = append_in_pieces(self._tables, target.name, load, key=target.key, ledger=self._ledger)
                self._settle([file], {load.token: made})
            except Exception as error:
                self._fail(file, error)

    def _load(self, file: _File, target: Target) -> Load:
        outcome, held = file.outcome, file.batches
        assert outcome.digest is not None

        def again() -> Iterator[pa.RecordBatch]:
            stream = file.source.stream(self._limits)
            yield from map(target.admit, self._rows(file, stream, target))
            if stream.digest() != outcome.digest:
                raise Conflict(f"{outcome.landed.key} changed while it was read: it is read again")

        batches = again if held is None else lambda: map(target.admit, held)
        return Load(outcome.digest, outcome.source, outcome.rows, batches)

    def _settle(self, files: Sequence[_File], found: dict[str, Result]) -> None:
        for file in files:
            outcome = file.outcome
            assert outcome.digest is not None
            made = found[outcome.digest]
            if isinstance(made, Invalid):
                self._fail(file, made)
                continue
            outcome.made_by, outcome.table_uuid = made.source, made.table_uuid
            outcome.snapshot_id = made.receipt.snapshot_id
            own = not made.receipt.replayed and made.source == outcome.source
            outcome.status = "committed" if own else "duplicate"

    def _fail(self, file: _File, error: Exception) -> None:
        if file.outcome.error is None:
            self._refuse(file.source, file.destination, file.outcome, as_lake_error(error))

    def _refuse(
        self, source: LandedObject, destination: Destination | None, outcome: Outcome, error: LakeError
    ) -> None:
        """Bad input is kept aside and done with; anything else is for the message to bring again."""
        outcome.error, outcome.status = error, "failed"
        try:
            if isinstance(error, Gone):
                outcome.status = "gone"
            elif isinstance(error, Invalid):
                outcome.digest = outcome.digest or source.digest(self._limits)
                outcome.report = source.quarantine(destination, outcome.digest, error)
                outcome.status = "quarantined"
        except LakeError as second:
            outcome.error = second

    def _note(self, outcome: Outcome) -> None:
        """One small PUT. If it fails so does the file: its message comes again and finds the rows where they are."""
        try:
            record = outcome.record()
            if record is not None and outcome.status == "failed":
                self._ledger.note_failure(record)
            if record is not None and (outcome.status != "failed" or outcome.digest is not None):
                self._ledger.note(record)
        except LakeError as error:
            outcome.error, outcome.status = outcome.error or error, "failed"
