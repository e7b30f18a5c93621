"""Rewrites a table's history without some rows: every kept snapshot keeps its id, and gets new objects.

Writes new data files, position deletes, manifests and manifest lists in the place of those that hold such a row, and
commits nothing: the caller puts the snapshots into the metadata. Memory: one data file at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.types import LongType

from catalog.core.errors import Conflict, Invalid
from catalog.iceberg import PATH_ID, POSITION_ID, CommitIO, FileReader, Positions, read_position_deletes
from catalog.tables.file_writer import DELETES_SCHEMA, FileWriter, encode
from catalog.tables.glue_store import TableVersion
from catalog.tables.manifest_writer import rewrite_list, rewrite_manifest

_COPIED = (
    "content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "column_sizes",
    "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds", "key_metadata",
    "split_offsets", "equality_ids", "sort_order_id",
)  # fmt: skip


class Matcher(Protocol):
    """Finds rows by their values: catalog.tables.matching."""

    columns: tuple[str, ...]

    def positions(self, rows: pa.Table) -> Positions: ...


@dataclass(frozen=True)
class RewrittenHistory:
    """`objects`: old path -> new path, None for an object without one. `positions`: the rows that went, by data file.

    `snapshots`: those whose objects changed, as they are now.
    """

    objects: Mapping[str, str | None]
    positions: Mapping[str, Positions]
    snapshots: tuple[Snapshot, ...]


@dataclass
class History:
    """All snapshots of one version of a table, with every manifest and entry, also of deleted files."""

    version: TableVersion
    io: CommitIO
    lists: dict[int, list[ManifestFile]] = field(default_factory=dict)
    entries: dict[str, list[ManifestEntry]] = field(default_factory=dict)
    data: dict[str, DataFile] = field(default_factory=dict)
    deletes: dict[str, DataFile] = field(default_factory=dict)

    @classmethod
    def read(cls, version: TableVersion, io: CommitIO) -> History:
        """Reads each manifest list and manifest once. Invalid for files that cannot be rewritten."""
        history = cls(version, io)
        if version.metadata.format_version != 2:
            raise Invalid(f"{version.name} has format version {version.metadata.format_version}: only 2 is rewritten")
        for snapshot in version.metadata.snapshots:
            history.lists[snapshot.snapshot_id] = snapshot.manifests(io)
            for manifest in history.lists[snapshot.snapshot_id]:
                if manifest.manifest_path not in history.entries:
                    entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
                    history.entries[manifest.manifest_path] = entries
                    for entry in entries:
                        if entry.status != ManifestEntryStatus.DELETED:
                            history._add(entry.data_file)
        return history

    @property
    def bytes(self) -> int:
        return sum(file.file_size_in_bytes for file in self.data.values())

    def paths(self) -> set[str]:
        """Every object that the metadata refers to, but metadata files."""
        metadata = self.version.metadata
        statistics = [each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)]
        lists = [snapshot.manifest_list for snapshot in metadata.snapshots]
        return {*lists, *self.entries, *self.data, *self.deletes, *statistics}

    def positions(self, matcher: Matcher) -> dict[str, Positions]:
        """The positions of matching rows, deleted ones too, in every data file that has one. Believes no statistics."""
        reader = FileReader(self.version.metadata, self.io)
        schema = self.version.schema.select(*matcher.columns)
        found = {path: matcher.positions(reader.read(file, schema)) for path, file in self.data.items()}
        return {path: np.unique(positions) for path, positions in found.items() if len(positions)}

    def rows(self, positions: Mapping[str, Positions], columns: Iterable[str]) -> pa.Table:
        """Some columns of the rows at these positions."""
        reader, schema = FileReader(self.version.metadata, self.io), self.version.schema.select(*columns)
        parts = [reader.read(self.data[path], schema).take(at) for path, at in positions.items()]
        return pa.concat_tables(parts)

    def _add(self, file: DataFile) -> None:
        name = self.version.name
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise Invalid(f"{name} has equality deletes: compact it, and expire the snapshots before", subject=name)
        if file.file_format != FileFormat.PARQUET:
            raise Invalid(
                f"{file.file_path} is not Parquet, so rows cannot be taken out of it: rewrite the table as Parquet, "
                "and expire the snapshots before",
                subject=name,
            )
        (self.data if file.content == DataFileContent.DATA else self.deletes)[file.file_path] = file


@dataclass
class HistoryRewriter:
    """One rewrite. `positions`: the rows that go, by data file."""

    history: History
    positions: Mapping[str, Positions]
    _files: dict[str, DataFile | None] = field(default_factory=dict)
    _manifests: dict[str, ManifestFile | None] = field(default_factory=dict)
    _lists: dict[str, str] = field(default_factory=dict)

    def check(self) -> list[int]:
        """The ids of the snapshots that `run` would replace; Conflict if that needs another table's files. Writes
        nothing, reads position deletes."""
        for path in (*self.positions, *self._deletes):
            self._check_location(path)
        lists = self.history.lists.items()
        return [id_ for id_, manifests in lists if any(self._is_affected(manifest) for manifest in manifests)]

    def run(self) -> RewrittenHistory:
        """Writes the new objects. A crash leaves objects that nothing refers to."""
        history = self.history
        self.check()
        for path in self.positions:
            self._files[path] = self._without_rows(history.data[path], self.positions[path])
        for path, deleted in self._deletes.items():
            self._files[path] = self._rewrite_deletes(history.deletes[path], deleted)
        for manifests in history.lists.values():
            for manifest in manifests:
                if manifest.manifest_path not in self._manifests and self._is_affected(manifest):
                    self._manifests[manifest.manifest_path] = self._rewritten(manifest)
        snapshots = [self._with_new_list(snapshot) for snapshot in history.version.metadata.snapshots]
        objects: dict[str, str | None] = {
            path: None if file is None else file.file_path for path, file in self._files.items()
        }
        objects |= {path: None if new is None else new.manifest_path for path, new in self._manifests.items()}
        return RewrittenHistory(objects | self._lists, self.positions, tuple(s for s in snapshots if s is not None))

    def _check_location(self, path: str) -> None:
        if not path.startswith(self._own):
            name = self.history.version.name
            raise Conflict(
                f"{path} belongs to the table that {name} was cloned from: drop the clone, or rewrite its files "
                "(compact) and expire its old snapshots, before you erase",
                subject=name,
            )

    @cached_property
    def _own(self) -> tuple[str, ...]:
        """The table's folders. A clone also refers to objects of its source, which are never replaced."""
        paths = self.history.version.paths()
        folders = (self.history.version.metadata.location, paths.data_path, paths.metadata_path)
        return tuple(f"{folder.rstrip('/')}/" for folder in folders)

    @cached_property
    def _deletes(self) -> dict[str, dict[str, Any]]:
        """The delete files that name a data file with rows that go, with all that they delete."""
        read = {path: read_position_deletes(self.history.io, file) for path, file in self.history.deletes.items()}
        return {path: deleted for path, deleted in read.items() if any(named in self.positions for named in deleted)}

    def _without_rows(self, file: DataFile, positions: Positions) -> DataFile | None:
        """The file without the rows at these positions; None if no row is left."""
        with self.history.io.new_input(file.file_path).open() as stream:
            source: Any = stream
            rows = pq.ParquetFile(source).read()
        mask = np.ones(len(rows), np.bool_)
        mask[positions] = False
        if not mask.any():
            return None
        rows = rows.filter(pa.array(mask)).replace_schema_metadata(None)
        data, parquet = encode(rows, self._writer.codec)
        path = self.history.version.paths().new_data_location(f"{uuid4()}.parquet")
        self.history.io.send(path, data)
        try:
            schema = pyarrow_to_schema(rows.schema)
        except ValueError as error:
            raise Invalid(
                f"{file.file_path} has no field ids, so rows cannot be taken out of it: compact the table, and expire "
                f"the snapshots before ({error})",
                subject=self.history.version.name,
            ) from None
        plan = compute_statistics_plan(schema, self.history.version.properties)
        statistics = data_file_statistics_from_parquet_metadata(parquet, plan, parquet_path_to_id_mapping(schema))
        return _changed(file, file_path=path, file_size_in_bytes=len(data), **statistics.to_serialized_dict())

    def _rewrite_deletes(self, file: DataFile, deleted: Mapping[str, Any]) -> DataFile | None:
        """The position deletes without the rows that went, at the others' new positions; None if no other is left."""
        moved = dict[str, Positions]()
        for named, column in deleted.items():
            at = np.unique(np.asarray(column.to_numpy(), np.int64))
            if named in self.positions:
                gone, new = self.positions[named], self._files[named]
                at = np.setdiff1d(at, gone, assume_unique=True)
                at, named = at - np.searchsorted(gone, at), "" if new is None else new.file_path
            if named and len(at):
                moved[named] = at
        return self._write_deletes(file, moved) if moved else None

    def _write_deletes(self, file: DataFile, moved: Mapping[str, Positions]) -> DataFile:
        paths, at = [p for p in sorted(moved) for _ in moved[p]], np.concatenate([moved[p] for p in sorted(moved)])
        rows = pa.Table.from_arrays([pa.array(paths, pa.string()), pa.array(at)], schema=DELETES_SCHEMA)
        data, parquet = encode(rows, self._writer.codec)
        path = self.history.version.paths().new_data_location(f"{uuid4()}-deletes.parquet")
        self.history.io.send(path, data)
        low, high = (to_bytes(LongType(), int(value)) for value in (at.min(), at.max()))
        return _changed(
            file,
            file_path=path,
            record_count=len(at),
            file_size_in_bytes=len(data),
            column_sizes={},
            value_counts={PATH_ID: len(at), POSITION_ID: len(at)},
            null_value_counts={PATH_ID: 0, POSITION_ID: 0},
            nan_value_counts={},
            lower_bounds={PATH_ID: min(paths).encode(), POSITION_ID: low},
            upper_bounds={PATH_ID: max(paths).encode(), POSITION_ID: high},
            split_offsets=[parquet.row_group(0).column(0).file_offset or 4],
        )

    def _is_affected(self, manifest: ManifestFile) -> bool:
        entries = self.history.entries[manifest.manifest_path]
        if not manifest.manifest_path.startswith(self._own):  # a clone's source has the same manifest
            return False
        return any(self._goes(entry) or self._is_of_past(entry) for entry in entries)

    def _goes(self, entry: ManifestEntry) -> bool:
        return entry.data_file.file_path in self.positions or entry.data_file.file_path in self._deletes

    def _is_of_past(self, entry: ManifestEntry) -> bool:
        """Whether it is of a file that no kept snapshot has. Its bounds and its partition may be of a row that goes."""
        path = entry.data_file.file_path
        return path not in self.history.data and path not in self.history.deletes

    def _rewritten(self, manifest: ManifestFile) -> ManifestFile | None:
        entries = list[ManifestEntry]()
        for entry in self.history.entries[manifest.manifest_path]:
            file = self._files.get(entry.data_file.file_path, entry.data_file)
            if file is not None and not self._is_of_past(entry):
                numbers = (entry.sequence_number, entry.file_sequence_number)
                entries.append(_entry(entry.status, entry.snapshot_id, *numbers, file))
        if not entries:
            return None
        return rewrite_manifest(self.history.version, self.history.io, manifest, entries)

    def _with_new_list(self, snapshot: Snapshot) -> Snapshot | None:
        old = self.history.lists[snapshot.snapshot_id]
        if not any(manifest.manifest_path in self._manifests for manifest in old):
            return None
        new = [self._manifests.get(manifest.manifest_path, manifest) for manifest in old]
        kept = [manifest for manifest in new if manifest is not None]
        path = rewrite_list(self.history.version, self.history.io, snapshot, kept)
        self._lists[snapshot.manifest_list] = path
        summary = None if snapshot.summary is None else self._with_totals(snapshot.summary, old)
        return snapshot.model_copy(update={"manifest_list": path, "summary": summary})

    def _with_totals(self, summary: Summary, manifests: Iterable[ManifestFile]) -> Summary:
        """The summary with the totals of the files as they are now."""
        entries = [entry for manifest in manifests for entry in self.history.entries[manifest.manifest_path]]
        live = [entry.data_file for entry in entries if entry.status != ManifestEntryStatus.DELETED]
        files = [file for file in (self._files.get(file.file_path, file) for file in live) if file is not None]
        data = [file for file in files if file.content == DataFileContent.DATA]
        deletes = [file for file in files if file.content != DataFileContent.DATA]
        totals = {
            "total-records": sum(file.record_count for file in data),
            "total-data-files": len(data),
            "total-delete-files": len(deletes),
            "total-position-deletes": sum(file.record_count for file in deletes),
            "total-files-size": sum(file.file_size_in_bytes for file in files),
        }
        stated = dict(summary.additional_properties)
        stated = {name: value for name, value in stated.items() if not name.startswith("partitions.")}
        return Summary(summary.operation, **{**stated, **{n: str(v) for n, v in totals.items() if n in stated}})

    @cached_property
    def _writer(self) -> FileWriter:
        return FileWriter(self.history.version)


def _entry(
    status: ManifestEntryStatus,
    snapshot_id: int | None,
    sequence: int | None,
    file_sequence: int | None,
    file: DataFile,
) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=sequence,
        file_sequence_number=file_sequence,
        data_file=file,
    )


def _changed(file: DataFile, **values: Any) -> DataFile:
    changed = DataFile.from_args(**{name: getattr(file, name) for name in _COPIED} | values)
    changed.spec_id = file.spec_id
    return changed
