"""Importing: files on this machine into a table, in bounded memory. A file's digest is its token, so it goes in once.

Small files share a commit, a large one has its own. A crash anywhere is mended by running the same command again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from catalog.errors import Invalid, NotFound
from catalog.ingest.appends import Load, append, append_in_pieces
from catalog.ingest.ledger import source_id
from catalog.pipeline.formats import detect, unify
from catalog.tables.commits import Receipt, receipt_of
from catalog.tables.manager import Tables
from catalog.tables.modes import Mode
from catalog.tables.requests import key_of
from cli.row_files import RowFile

HOLD_BYTES = 8 << 20
"""Of a file: a smaller one is read once and committed together with others."""
GROUP_BYTES = 64 << 20

Status = Literal["imported", "present", "refused"]
Tell = Callable[[str], None]


@dataclass
class Imported:
    """What became of one file. `present`: the table had it already."""

    file: str
    digest: str = ""
    status: Status = "refused"
    rows: int = 0
    snapshot_id: int | None = None
    error: str | None = None


class Import:
    """One run into one table. What is not the files' fault is raised: the files before it are in, and stay so."""

    def __init__(self, tables: Tables, name: str, tell: Tell, *, key: Sequence[str] = (), mode: Mode = "cow") -> None:
        self._tables, self._name, self._tell = tables, name, tell
        self._key, self._mode = list(key), mode
        self.created = False

    def run(self, files: Sequence[RowFile], *, upsert: bool) -> list[Imported]:
        """In the files' order. A faulty file changes nothing and keeps no other one out."""
        found = [Imported(file.path) for file in files]
        fresh: list[tuple[RowFile, Imported]] = []
        for number, (file, outcome) in enumerate(zip(files, found, strict=True), 1):
            self._tell(f"{number} of {len(files)} digests")
            outcome.digest = file.digest()
            if any(other.digest == outcome.digest for _, other in fresh):
                outcome.status = "present"  # the same bytes under another name
            else:
                fresh.append((file, outcome))
        fresh = self._prepare(fresh)
        self._by = tuple(self._key or key_of(self._tables.catalogue.known(self._name))) if upsert else ()
        if upsert and not self._by:
            raise Invalid(f"{self._name} has no key to upsert by: name one with --key", subject=self._name)
        self._append(fresh)
        return found

    def _prepare(self, fresh: list[tuple[RowFile, Imported]]) -> list[tuple[RowFile, Imported]]:
        """Those that the table does not have yet. If there is no table, it is made from their columns."""
        try:
            version = self._tables.catalogue.load(self._name)
        except NotFound:
            fitting = self._create(fresh)
            self._hint = self._columns()
            return fitting
        self._hint = self._columns()
        there = receipt_of(version, [outcome.digest for _, outcome in fresh])
        for _, outcome in fresh:
            if outcome.digest in there:
                self._settle(outcome, there[outcome.digest])
        return [(file, outcome) for file, outcome in fresh if outcome.digest not in there]

    def _create(self, fresh: list[tuple[RowFile, Imported]]) -> list[tuple[RowFile, Imported]]:
        schemas: list[pa.Schema] = []
        loose = all(detect(file.name).kind in ("csv", "tsv") for file, _ in fresh)
        fitting = []
        for number, (file, outcome) in enumerate(fresh, 1):
            self._tell(f"columns of file {number} of {len(fresh)}")
            try:
                schema = file.schema()
                with file.faults_named():
                    unify([*schemas, schema], loose=loose)
            except Invalid as error:
                outcome.error = error.message
                continue
            schemas.append(schema)
            fitting.append((file, outcome))
        if not fitting:
            raise Invalid(fresh[0][1].error or f"{self._name}: there is nothing to make it from", subject=self._name)
        self._tables.create(self._name, unify(schemas, loose=loose), key=self._key, mode=self._mode)
        self.created = True
        return fitting

    def _columns(self) -> pa.Schema:
        return schema_to_pyarrow(self._tables.load(self._name).schema(), include_field_ids=False)

    def _append(self, fresh: Sequence[tuple[RowFile, Imported]]) -> None:
        group: list[tuple[Load, Imported]] = []
        size = 0
        for number, (file, outcome) in enumerate(fresh, 1):
            self._tell(f"file {number} of {len(fresh)}: {file.path}")
            if file.size > HOLD_BYTES:
                self._guarded(outcome, lambda file=file, outcome=outcome: self._append_large(file, outcome))  # type: ignore[misc]
                continue
            held = self._guarded(outcome, lambda file=file: list(file.batches(self._hint)))  # type: ignore[misc]
            if held is None:
                continue
            rows = sum(batch.num_rows for batch in held)
            group.append((self._load(file, outcome, rows, lambda held=held: iter(held)), outcome))  # type: ignore[misc]
            size += sum(batch.nbytes for batch in held)
            if size >= GROUP_BYTES:
                self._commit(group)
                group, size = [], 0
        if group:
            self._commit(group)

    def _commit(self, group: Sequence[tuple[Load, Imported]]) -> None:
        answers = append(self._tables, self._name, [load for load, _ in group], key=self._by)
        for load, outcome in group:
            answer = answers[load.token]
            if isinstance(answer, Invalid):
                outcome.error = f"{outcome.file}: {answer.message}"
            else:
                self._settle(outcome, answer.receipt)

    def _load(
        self, file: RowFile, outcome: Imported, rows: int, batches: Callable[[], Iterator[pa.RecordBatch]]
    ) -> Load:
        return Load(token=outcome.digest, source=source_id(file.path, None), rows=rows, batches=batches)

    def _append_large(self, file: RowFile, outcome: Imported) -> None:
        """Read twice, unless it is Parquet: to count its rows and find its faults before a byte is written."""
        rows = self._count(file)

        def batches() -> Iterator[pa.RecordBatch]:
            done = 0
            for batch in file.batches(self._hint):
                yield batch
                done += batch.num_rows
                self._tell(f"{file.path}: {done:,} of {rows:,} rows")

        with file.faults_named():
            load = self._load(file, outcome, rows, batches)
            self._settle(outcome, append_in_pieces(self._tables, self._name, load, key=self._by).receipt)

    def _count(self, file: RowFile) -> int:
        found = detect(file.name)
        if found.kind == "parquet" and found.codec is None:
            with file.open() as stream, file.faults_named():
                try:
                    return int(pq.ParquetFile(stream).metadata.num_rows)
                except (pa.ArrowException, OSError) as error:
                    raise Invalid(f"it is no Parquet file, or is cut off: {error}") from None
        rows = 0
        for batch in file.batches(self._hint):
            rows += batch.num_rows
            self._tell(f"{file.path}: {rows:,} rows read")
        return rows

    def _guarded(self, outcome: Imported, work: Callable[[], Any]) -> Any:
        """What the work gives; None if the file is at fault, which is kept with its outcome."""
        try:
            return work()
        except Invalid as error:
            outcome.error = error.message
            return None

    def _settle(self, outcome: Imported, receipt: Receipt) -> None:
        outcome.status = "present" if receipt.replayed else "imported"
        outcome.rows, outcome.snapshot_id = receipt.rows, receipt.snapshot_id
