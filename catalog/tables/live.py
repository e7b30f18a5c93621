"""The live files of a snapshot, with the deletes pending on each, and reading rows of one file with their positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _get_file_format, _read_deletes, _to_requested_schema, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import Invalid
from catalog.tables.files import PATH_ID
from catalog.tables.manifests import ManifestReader

Positions = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class LiveFile:
    """A data file of the snapshot. `own` deletes are about this file alone; `shared` ones about its partition."""

    entry: ManifestEntry
    own: tuple[ManifestEntry, ...] = ()
    shared: tuple[ManifestEntry, ...] = ()

    @property
    def file(self) -> DataFile:
        return self.entry.data_file

    @property
    def deleted(self) -> int:
        """Rows known to be deleted in it: exact for files written here, which never share delete files."""
        return sum(entry.data_file.record_count for entry in self.own)


@dataclass(frozen=True)
class LiveFiles:
    """All of a snapshot's live files."""

    data: tuple[LiveFile, ...] = ()
    deletes: tuple[ManifestEntry, ...] = ()
    manifests: int = 0
    _by_partition: dict[Any, list[ManifestEntry]] = field(default_factory=dict)

    @classmethod
    def of(cls, io: FileIO, reader: ManifestReader, snapshot: Snapshot | None, table: str) -> LiveFiles:
        """Reads the snapshot's manifests: one request each, none for those this process has seen or written."""
        data: list[ManifestEntry] = []
        deletes: list[ManifestEntry] = []
        manifests = reader.manifests(io, snapshot)
        for manifest in manifests:
            for entry in reader.entries(io, manifest):
                content = entry.data_file.content
                if content == DataFileContent.EQUALITY_DELETES:
                    raise Invalid(
                        f"{table} holds equality deletes, which only Spark and Trino read: compact it there first",
                        subject=table,
                    )
                (data if content == DataFileContent.DATA else deletes).append(entry)
        own: dict[str, list[ManifestEntry]] = {}
        shared: dict[Any, list[ManifestEntry]] = {}
        for entry in deletes:
            path = referenced_path(entry.data_file)
            if path is not None:
                own.setdefault(path, []).append(entry)
            else:
                shared.setdefault(_partition(entry.data_file), []).append(entry)
        files = [
            LiveFile(
                entry,
                tuple(_applying(own.get(entry.data_file.file_path, ()), entry)),
                tuple(_applying(shared.get(_partition(entry.data_file), ()), entry)) if shared else (),
            )
            for entry in data
        ]
        return cls(tuple(files), tuple(deletes), len(manifests))


def referenced_path(file: DataFile) -> str | None:
    """The one data file a delete file is about, if its bounds say so."""
    lower, upper = (file.lower_bounds or {}).get(PATH_ID), (file.upper_bounds or {}).get(PATH_ID)
    return lower.decode() if lower and lower == upper else None


def _partition(file: DataFile) -> Any:
    return file.spec_id, file.partition


def _applying(deletes: Iterable[ManifestEntry], data: ManifestEntry) -> list[ManifestEntry]:
    """A position delete applies to data of its own commit and of all before it."""
    born = data.sequence_number or 0
    return [entry for entry in deletes if (entry.sequence_number or 0) >= born]


@dataclass(frozen=True)
class FileReader:
    """Reads single data files as a table's schema has them. Memory: the asked columns of one file."""

    metadata: TableMetadata
    io: FileIO

    def read(self, file: DataFile, schema: Schema) -> pa.Table:
        """Every row of the file, deleted ones too, in file order: row n is position n."""
        source = _get_file_format(file.file_format, pre_buffer=True, buffer_size=8 << 20)
        with self.io.new_input(file.file_path).open() as stream:
            fragment = source.make_fragment(stream)  # type: ignore[arg-type]
            physical = fragment.physical_schema
            stored = pyarrow_to_schema(
                physical, self.metadata.name_mapping(), downcast_ns_timestamp_to_us=True, format_version=2
            )
            wanted = prune_columns(stored, schema.field_ids, select_full_types=True)
            names = [column.name for column in wanted.columns]
            found = ds.Scanner.from_fragment(fragment, schema=physical, columns=names).to_table()
        if not names:  # every asked column is younger than the file
            found = pa.table({"": pa.nulls(file.record_count)})
        batches = [
            _to_requested_schema(schema, wanted, batch, downcast_ns_timestamp_to_us=True)
            for batch in found.to_batches()
        ]
        if not batches:
            return found.schema.empty_table()
        return pa.concat_tables((pa.Table.from_batches([batch]) for batch in batches), promote_options="permissive")

    def deleted(self, live: LiveFile) -> Positions:
        """The positions deleted in the file, in no order."""
        found: list[Positions] = []
        for entry in (*live.own, *live.shared):
            positions = _read_deletes(self.io, entry.data_file).get(live.file.file_path)
            if positions is not None:
                found.append(positions.to_numpy())
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def alive(self, live: LiveFile) -> np.ndarray[Any, np.dtype[np.bool_]]:
        mask = np.ones(live.file.record_count, dtype=bool)
        mask[self.deleted(live)] = False
        return mask


def take(rows: pa.Table, mask: np.ndarray[Any, Any]) -> pa.Table:
    return rows if mask.all() else rows.filter(pa.array(mask))


def column_like(column: Any, kind: pa.DataType) -> Any:
    return column if column.type == kind else pc.cast(column, kind)


def schema_of(schema: Schema, columns: Sequence[str]) -> Schema:
    """The schema's part for these top-level columns, in their order."""
    return Schema(*(schema.find_field(name) for name in columns), schema_id=schema.schema_id)
