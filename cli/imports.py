"""Imports files on this machine into a table, in bounded memory. A file is imported again only if it has changed.

Small files share a commit, a large one has its own. After a crash, running the same command again completes the import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from catalog import Invalid, NotFound
from catalog.formats import CsvOptions, Inference, detect, unify
from catalog.ingest import CommitGroup, FileRows, ObjectVersion, Result, SourceVersions, append_large_file, source_id
from catalog.tables import Mode, Receipt, Tables, find_receipts, table_key
from cli.row_files import RowFile

SMALL_FILE_BYTES = 8 << 20
"""A file up to this size is read once, into memory, and shares a commit with others."""

Status = Literal["imported", "present", "refused"]
Progress = Callable[[str], None]


@dataclass
class Imported:
    """What became of one file. `present`: the table already has its rows."""

    file: str
    digest: str = ""
    status: Status = "refused"
    rows: int = 0
    snapshot_id: int | None = None
    error: str | None = None


class Import:
    """One import into one table. An error that is not a file's fault is raised; files committed before it stay."""

    def __init__(
        self, tables: Tables, name: str, progress: Progress, *, key: Sequence[str] = (), mode: Mode = "cow"
    ) -> None:
        self._tables, self._name, self._progress = tables, name, progress
        self._key, self._mode = list(key), mode
        self.created = False
        self._csv = CsvOptions()

    def run(self, files: Sequence[RowFile], *, upsert: bool) -> list[Imported]:
        """The outcomes, in the files' order. A faulty file changes nothing, and the others are imported."""
        outcomes = [Imported(file.path) for file in files]
        distinct: list[tuple[RowFile, Imported]] = []
        for number, (file, outcome) in enumerate(zip(files, outcomes, strict=True), 1):
            self._progress(f"{number} of {len(files)} digests")
            outcome.digest = file.digest()
            if any(other.identity == file.identity for other, _ in distinct):
                outcome.status = "present"  # the same file, named twice
            else:
                distinct.append((file, outcome))
        missing = self._prepare(distinct)
        self._upsert_key = tuple(self._key or table_key(self._tables.table_store.cached(self._name))) if upsert else ()
        if upsert and not self._upsert_key:
            raise Invalid(f"{self._name} has no key to upsert by: name one with --key", subject=self._name)
        self._append(missing)
        return outcomes

    def _prepare(self, files: list[tuple[RowFile, Imported]]) -> list[tuple[RowFile, Imported]]:
        """The files that the table does not have yet. Creates a missing table from the files' columns."""
        try:
            version = self._tables.table_store.load(self._name)
        except NotFound:
            accepted = self._create(files)
            self._hint = self._columns()
            return accepted
        self._hint = self._columns()
        missing = []
        for file, outcome in files:
            # Older releases used the digest as the commit token.
            token = self._version(file, outcome).unchanged_in(version) or outcome.digest
            receipts = find_receipts(version, [token], self._tables.table_store.io)
            if receipts:
                self._complete(outcome, receipts[token])
            else:
                missing.append((file, outcome))
        return missing

    def _version(self, file: RowFile, outcome: Imported) -> ObjectVersion:
        return ObjectVersion.of(f"file:{file.identity}", None, outcome.digest, outcome.digest, datetime.now(UTC))

    def _create(self, files: list[tuple[RowFile, Imported]]) -> list[tuple[RowFile, Imported]]:
        """Creates the table; returns the files whose columns have a common schema."""
        schemas, inference, accepted = list[pa.Schema](), Inference(), list[tuple[RowFile, Imported]]()
        for number, (file, outcome) in enumerate(files, 1):
            self._progress(f"columns of file {number} of {len(files)}")
            try:
                file_schemas, file_inference = file.infer()
                inferred = inference if file_inference is None else inference.add(file_inference)
                with file.faults_named():
                    unify(map(inferred.typed, [*schemas, *file_schemas]))
            except Invalid as error:
                outcome.error = error.message
                continue
            inference = inferred
            schemas += file_schemas
            accepted.append((file, outcome))
        if not accepted:
            reason = files[0][1].error or f"{self._name}: no file has columns to create it from"
            raise Invalid(reason, subject=self._name)
        self._csv = inference.with_order()
        self._tables.create(self._name, unify(map(inference.typed, schemas)), key=self._key, mode=self._mode)
        self.created = True
        return accepted

    def _columns(self) -> pa.Schema:
        return schema_to_pyarrow(self._tables.load(self._name).schema(), include_field_ids=False)

    def _append(self, files: Sequence[tuple[RowFile, Imported]]) -> None:
        group, grouped = CommitGroup(self._tables, self._name, key=self._upsert_key), dict[str, Imported]()
        for number, (file, outcome) in enumerate(files, 1):
            self._progress(f"file {number} of {len(files)}: {file.path}")
            if file.size > SMALL_FILE_BYTES:
                self._guarded(outcome, lambda file=file, outcome=outcome: self._append_large(file, outcome))  # type: ignore[misc]
                continue
            batches = self._guarded(outcome, lambda file=file: list(file.batches(self._hint, self._csv)))  # type: ignore[misc]
            if batches is None:
                continue
            rows = sum(batch.num_rows for batch in batches)
            file_rows = self._file_rows(file, outcome, rows, lambda batches=batches: iter(batches))  # type: ignore[misc]
            grouped[file_rows.token] = outcome
            self._apply_results(grouped, group.add(file_rows, sum(batch.nbytes for batch in batches)))
        self._apply_results(grouped, group.commit())

    def _apply_results(self, grouped: dict[str, Imported], results: dict[str, Result]) -> None:
        for token, result in results.items():
            outcome = grouped[token]
            if isinstance(result, Invalid):
                outcome.error = f"{outcome.file}: {result.message}"
            else:
                self._complete(outcome, result.receipt)

    def _file_rows(
        self, file: RowFile, outcome: Imported, rows: int, batches: Callable[[], Iterator[pa.RecordBatch]]
    ) -> FileRows:
        version = self._version(file, outcome)
        versions = SourceVersions(version, lambda version: iter(()), lambda: None, is_import=True)
        return FileRows(version.token, source_id(file.path, None), rows, batches, versions)

    def _append_large(self, file: RowFile, outcome: Imported) -> None:
        """Reads the file to count its rows and find its faults, and again to write. A Parquet file is read once."""
        rows = self._count(file)

        def batches() -> Iterator[pa.RecordBatch]:
            done = 0
            for batch in file.batches(self._hint, self._csv):
                yield batch
                done += batch.num_rows
                self._progress(f"{file.path}: {done:,} of {rows:,} rows")

        with file.faults_named():
            file_rows = self._file_rows(file, outcome, rows, batches)
            result = append_large_file(self._tables, self._name, file_rows, key=self._upsert_key)
            self._complete(outcome, result.receipt)

    def _count(self, file: RowFile) -> int:
        format_ = detect(file.name)
        if format_.kind == "parquet" and format_.codec is None:
            with file.open() as stream, file.faults_named():
                try:
                    return int(pq.ParquetFile(stream).metadata.num_rows)
                except (pa.ArrowException, OSError) as error:
                    raise Invalid(f"it is not a Parquet file, or is truncated: {error}") from None
        rows = 0
        for batch in file.batches(self._hint, self._csv):
            rows += batch.num_rows
            self._progress(f"{file.path}: {rows:,} rows read")
        return rows

    def _guarded(self, outcome: Imported, work: Callable[[], Any]) -> Any:
        """The result of the work; None if the file is at fault, and then the outcome has the error."""
        try:
            return work()
        except Invalid as error:
            outcome.error = error.message
            return None

    def _complete(self, outcome: Imported, receipt: Receipt) -> None:
        outcome.status = "present" if receipt.replayed else "imported"
        outcome.rows, outcome.snapshot_id = receipt.rows, receipt.snapshot_id
