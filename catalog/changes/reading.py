"""Reads the rows of data files under one schema, by field id, and no more row groups than hold the rows
wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import IdentityTransform

from catalog.changes.digest import conform
from catalog.changes.encoding import field_id
from catalog.changes.projection import has_ids, project
from catalog.changes.sources import Source


class Reader:
    """Reads sources as rows of one of the table's schemas. `schema` is its Arrow form, with field ids."""

    def __init__(self, table: Table, schema: Schema) -> None:
        self._table = table
        self._iceberg = schema
        self.schema = schema_to_pyarrow(schema, include_field_ids=True)

    def read(self, source: Source) -> Iterator[pa.Table]:
        """The source's rows in the file's order, a row group at a time. Memory: one row group."""
        for start, rows in self._row_groups(source):
            chosen = source.mask(start, len(rows))
            yield rows if chosen.all() else rows.filter(pa.array(chosen))

    def _row_groups(self, source: Source) -> Iterator[tuple[int, pa.Table]]:
        """(the first row's position in the file, the rows) of every row group with rows that are wanted."""
        file = source.file
        if file.file_format != FileFormat.PARQUET:
            yield from self._by_scan(source)
            return
        with self._table.io.new_input(file.file_path).open() as stream:
            source_file: Any = stream
            parquet = pq.ParquetFile(source_file)
            if not self._is_plain(source, parquet.schema_arrow):
                yield from self._by_scan(source)
                return
            start = 0
            for group in range(parquet.metadata.num_row_groups):
                count = parquet.metadata.row_group(group).num_rows
                if source.mask(start, count).any():
                    yield start, project(self._read_group(parquet, group), self.schema)
                start += count

    def _read_group(self, parquet: pq.ParquetFile, group: int) -> pa.Table:
        wanted = {field_id(field) for field in self.schema}
        names = [field.name for field in parquet.schema_arrow if field_id(field) in wanted]
        return parquet.read_row_group(group, columns=names)

    def _is_plain(self, source: Source, schema: pa.Schema) -> bool:
        """Whether the file has all that a projection by id needs: ids, and no value that only its partition tells."""
        if not has_ids(schema):
            return False
        held = {field_id(field) for field in schema}
        spec = self._table.metadata.specs()[source.file.spec_id]
        identity = {one.source_id for one in spec.fields if isinstance(one.transform, IdentityTransform)}
        return not any(one.field_id in identity - held for one in self._iceberg.fields)

    def _by_scan(self, source: Source) -> Iterator[tuple[int, pa.Table]]:
        """pyiceberg's own reader, for ORC and for files imported from elsewhere. Memory: the whole file."""
        scan = ArrowScan(self._table.metadata, self._table.io, self._iceberg, AlwaysTrue())
        start = 0
        for batch in scan.to_record_batches([FileScanTask(source.file)]):
            yield start, conform(batch, self.schema)
            start += batch.num_rows
