"""Ingestion, start to end: survey each file, commit a table's files together, keep aside what is refused.

The digest of a file's bytes is its token in the table, so a file that comes twice, at once or under another key makes
its rows once; and a crash anywhere is mended by running again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io.pyarrow import schema_to_pyarrow

from catalog.errors import Conflict, Invalid, LakeError, NotFound, as_lake_error
from catalog.ingest.appends import Load, append, append_in_pieces
from catalog.ingest.objects import Gone, LandedObject
from catalog.ingest.outcomes import Outcome, tell
from catalog.logs import correlation
from catalog.pipeline.formats import detect, read_rows, unify
from catalog.pipeline.landing import Destination, Landed, parse_key
from catalog.pipeline.limits import Limits, Refused
from catalog.tables.answers import explained
from catalog.tables.commits import Receipt
from catalog.tables.manager import Tables

log = logging.getLogger(__name__)

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


class Ingest:
    """Ingests files into tables. Safe to run in many processes at once; one `run` uses a few threads."""

    def __init__(self, s3: Any, tables: Tables, limits: Limits | None = None) -> None:
        self._s3, self._tables, self._limits = s3, tables, limits or Limits()

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
            by_table.setdefault(destination.full_table, []).append(_File(source, destination, outcome))
        for name, wanted in by_table.items():
            self._ingest(name, wanted)
        for outcome in outcomes:
            tell(outcome)
        return outcomes

    def _ingest(self, name: str, files: list[_File]) -> None:
        try:
            self._ingest_all(name, files)
        except Exception as error:
            # The table's fault, not one file's: those not yet dealt with share it.
            for file in files:
                if file.outcome.status == "failed":
                    self._fail(file, error)

    def _ingest_all(self, name: str, files: list[_File]) -> None:
        """One table's files: a few are read at a time, and committed together unless they are too many to hold."""
        known = self._schema(name)
        pending: list[_File] = []
        with ThreadPoolExecutor(READERS, thread_name_prefix="ingest") as pool:
            for start in range(0, len(files), READERS):
                part = files[start : start + READERS]
                list(pool.map(self._survey, part, [known] * len(part)))
                pending += [file for file in part if file.outcome.error is None]
                if sum(file.held for file in pending) >= GROUP_BYTES:
                    known = self._commit(name, pending, known)
                    pending = []
        self._commit(name, pending, known)

    def _survey(self, file: _File, hint: pa.Schema | None) -> None:
        """Reads the file from end to end: its digest, its columns, its rows if they can be held, or its fault."""
        file.schemas, file.batches, file.held, file.outcome.rows = [], [], 0, 0
        with correlation(file.outcome.landed.correlation_id):
            stream = None
            try:
                stream = file.source.stream(self._limits)
                for batch in self._rows(file, stream, hint):
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

    def _rows(self, file: _File, stream: Any, hint: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        name, found = file.destination.name, detect(file.destination.name)
        large = found.kind == "parquet" and found.codec is None and file.source.size > HOLD_BYTES
        return read_rows(file.source.ranges() if large else stream, name, self._limits, hint)

    def _commit(self, name: str, files: list[_File], known: pa.Schema | None) -> pa.Schema | None:
        """Held files in one commit, large ones each in its own. A table that is not there yet is made first."""
        if known is None:
            known, files = self._create(name, files)
        held = [file for file in files if file.batches is not None]
        if known is not None and held:
            # One id for the commit's message: the first file's. Each file's own line names the snapshot.
            with correlation(held[0].outcome.landed.correlation_id):
                self._settle(held, append(self._tables, name, [self._load(file, known) for file in held]))
            for file in held:
                file.batches = []
        for file in files:
            if known is not None and file not in held:
                self._commit_large(name, file, known)
        return known

    def _commit_large(self, name: str, file: _File, known: pa.Schema) -> None:
        with correlation(file.outcome.landed.correlation_id):
            try:
                load = self._load(file, known)
                self._settle([file], {load.token: append_in_pieces(self._tables, name, load)})
            except Exception as error:
                self._fail(file, error)

    def _load(self, file: _File, known: pa.Schema) -> Load:
        outcome, held = file.outcome, file.batches
        assert outcome.digest is not None

        def again() -> Iterator[pa.RecordBatch]:
            stream = file.source.stream(self._limits)
            yield from self._rows(file, stream, known)
            if stream.digest() != outcome.digest:
                raise Conflict(f"{outcome.landed.key} changed while it was read: it is read again")

        return Load(outcome.digest, outcome.rows, again if held is None else lambda: iter(held))

    def _settle(self, files: Sequence[_File], found: dict[str, Receipt | Invalid]) -> None:
        seen = set[str]()
        for file in files:
            outcome = file.outcome
            assert outcome.digest is not None
            receipt = found[outcome.digest]
            if isinstance(receipt, Invalid):
                self._fail(file, receipt)
                continue
            outcome.status = "duplicate" if receipt.replayed or outcome.digest in seen else "committed"
            outcome.snapshot_id = receipt.snapshot_id
            seen.add(outcome.digest)

    def _schema(self, name: str) -> pa.Schema | None:
        """The table's columns; None if there is no such table yet. Invalid if there is no such namespace either."""
        try:
            return schema_to_pyarrow(self._tables.load(name).schema(), include_field_ids=False)
        except NotFound:
            namespace = name.partition(".")[0]
            with explained(namespace):
                try:
                    self._tables.catalogue.catalog.load_namespace_properties(namespace)
                except NoSuchNamespaceError:
                    raise Refused(f"there is no namespace {namespace!r}: create it first") from None
            return None

    def _create(self, name: str, files: list[_File]) -> tuple[pa.Schema | None, list[_File]]:
        """Makes the table from the columns of its first files; those read before are read as the table has it."""
        fitting, schemas = list[_File](), list[pa.Schema]()
        loose = all(detect(file.destination.name).kind in ("csv", "tsv") for file in files)
        for file in files:
            try:
                unify([*schemas, *file.schemas], loose=loose)
            except Invalid as error:
                self._fail(file, error)
                continue
            schemas += file.schemas
            fitting.append(file)
        if not fitting:
            return None, []
        try:
            self._tables.create(name, unify(schemas, loose=loose))
        except Conflict:
            log.info("another process created the table", extra={"table": name})
        except (TypeError, ValueError) as error:
            raise Refused(f"its columns make no table: {error}") from None
        known = self._schema(name)
        assert known is not None
        for file in fitting:
            if any(found not in known for schema in file.schemas for found in schema):
                self._survey(file, known)
        return known, [file for file in fitting if file.outcome.error is None]

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
