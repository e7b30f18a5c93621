"""Plans writes: rows or a filter in, a delta out. A plan reads one version of the table and nothing newer.

If its commit is lost, the plan is made again from the new version. So when two writers upsert the same new key, one
row remains: the second plan finds the row of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.table.refs import MAIN_BRANCH

from catalog.iceberg import CommitIO, FileReader, LiveFiles, ManifestReader, cast_column, filter_rows
from catalog.tables.addresses import AddressedChange, Addresses
from catalog.tables.delta import Delta
from catalog.tables.file_writer import FileWriter
from catalog.tables.glue_store import TableVersion
from catalog.tables.matching import FilterMatcher, KeyMatcher, MatchedRows, RowMatcher, match_rows
from catalog.tables.write_modes import Mode, WriteProfile, choose

MODE_PROPERTY = "strandline.mode"
KEY_PROPERTY = "strandline.key"
UNIT_PROPERTY = "strandline.unit"
"""Names the column that identifies what a row describes. Of several rows for one unit the newest counts, by the
sequence number of its file: so only a compaction that removes the others first may merge files."""


@dataclass(frozen=True)
class WritePlanner:
    """Plans writes against one version of a table, on one branch."""

    version: TableVersion
    io: CommitIO
    manifests: ManifestReader
    branch: str = MAIN_BRANCH
    reads_per_write: float = 0.0

    @cached_property
    def files(self) -> FileWriter:
        return FileWriter(self.version)

    def insert(self, rows: pa.Table) -> Delta:
        return Delta(added=tuple(self.files.write(rows, self.io)), rows=rows.num_rows, mode="append")

    def upsert(self, rows: pa.Table, key: Sequence[str]) -> Delta:
        """Adds the rows, and deletes existing rows with their keys. `cow` rewrites only files that have such a key."""
        return self._replace(KeyMatcher(self.version, rows, key), rows)

    def delete(self, where: str | BooleanExpression) -> Delta:
        return self._replace(FilterMatcher(self.version, where), None)

    def delete_keys(self, keys: pa.Table, key: Sequence[str]) -> Delta:
        return self._replace(KeyMatcher(self.version, keys, key), None)

    def replace_keys(self, keys: pa.Table, key: Sequence[str], rows: pa.Table | None) -> Delta:
        """Replaces all rows that have one of the keys by `rows`, in one delta; a key without a row is deleted."""
        return self._replace(KeyMatcher(self.version, keys, key), rows)

    def delete_rows(self, matches: Sequence[MatchedRows], reason: str) -> Delta:
        """Deletes exactly these rows, by position in every mode, so that no other row moves to a new file."""
        added, removed = self._mark([match for match in matches if not match.is_whole_file], None)
        removed += _entries([match for match in matches if match.is_whole_file])
        matched = sum(len(match.positions) for match in matches)
        return Delta(tuple(added), tuple(removed), matched=matched, mode="mor", reason=reason)

    def replace_addressed(self, changes: Sequence[AddressedChange], inserted: pa.Table | None = None) -> Delta:
        """Deletes the rows at the addresses of each change; those with new values are written again, with all other
        columns as they are stored. Adds the inserted rows in the same delta. No row is in two changes."""
        live, reader = self._live(), FileReader(self.version.metadata, self.io)
        name, schema = self.version.name, self.version.schema
        matches = Addresses.union([change.addresses for change in changes]).match(live.data, reader, name)
        rows = [] if inserted is None else [inserted]
        for addresses, updates in changes:
            if updates is not None and len(addresses):
                rows.append(addresses.updated(addresses.match(live.data, reader, name), reader, schema, updates))
        target = schema_to_pyarrow(schema, include_field_ids=False)
        new = pa.concat_tables([cast_rows(part, target) for part in rows]) if rows else None
        return self._replace_matches(matches, new if new is not None and new.num_rows else None, reader)

    def _live(self) -> LiveFiles:
        return LiveFiles.of(self.io, self.manifests, self.version.head(self.branch), self.version.name)

    def _replace(self, matcher: RowMatcher, rows: pa.Table | None) -> Delta:
        live, reader = self._live(), FileReader(self.version.metadata, self.io)
        return self._replace_matches(list(match_rows(matcher, self.version, reader, live.data)), rows, reader)

    def _replace_matches(self, matches: Sequence[MatchedRows], rows: pa.Table | None, reader: FileReader) -> Delta:
        new = rows.num_rows if rows is not None else 0
        if not matches:
            inserted = tuple(self.files.write(rows, self.io)) if rows is not None else ()
            return Delta(added=inserted, rows=new, mode="append", reason="no existing row is touched")
        matched = sum(len(match.positions) for match in matches)
        choice = choose(self.mode, _profile(matches, self.reads_per_write))
        # Files that lose every row are removed in either mode, and nothing is written for them.
        partial = [match for match in matches if not match.is_whole_file]
        if choice.mode == "cow":
            added, removed = self._rewrite(partial, rows, reader)
        else:
            added, removed = self._mark(partial, rows)
        removed += _entries([match for match in matches if match.is_whole_file])
        return Delta(tuple(added), tuple(removed), new, matched, choice.mode, choice.reason)

    @property
    def mode(self) -> Mode:
        mode = self.version.properties.get(MODE_PROPERTY, "cow")
        return mode if mode in ("mor", "hybrid") else "cow"  # type: ignore[return-value]

    def _mark(
        self, matches: Sequence[MatchedRows], rows: pa.Table | None
    ) -> tuple[list[DataFile], list[ManifestEntry]]:
        """Merge-on-read: writes the new rows, and for each file one delete file with all its deleted positions.

        It replaces the file's previous one, so reading a file costs at most one more request, however often it is
        touched.
        """
        added = self.files.write(rows, self.io) if rows is not None else []
        removed: list[ManifestEntry] = []
        for match in matches:
            positions = np.concatenate([np.flatnonzero(~match.alive), match.positions])
            added.append(self.files.write_deletes(match.live.file, positions, self.io))
            removed += match.live.own
        return added, removed

    def _rewrite(
        self, matches: Sequence[MatchedRows], rows: pa.Table | None, reader: FileReader
    ) -> tuple[list[DataFile], list[ManifestEntry]]:
        """Copy-on-write: writes the remaining rows of the touched files, and the new rows, as new files.

        Memory: one file at a time, and remaining rows until they make a file of target size.
        """
        files, target = self.files, schema_to_pyarrow(self.version.schema, include_field_ids=False)
        pending = [rows] if rows is not None else []
        added: list[DataFile] = []
        for match in matches:
            remaining = match.alive.copy()
            remaining[match.positions] = False
            pending.append(cast_rows(filter_rows(reader.read(match.live.file, self.version.schema), remaining), target))
            if sum(part.nbytes for part in pending) >= files.target_bytes:
                added += files.write(pa.concat_tables(pending), self.io)
                pending = []
        if pending:
            added += files.write(pa.concat_tables(pending), self.io)
        return added, _entries(matches)


def cast_rows(rows: pa.Table, target: pa.Schema) -> pa.Table:
    """The rows in exactly the table's Arrow types: older files may have narrower ones."""
    return pa.Table.from_arrays([cast_column(rows[f.name], f.type) for f in target], schema=target)


def _entries(matches: Iterable[MatchedRows]) -> list[ManifestEntry]:
    """The data files of the matches, and the delete files that apply to them alone."""
    return [entry for match in matches for entry in (match.live.entry, *match.live.own)]


def _profile(matches: Sequence[MatchedRows], reads_per_write: float) -> WriteProfile:
    return WriteProfile(
        touched_rows=sum(len(match.positions) for match in matches),
        file_rows=sum(match.live.file.record_count for match in matches),
        file_bytes=sum(match.live.file.file_size_in_bytes for match in matches),
        pending_deletes=sum(match.live.deleted for match in matches),
        reads_per_write=reads_per_write,
    )
