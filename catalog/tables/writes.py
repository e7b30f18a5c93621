"""Writes, planned: rows or a filter in, a delta out. Plans read the version they are given and nothing newer.

A plan that lost its race is thrown away and made again from the new version; that is why an upsert of a new key
by two writers leaves one row: the second plan finds the first one's.
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

from catalog.tables.deltas import Delta
from catalog.tables.fileio import CommitIO
from catalog.tables.files import FileWriter
from catalog.tables.live import FileReader, LiveFile, LiveFiles, column_like, take
from catalog.tables.manifests import ManifestReader
from catalog.tables.matching import FilterQuestion, KeyQuestion, Question, Touched, touched
from catalog.tables.modes import Mode, Write, choose
from catalog.tables.versions import Version

MODE = "strandline.mode"
KEY = "strandline.key"


@dataclass(frozen=True)
class Planner:
    """Plans writes against one version of a table, on one branch."""

    version: Version
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
        """New rows for every key given, and the old ones gone. `cow` opens files with a touched key only."""
        return self._replace(KeyQuestion(self.version, rows, key), rows)

    def delete(self, where: str | BooleanExpression) -> Delta:
        return self._replace(FilterQuestion(self.version, where), None)

    def delete_keys(self, keys: pa.Table, key: Sequence[str]) -> Delta:
        return self._replace(KeyQuestion(self.version, keys, key), None)

    def replace_keys(self, keys: pa.Table, key: Sequence[str], rows: pa.Table | None) -> Delta:
        """The rows instead of all that bear one of the keys, in one delta; a key without a row is deleted."""
        return self._replace(KeyQuestion(self.version, keys, key), rows)

    def delete_rows(self, found: Sequence[Touched], reason: str) -> Delta:
        """Exactly these rows, whatever the table's mode: marked, so that no row that stays gets a newer file."""
        whole = [item for item in found if item.whole]
        reader = FileReader(self.version.metadata, self.io)
        made, removed = self._mark([item for item in found if not item.whole], None, reader)
        gone = removed + [entry for item in whole for entry in (item.live.entry, *item.live.own)]
        matched = sum(len(item.positions) for item in found)
        return Delta(tuple(made), tuple(gone), matched=matched, mode="mor", reason=reason)

    def _replace(self, question: Question, rows: pa.Table | None) -> Delta:
        version = self.version
        live = LiveFiles.of(self.io, self.manifests, version.head(self.branch), version.name)
        reader = FileReader(version.metadata, self.io)
        found = list(touched(question, version, reader, live.data))
        new = rows.num_rows if rows is not None else 0
        if not found:
            added = tuple(self.files.write(rows, self.io)) if rows is not None else ()
            return Delta(added=added, rows=new, mode="append", reason="no existing row is touched")
        matched = sum(len(item.positions) for item in found)
        choice = choose(self.mode, _measured(found, self.reads_per_write))
        # Files that lose every row are dropped in either mode: there is nothing to write.
        whole = [item for item in found if item.whole]
        partial = [item for item in found if not item.whole]
        merge = self._rewrite if choice.mode == "cow" else self._mark
        made, removed = merge(partial, rows, reader)
        gone = removed + [entry for item in whole for entry in (item.live.entry, *item.live.own)]
        return Delta(tuple(made), tuple(gone), new, matched, choice.mode, choice.reason)

    @property
    def mode(self) -> Mode:
        found = self.version.properties.get(MODE, "cow")
        return found if found in ("mor", "hybrid") else "cow"  # type: ignore[return-value]

    def _mark(
        self, found: Sequence[Touched], rows: pa.Table | None, reader: FileReader
    ) -> tuple[list[DataFile], list[ManifestEntry]]:
        """Merge-on-read: each file gets one delete file with all its deleted positions, old and new.

        So a file never has more than one of ours, however often it is touched, and reading it costs one more
        request at most.
        """
        added = self.files.write(rows, self.io) if rows is not None else []
        removed: list[ManifestEntry] = []
        for item in found:
            positions = np.concatenate([np.flatnonzero(~item.alive), item.positions])
            added.append(self.files.write_deletes(item.live.file, positions, self.io))
            removed += item.live.own
        return added, removed

    def _rewrite(
        self, found: Sequence[Touched], rows: pa.Table | None, reader: FileReader
    ) -> tuple[list[DataFile], list[ManifestEntry]]:
        """Copy-on-write: what remains of the touched files, and the new rows, as new files.

        One file is in memory at a time; small remains are put together until they make a file of target size.
        """
        files, target = self.files, schema_to_pyarrow(self.version.schema, include_field_ids=False)
        pool = [rows] if rows is not None else []
        added: list[DataFile] = []
        for item in found:
            survivors = item.alive.copy()
            survivors[item.positions] = False
            pool.append(shaped(take(reader.read(item.live.file, self.version.schema), survivors), target))
            if sum(part.nbytes for part in pool) >= files.target_bytes:
                added += files.write(pa.concat_tables(pool), self.io)
                pool = []
        if pool:
            added += files.write(pa.concat_tables(pool), self.io)
        return added, [entry for item in found for entry in (item.live.entry, *item.live.own)]


def shaped(rows: pa.Table, target: pa.Schema) -> pa.Table:
    """The same rows in exactly the table's Arrow types; readers may give narrower ones for older files."""
    return pa.Table.from_arrays([column_like(rows[f.name], f.type) for f in target], schema=target)


def _measured(found: Sequence[Touched], reads_per_write: float) -> Write:
    return Write(
        touched_rows=sum(len(item.positions) for item in found),
        file_rows=_total(item.live.file.record_count for item in found),
        file_bytes=_total(item.live.file.file_size_in_bytes for item in found),
        pending_deletes=_total(item.live.deleted for item in found),
        reads_per_write=reads_per_write,
    )


def _total(numbers: Iterable[int]) -> int:
    return sum(numbers)


def pending(live: Iterable[LiveFile]) -> tuple[int, int]:
    """Deleted rows still in files, and how many files have some."""
    counts = [file.deleted for file in live if file.own]
    return sum(counts), len(counts)
