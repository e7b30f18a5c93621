"""Reads rows of data files under one schema, by field id, and only the row groups that hold requested rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import IdentityTransform

from catalog.changes.digest import conform
from catalog.changes.encoding import field_id
from catalog.changes.limits import RowCounts
from catalog.changes.projection import has_ids, project
from catalog.changes.touched_rows import TouchedFile


class RowReader:
    """Reads sources as rows of one of the table's schemas. `schema` is its Arrow form, with field ids."""

    def __init__(self, table: Table, schema: Schema, counts: RowCounts | None = None) -> None:
        self._table = table
        self._iceberg = schema
        self.counts = RowCounts() if counts is None else counts
        self.schema = schema_to_pyarrow(schema, include_field_ids=True)

    def read(self, source: TouchedFile) -> Iterator[pa.Table]:
        """The source's rows in the file's order, a row group at a time. Memory: one row group."""
        for start, rows in self._row_groups(source):
            mask = source.mask(start, len(rows))
            yield rows if mask.all() else rows.filter(pa.array(mask))

    def count(self, source: TouchedFile) -> tuple[int, int]:
        """The number of rows and bytes of the source's file, from its footer. One or two GETs.

        An Avro file's row count is the one in the manifest.
        """
        file = source.file
        data_file = self._table.io.new_input(file.file_path)
        if file.file_format not in (FileFormat.PARQUET, FileFormat.ORC):
            return file.record_count, len(data_file)
        with data_file.open() as stream:
            file_stream: Any = stream
            parquet = file.file_format == FileFormat.PARQUET
            rows = pq.ParquetFile(file_stream).metadata.num_rows if parquet else orc.ORCFile(file_stream).nrows
        return rows, len(data_file)

    def _row_groups(self, source: TouchedFile) -> Iterator[tuple[int, pa.Table]]:
        """(position of its first row in the file, rows) of every row group with requested rows."""
        file = source.file
        if file.file_format != FileFormat.PARQUET:
            yield from self._by_scan(source)
            return
        with self._table.io.new_input(file.file_path).open() as stream:
            file_stream: Any = stream
            parquet = pq.ParquetFile(file_stream)
            if not self._has_all_columns(source, parquet.schema_arrow):
                yield from self._by_scan(source)
                return
            self.counts.add(source, parquet.metadata.num_rows)
            start = 0
            for group in range(parquet.metadata.num_row_groups):
                count = parquet.metadata.row_group(group).num_rows
                if source.mask(start, count).any():
                    yield start, project(self._read_group(parquet, group), self.schema)
                start += count

    def _read_group(self, parquet: pq.ParquetFile, group: int) -> pa.Table:
        ids = {field_id(field) for field in self.schema}
        names = [field.name for field in parquet.schema_arrow if field_id(field) in ids]
        return parquet.read_row_group(group, columns=names)

    def _has_all_columns(self, source: TouchedFile, schema: pa.Schema) -> bool:
        """Whether a projection by id can read the file: it has field ids, and no value only in its partition."""
        if not has_ids(schema):
            return False
        in_file = {field_id(field) for field in schema}
        spec = self._table.metadata.specs()[source.file.spec_id]
        identity = {part.source_id for part in spec.fields if isinstance(part.transform, IdentityTransform)}
        return not any(field.field_id in identity - in_file for field in self._iceberg.fields)

    def _by_scan(self, source: TouchedFile) -> Iterator[tuple[int, pa.Table]]:
        """The rows by pyiceberg's reader, for ORC and for imported files without field ids. Memory: the whole file."""
        scan = ArrowScan(self._table.metadata, self._table.io, self._iceberg, AlwaysTrue())
        start = 0
        for batch in scan.to_record_batches([FileScanTask(source.file)]):
            yield start, conform(batch, self.schema)
            start += batch.num_rows
        self.counts.add(source, start)
