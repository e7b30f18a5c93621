"""Commits the rows of files to a table: many small files in one commit, or one large file in pieces.

Each file has its own commit token. A token that the table already has adds nothing, however often its file is
delivered. With a key, rows replace the rows with the same key, unless those came with a newer version of the same
object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.manifest import DataFile

from catalog.core.errors import Invalid, NotFound
from catalog.formats import FileRejected
from catalog.ingest.ledger import Ledger
from catalog.ingest.object_versions import OBJECTS, ObjectVersion
from catalog.tables import (
    COMMIT_TOKEN,
    Delta,
    Receipt,
    Tables,
    TableVersion,
    WritePlanner,
    WrittenFiles,
    check_keys,
    check_rows,
    make_receipt,
    receipt_of,
    summary_value,
)

SOURCES = "strandline.sources"
"""Summary property: for each token, in the tokens' order, the source that it belongs to."""
# The size of a piece of a large file in Arrow's memory format; as Parquet it is about a quarter of that.
PIECE_BYTES = 64 << 20


@dataclass(frozen=True)
class SourceVersions:
    """The version that a file is, and access to the other versions of its object. `rows_of` reads the rows of a version
    by its id; `current` returns the id of the newest. `is_import`: a file on a user's machine, which is committed again
    only if its content has changed."""

    own: ObjectVersion
    rows_of: Callable[[str], Iterator[pa.RecordBatch]]
    current: Callable[[], str | None]
    is_import: bool = False


@dataclass(frozen=True)
class FileRows:
    """The rows of one file. `batches` may be called again, and returns the same rows each time. A file without
    `versions` counts as the newest version whenever it is committed."""

    token: str
    source: str
    rows: int
    batches: Callable[[], Iterator[pa.RecordBatch]]
    versions: SourceVersions | None = None


@dataclass(frozen=True)
class CommittedRows:
    """The receipt of a token, and the table's uuid."""

    receipt: Receipt
    table_uuid: str


Result = CommittedRows | Invalid


def append_files(
    tables: Tables, name: str, files: Sequence[FileRows], *, key: Sequence[str] = (), ledger: Ledger | None = None
) -> dict[str, Result]:
    """Commits the files that fit the table in one commit. Returns for each token what was committed, or why its rows do
    not fit.

    Holds all rows in memory. If two files have a row with the same key, the later file's row is committed. `ledger`
    knows tokens whose snapshots have expired; it is read only if the table has expired snapshots.
    """
    return _Append(tables, name, files, key, ledger, together=True).commit()


def append_large_file(
    tables: Tables, name: str, file: FileRows, *, key: Sequence[str] = (), ledger: Ledger | None = None
) -> CommittedRows:
    """Commits a large file on its own, with one data file for each piece. Memory: two pieces, and with a key all keys.
    Raises Invalid if a row does not fit: then nothing is visible, and the data files written so far are deleted."""
    result = _Append(tables, name, [file], key, ledger, together=False).commit()[file.token]
    if isinstance(result, Invalid):
        raise result
    return result


class _Append:
    """One commit of files to a table, planned again for each attempt."""

    def __init__(
        self,
        tables: Tables,
        name: str,
        files: Sequence[FileRows],
        key: Sequence[str],
        ledger: Ledger | None,
        *,
        together: bool,
    ) -> None:
        self._tables, self._name, self._key, self._together = tables, name, tuple(key), together
        self._ledger = ledger
        # A version that was delivered twice is committed once.
        self._files: dict[str, FileRows] = {}
        for file in files:
            self._files.setdefault(file.token, file)
        self._repeated = {} if key else _repeated_versions(files)
        for token in self._repeated:
            del self._files[token]
        self._tokens: dict[str, int] = {}
        self._properties: dict[str, str] = {}
        self._results: dict[str, Result] = {}
        self._ledger_results: dict[str, CommittedRows | None] = {}
        self._written = WrittenFiles()
        self._newer: dict[str, tuple[str, ...]] = {}
        self._keys: list[pa.Table] = []
        self._replaced_keys: list[pa.Table] = []

    def commit(self) -> dict[str, Result]:
        version, snapshot, delta = self._tables.committer.write(
            self._name, self._plan, tokens=self._tokens, properties=self._properties, commit_empty=True
        )
        for token, rows in self._tokens.items():
            receipt = make_receipt(version, snapshot, token, rows, delta)
            self._results[token] = CommittedRows(receipt, version.uuid)
        for token, earlier in self._repeated.items():
            result = self._results[earlier]
            self._results[token] = (
                replace(result, receipt=_replayed(result.receipt)) if isinstance(result, CommittedRows) else result
            )
        return self._results

    def _plan(self, planner: WritePlanner) -> Delta:
        """Plans one attempt from scratch: another process may have committed a token, or changed the schema."""
        earlier = self._committed_earlier(planner.version)
        pending = [file for token, file in self._files.items() if token not in earlier]
        self._newer = {file.token: self._newer_versions(planner.version, file) for file in pending}
        delta = self._written.reuse(planner, self._newer)
        if delta is None:
            self._results = dict(earlier)
            delta = self._write(planner, pending)
        if not (self._together and self._key):  # the files of an upsert hold rows of the version it was planned for
            self._written.keep(planner, self._newer, delta)
        accepted = [file for file in pending if file.token not in self._results]
        self._tokens.clear()
        self._tokens.update({file.token: file.rows for file in accepted})
        self._properties[SOURCES] = " ".join(file.source for file in accepted)
        versions = [file.versions.own.summary_entry() for file in accepted if file.versions]
        self._properties[OBJECTS] = " ".join(versions) if len(versions) == len(accepted) else ""
        return self._replace(planner, delta) if self._key and not self._together and accepted else delta

    def _committed_earlier(self, version: TableVersion) -> dict[str, CommittedRows]:
        """The tokens that are committed already, by the table's snapshots; if some have expired, also by the ledger,
        with one GET for each token."""
        receipts = receipt_of(version, self._files)
        committed = {token: CommittedRows(receipt, version.uuid) for token, receipt in receipts.items()}
        committed |= self._unchanged(version, self._files.keys() - committed.keys())
        committed |= self._committed_by_digest(version, self._files.keys() - committed.keys())
        if self._ledger is not None and _has_expired_snapshots(version):
            for token in self._files.keys() - committed.keys():
                if token not in self._ledger_results:
                    self._ledger_results[token] = self._find_in_ledger(self._ledger, version, self._files[token])
                if (result := self._ledger_results[token]) is not None:
                    committed[token] = result
        return committed

    def _unchanged(self, version: TableVersion, tokens: Iterable[str]) -> dict[str, CommittedRows]:
        """The tokens of objects that were put again with the same bytes: without a key, their rows would be doubled."""
        earlier = {
            token: before
            for token in tokens
            if (versions := self._files[token].versions)
            and (versions.is_import or not self._key)
            and (before := versions.own.unchanged_in(version))
        }
        receipts = receipt_of(version, earlier.values())
        return {
            token: CommittedRows(replace(receipts[before], token=token), version.uuid)
            for token, before in earlier.items()
        }

    def _committed_by_digest(self, version: TableVersion, tokens: Iterable[str]) -> dict[str, CommittedRows]:
        """The tokens that snapshots of an earlier release carry, in which a file's digest was its token; the source
        must be the same."""
        committed = dict[str, CommittedRows]()
        for file in (self._files[token] for token in tokens):
            digest = file.versions.own.digest if file.versions else ""
            for receipt in receipt_of(version, [digest] if digest else []).values():
                snapshot = version.metadata.snapshot_by_id(receipt.snapshot_id or 0)
                sources = zip(
                    summary_value(snapshot, COMMIT_TOKEN).split(),
                    summary_value(snapshot, SOURCES).split(),
                    strict=False,
                )
                if (digest, file.source) in sources:
                    committed[file.token] = CommittedRows(replace(receipt, token=file.token), version.uuid)
        return committed

    def _find_in_ledger(self, ledger: Ledger, version: TableVersion, file: FileRows) -> CommittedRows | None:
        if file.versions is None:
            return None
        record = ledger.find_committed(file.versions.own.digest, file.source, file.token, version.uuid)
        if record is None:
            return None
        receipt = make_receipt(version, None, file.token, record.rows)
        return CommittedRows(replace(receipt, snapshot_id=record.snapshot_id, replayed=True), version.uuid)

    def _newer_versions(self, version: TableVersion, file: FileRows) -> tuple[str, ...]:
        """The ids of newer versions of the file's object, whose rows must not be replaced. Decided after the table was
        loaded: if a newer version is committed later, this attempt loses the race and is planned again."""
        if not self._key or file.versions is None:
            return ()
        newer = set(file.versions.own.newer_in(version))
        if _has_expired_snapshots(version):  # the current version is newer than this one, committed or not
            current = file.versions.current()
            newer |= {current} - {None, file.versions.own.version}  # type: ignore[arg-type]
        return tuple(sorted(newer))

    def _without_newer(self, schema: object, rows: pa.Table, file: FileRows) -> pa.Table:
        """The rows whose keys are in no newer version of the file's object."""
        if file.versions is None:
            return rows
        for version in self._newer[file.token]:
            try:
                newer = _checked(schema, list(file.versions.rows_of(version)), 0, self._name)
            except NotFound:
                reason = "a newer version of the file is in the table, and its object is deleted, so the rows that it"
                raise FileRejected(f"{reason} replaced are unknown: upload this version again to apply it") from None
            except Invalid:
                continue  # it was rejected, and committed no rows
            rows = _without_keys(rows, newer.select(list(self._key)), self._key)
        return rows

    def _write(self, planner: WritePlanner, pending: Sequence[FileRows]) -> Delta:
        schema, tables, data_files = planner.version.schema, list[pa.Table](), list[DataFile]()
        for file in pending:
            try:
                if self._together:
                    rows = _checked(schema, list(file.batches()), 0, self._name, self._key)
                    tables.append(self._without_newer(schema, rows, file) if self._key else rows)
                else:
                    data_files += self._write_pieces(planner, file)
            except Invalid as error:
                if not self._together:
                    raise  # some pieces may be written: the attempt fails, and they are deleted
                self._results[file.token] = error
        if tables and self._key:
            return planner.upsert(_last_of_each(pa.concat_tables(tables), self._key), self._key)
        if tables:
            data_files += planner.files.write(pa.concat_tables(tables), planner.io)
        count = sum(file.rows for file in pending if file.token not in self._results)
        return Delta(added=tuple(data_files), rows=count, mode="append")

    def _write_pieces(self, planner: WritePlanner, file: FileRows) -> list[DataFile]:
        data_files, piece, first, size = list[DataFile](), list[pa.RecordBatch](), 0, 0
        self._keys, self._replaced_keys = [], []

        def write() -> None:
            rows = _checked(planner.version.schema, piece, first, self._name)
            if self._key:
                self._keys.append(rows.select(list(self._key)))
                rows = self._without_newer(planner.version.schema, rows, file)
                self._replaced_keys.append(rows.select(list(self._key)))
            data_files.extend(planner.files.write(rows, planner.io))
            planner.io.wait()  # one piece in flight instead of IN_FLIGHT_BYTES

        for batch in file.batches():
            piece.append(batch)
            size += padded_bytes(batch, len(planner.version.schema.fields))
            if size >= PIECE_BYTES:
                write()
                first, size = first + sum(part.num_rows for part in piece), 0
                piece.clear()
        if piece:
            write()
        if self._key:
            with _positions(self._name, 0):
                check_keys(pa.concat_tables(self._keys), self._key, table=self._name)
        return data_files

    def _replace(self, planner: WritePlanner, new: Delta) -> Delta:
        """The new data files, and deletes for the rows of the planned version that have their keys."""
        old = planner.delete_keys(pa.concat_tables(self._replaced_keys), self._key)
        return replace(old, added=(*new.added, *old.added), rows=new.rows)


def padded_bytes(batch: pa.RecordBatch, columns: int) -> int:
    """The size of the batch in a table of so many columns: those that it lacks are nulls, which take memory too."""
    return int(batch.nbytes) + 8 * batch.num_rows * max(columns - batch.num_columns, 0)


def _repeated_versions(files: Sequence[FileRows]) -> dict[str, str]:
    """For objects with several versions among the files: the token of a version -> that of the first of the versions
    directly before it with the same bytes."""
    repeated, last = dict[str, str](), dict[str, ObjectVersion]()
    versions = {file.token: file.versions.own for file in files if file.versions}
    for token, own in sorted(versions.items(), key=lambda item: (item[1].modified_ms, item[1].sequencer or "")):
        before = last.get(own.object_id)
        if before is not None and before.digest == own.digest:
            repeated[token] = repeated.get(before.token, before.token)
        last[own.object_id] = own
    return repeated


def _replayed(receipt: Receipt) -> Receipt:
    return replace(receipt, replayed=True)


@contextmanager
def _positions(name: str, first: int) -> Iterator[None]:
    """Within the block, Invalid becomes FileRejected; `first` is the number of the first row in the file, from 0."""
    try:
        yield
    except Invalid as error:
        row = None if error.row is None else first + error.row
        raise FileRejected(f"{error.reason} ({name})", row=row, column=error.column) from None


def _checked(
    schema: object, batches: Sequence[pa.RecordBatch], first: int, name: str, key: Sequence[str] = ()
) -> pa.Table:
    """The rows in the table's schema. Raises FileRejected with the row's number in the file, from 0."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise FileRejected(f"a column has different types in different rows: {error}") from None
    with _positions(name, first):
        rows = check_rows(schema, joined, table=name)  # type: ignore[arg-type]
        if key:
            check_keys(rows, key, table=name)
    return rows


def _last_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key, in their order."""
    numbers = pa.array(range(rows.num_rows), pa.int64())
    last = rows.select(list(key)).append_column("__row", numbers).group_by(list(key)).aggregate([("__row", "max")])
    return rows if last.num_rows == rows.num_rows else rows.take(last["__row_max"].combine_chunks().sort())


def _without_keys(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows that have none of the keys, in their order."""
    numbered = rows.select(list(key)).append_column("__row", pa.array(range(rows.num_rows), pa.int64()))
    remaining = numbered.join(keys.group_by(list(key)).aggregate([]), list(key), join_type="left anti")
    return rows if remaining.num_rows == rows.num_rows else rows.take(remaining["__row"].combine_chunks().sort())


def _has_expired_snapshots(version: TableVersion) -> bool:
    """Whether snapshots have expired, and their tokens with them: each snapshot took a sequence number."""
    last = getattr(version.metadata, "last_sequence_number", None)  # format version 1 has none: assume so
    return last is None or len(version.metadata.snapshots) < int(last)
