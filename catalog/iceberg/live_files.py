"""The live files of a snapshot: its data files with the deletes that apply to each; and reading one of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.core.errors import Invalid
from catalog.iceberg.manifests import ManifestReader
from catalog.iceberg.position_deletes import DeleteIndex, RowMask, deleted_positions, live_rows
from catalog.iceberg.projection import file_schema, project_rows, select_stored
from catalog.iceberg.pyiceberg_internals import dataset_format, read_position_deletes

READ_BUFFER_BYTES = 8 << 20


@dataclass(frozen=True)
class LiveFile:
    """A data file of the snapshot. `own` deletes apply to this file alone, `shared` ones may name others too."""

    entry: ManifestEntry
    own: tuple[ManifestEntry, ...] = ()
    shared: tuple[ManifestEntry, ...] = ()

    @property
    def file(self) -> DataFile:
        return self.entry.data_file

    @property
    def deletes(self) -> tuple[ManifestEntry, ...]:
        return *self.own, *self.shared

    @property
    def deleted(self) -> int:
        """Rows known to be deleted in it: exact for files that the lake wrote, which never share delete files."""
        return sum(entry.data_file.record_count for entry in self.own)


@dataclass(frozen=True)
class LiveFiles:
    """All of a snapshot's live files. `manifests`: how many manifests list them."""

    data: tuple[LiveFile, ...] = ()
    deletes: tuple[ManifestEntry, ...] = ()
    manifests: int = 0

    @classmethod
    def of(cls, io: FileIO, reader: ManifestReader, snapshot: Snapshot | None, table: str) -> LiveFiles:
        """Reads the snapshot's manifests: one request each, none for those this process has read or written.

        Raises Invalid if the snapshot has equality deletes.
        """
        data: list[ManifestEntry] = []
        deletes: list[ManifestEntry] = []
        manifests = reader.manifests(io, snapshot)
        for manifest in manifests:
            for entry in reader.entries(io, manifest):
                content = entry.data_file.content
                if content == DataFileContent.EQUALITY_DELETES:
                    raise Invalid(
                        f"{table} has equality deletes, which only Spark and Trino read: compact it there first",
                        subject=table,
                    )
                (data if content == DataFileContent.DATA else deletes).append(entry)
        index = DeleteIndex(deletes)
        files = (LiveFile(entry, index.own(entry), index.shared(entry)) for entry in data)
        return cls(tuple(files), tuple(deletes), len(manifests))


@dataclass(frozen=True)
class FileReader:
    """Reads single data files under a table's schema. Memory: the requested columns of one file."""

    metadata: TableMetadata
    io: FileIO

    def read(self, file: DataFile, schema: Schema) -> pa.Table:
        """Every row of the file, deleted ones too, in file order: row n is position n."""
        source = dataset_format(file.file_format, pre_buffer=True, buffer_size=READ_BUFFER_BYTES)
        with self.io.new_input(file.file_path).open() as stream:
            fragment = source.make_fragment(stream)  # type: ignore[arg-type]
            physical = fragment.physical_schema
            stored = select_stored(file_schema(physical, self.metadata), schema)
            names = [column.name for column in stored.columns]
            rows = ds.Scanner.from_fragment(fragment, schema=physical, columns=names).to_table()
        if not names:  # every requested column is younger than the file
            rows = pa.table({"": pa.nulls(file.record_count)})
        return project_rows(rows, stored, schema)

    def alive(self, live: LiveFile) -> RowMask:
        """Which rows of the file are not deleted. Requests: one for each delete file of up to 1 MiB."""
        read = partial(read_position_deletes, self.io)
        return live_rows(live.file.record_count, deleted_positions(live.deletes, live.file.file_path, read))


def filter_rows(rows: pa.Table, mask: RowMask) -> pa.Table:
    return rows if mask.all() else rows.filter(pa.array(mask))
