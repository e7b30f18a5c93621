"""Reads a table at a snapshot as Arrow: the columns that a query needs, of row groups that might hold matching rows.

Columns are matched by field id, never by name: a renamed column is the same column, a name dropped and added again is
another one, a promoted column is widened, and a column added after the file was written is NULL. Rows with position
deletes are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField, PrimitiveType

from catalog.core.errors import LakeError, NotFound, Unavailable
from catalog.iceberg import (
    FileReader,
    LiveFile,
    deleted_positions,
    file_schema,
    live_rows,
    project_rows,
    project_schema,
    read_position_deletes,
    select_stored,
    stored_names,
)
from catalog.query.plan.file_statistics import FileStatistics
from catalog.query.plan.predicates import Bounds, Mask, Predicate, columns_of, evaluate
from catalog.query.scan import dictionary_columns
from catalog.query.scan.parquet_objects import Footers, ParquetObject, SmallObjects, Traffic
from catalog.query.scan.row_group_statistics import row_group_bounds
from catalog.query.scan.schema_cache import cache_by_schema
from catalog.query.scan.verified_io import BytesInput, VerifiedIO

PARALLEL_FILES = 8
SMALL_BATCH_ROWS = 8192
BATCH_ROWS = 1 << 17  # the engine's intermediate results for a batch fit into the CPU cache
FILTERED_ROWS = 1 << 20
"""Above this many rows, rows that cannot match are dropped while reading, to save memory."""
MAX_CACHED_DELETES = 256


@dataclass(frozen=True)
class Relation:
    """One table at one snapshot, with the schema it had then. `snapshot_id`: None if the table is empty."""

    name: str
    metadata: TableMetadata
    schema: Schema
    snapshot_id: int | None
    statistics: FileStatistics

    @cached_property
    def arrow(self) -> pa.Schema:
        """The engine's schema: every column is nullable, because columns that are not read are null."""
        return _arrow(self.schema)

    def fields(self, columns: Sequence[str]) -> list[NestedField]:
        by_name = {field.name: field for field in self.schema.fields}
        return [by_name[name] for name in columns]


@cache_by_schema
def _arrow(schema: Schema) -> pa.Schema:
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([pa.field(field.name, engine_type(field.type)) for field in arrow])


@dataclass(frozen=True)
class RelationScan:
    """What to read of one relation. `files`: a mask over its live files. `fetch`: any so many rows are enough."""

    relation: Relation
    files: Mask
    columns: tuple[str, ...]
    predicate: Predicate | None = None
    fetch: int | None = None


@contextmanager
def naming_the_file(live: LiveFile, relation: Relation) -> Iterator[None]:
    """Raises the errors of reading a data file with its name: NotFound if it is gone, else Unavailable."""
    path = live.file.file_path
    try:
        yield
    except FileNotFoundError:
        raise NotFound(
            f"{path} is missing, but the queried snapshot of {relation.name} needs it: the snapshot may have "
            "expired meanwhile; query a later point in time",
            subject=path,
        ) from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, LakeError):
            raise
        raise Unavailable(f"{path} cannot be read: {error}", subject=path) from error


class RelationReader:
    """Reads data files in parallel. With a `VerifiedIO`, each file is read whole and compared with its digest first."""

    def __init__(self, objects: SmallObjects, io: FileIO, footers: Footers) -> None:
        self._objects, self._io, self._footers = objects, io, footers
        self._deletes: dict[str, dict[str, Any]] = {}
        self._pool = ThreadPoolExecutor(PARALLEL_FILES, thread_name_prefix="query")
        self.decoders = ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="decode")

    def read(self, scan: RelationScan, traffic: Traffic, verified_io: VerifiedIO | None = None) -> list[pa.RecordBatch]:
        """The rows, as batches of the relation's whole schema; columns that are not needed are null and cost nothing.

        Requests: one for a file of up to 1 MiB; for a larger one its tail, once per process, and its column chunks,
        with adjacent chunks in one request; one for each delete file.
        """
        relation, columns = scan.relation, scan.columns
        files = [relation.statistics.files[number] for number in np.flatnonzero(scan.files)]
        row_count = int(relation.statistics.rows[scan.files].sum())
        if not columns:
            # A manifest's count of rows is the writer's word: a verified query counts those in the files.
            if verified_io is None and not relation.statistics.has_deletes[scan.files].any():
                return list(_placeholder_batches(relation.arrow, row_count))
            columns = (relation.schema.fields[0].name,)
        task = _FileTask(self, relation, columns, scan.predicate, row_count > FILTERED_ROWS, traffic, verified_io)
        batches: list[pa.RecordBatch] = []
        read_rows = 0
        for file_batches in self._file_batches(task, files, scan.fetch):
            batches += file_batches
            read_rows += sum(batch.num_rows for batch in file_batches)
            if scan.fetch is not None and read_rows >= scan.fetch:
                break
        if not read_rows:
            return []
        table = pa.Table.from_batches(batches)
        if read_rows < SMALL_BATCH_ROWS * len(batches):  # many small batches cost the engine more than one copy
            table = table.combine_chunks()
        return [with_placeholder_columns(batch, relation.arrow) for batch in table.to_batches(max_chunksize=BATCH_ROWS)]

    def _file_batches(
        self, task: _FileTask, files: Sequence[LiveFile], fetch: int | None
    ) -> Iterator[list[pa.RecordBatch]]:
        if fetch is not None or len(files) < 2:
            yield from map(task, files)  # one at a time: the first files may be enough
        else:
            yield from self._pool.map(task, files)

    def parquet(self, live: LiveFile, traffic: Traffic, verified_io: VerifiedIO | None) -> ParquetObject:
        path, length = live.file.file_path, live.file.file_size_in_bytes
        if verified_io is not None:
            return ParquetObject.of_bytes(verified_io.read(path))
        return ParquetObject(self._objects, self._footers, path, length, traffic)

    def file_reader(self, relation: Relation, verified_io: VerifiedIO | None) -> FileReader:
        return FileReader(relation.metadata, self._io if verified_io is None else verified_io)

    def positions(self, live: LiveFile, traffic: Traffic, verified_io: VerifiedIO | None) -> Any:
        """The positions of the file's deleted rows. Delete files are small, and cached as small objects are."""

        def read(file: DataFile) -> dict[str, Any]:
            return self._positions(file, traffic, verified_io)

        return deleted_positions(live.deletes, live.file.file_path, read)

    def live_mask(self, live: LiveFile, traffic: Traffic, verified_io: VerifiedIO | None) -> Mask:
        """A mask of the file's rows that are not deleted."""
        return live_rows(live.file.record_count, self.positions(live, traffic, verified_io))

    def _positions(self, file: DataFile, traffic: Traffic, verified_io: VerifiedIO | None) -> dict[str, Any]:
        if verified_io is not None:
            return read_position_deletes(verified_io, file)
        positions = self._deletes.get(file.file_path)
        if positions is None:
            positions = read_position_deletes(_SmallObjectIO(self._objects, file.file_size_in_bytes, traffic), file)
            if len(self._deletes) >= MAX_CACHED_DELETES:
                self._deletes = {}
            self._deletes[file.file_path] = positions
        return positions


@dataclass(frozen=True)
class _FileTask:
    """Reads one data file. `filtering`: drops rows that cannot match the predicate."""

    reader: RelationReader
    relation: Relation
    columns: tuple[str, ...]
    predicate: Predicate | None
    filtering: bool
    traffic: Traffic
    verified_io: VerifiedIO | None

    def __call__(self, live: LiveFile) -> list[pa.RecordBatch]:
        with naming_the_file(live, self.relation):
            if live.file.file_format == FileFormat.PARQUET:
                return self._read_parquet(live)
            return [self._batch(self._read_other(live))]

    def _read_parquet(self, live: LiveFile) -> list[pa.RecordBatch]:
        """One batch per row group, decoded in parallel if there are several."""
        source = self.reader.parquet(live, self.traffic, self.verified_io)
        physical = source.footer.schema.to_arrow_schema()
        stored_names_by_id = stored_names(physical, self.relation.metadata)
        fields = self.relation.fields(self.columns)
        groups = self._matching_groups(source.footer, physical, stored_names_by_id)
        names = [stored_names_by_id[field.field_id] for field in fields if field.field_id in stored_names_by_id]
        all_primitive = all(isinstance(field.field_type, PrimitiveType) for field in fields)
        dictionary_names = (
            dictionary_columns.dictionary_columns(source.footer, physical, names) if all_primitive and names else ()
        )
        if names and groups:
            source.fetch(groups, _leaf_columns(source.footer, names))
        rows = [source.footer.row_group(group).num_rows for group in range(source.footer.num_row_groups)]
        offsets = [0, *accumulate(rows)]
        live_mask = self._live_mask(live) if live.own or live.shared else None

        def decode(group: int) -> pa.RecordBatch:
            columns = source.read(group, names, dictionary_names, threads=len(groups) == 1) if names else None
            table = _project(columns, fields, stored_names_by_id, self.relation, physical, rows[group])
            if live_mask is not None:
                table = table.filter(pa.array(live_mask[offsets[group] : offsets[group + 1]]))
            return self._batch(table)

        return list(self.reader.decoders.map(decode, groups) if len(groups) > 1 else map(decode, groups))

    def _matching_groups(
        self, footer: pq.FileMetaData, physical: pa.Schema, stored_names_by_id: dict[int, str]
    ) -> list[int]:
        """The row groups that might hold matching rows, by their statistics; all of a verified file, as in planning."""
        count = footer.num_row_groups
        if self.predicate is None or self.verified_io is not None or count == 0:
            return list(range(count))
        fields = {field.name: field for field in self.relation.schema.fields}

        def bounds_of(name: str) -> Bounds | None:
            field = fields.get(name)
            physical_name = stored_names_by_id.get(field.field_id) if field is not None else None
            if field is None or physical_name is None:
                return None
            return row_group_bounds(footer, physical, physical_name, field)

        return [int(group) for group in np.flatnonzero(evaluate(self.predicate, bounds_of, count).might_match)]

    def _read_other(self, live: LiveFile) -> pa.Table:
        schema = project_schema(self.relation.schema, self.columns)
        table = self.reader.file_reader(self.relation, self.verified_io).read(live.file, schema)
        if live.own or live.shared:
            table = table.filter(pa.array(self._live_mask(live)))
        return table.cast(pa.schema([self.relation.arrow.field(name) for name in table.column_names]))

    def _live_mask(self, live: LiveFile) -> Mask:
        return self.reader.live_mask(live, self.traffic, self.verified_io)

    def _batch(self, table: pa.Table) -> pa.RecordBatch:
        """The table as one batch, when filtering without the rows that cannot match, which the engine would hold."""
        batch = pa.RecordBatch.from_arrays([_as_array(column) for column in table.columns], names=table.column_names)
        if not self.filtering or self.predicate is None or not columns_of(self.predicate) <= set(table.column_names):
            return dictionary_columns.decode_dictionaries(batch)
        return dictionary_columns.filtered(batch, self.predicate)


class _SmallObjectIO(FileIO):
    """A FileIO over cached small objects of one length, through which pyiceberg reads delete files."""

    def __init__(self, objects: SmallObjects, length: int, traffic: Traffic) -> None:
        super().__init__()
        self._objects, self._length, self._traffic = objects, length, traffic

    def new_input(self, location: str) -> InputFile:
        return BytesInput(location, lambda path: self._objects.get(path, self._length, self._traffic))

    def new_output(self, location: str) -> Any:
        raise NotImplementedError("a query writes nothing")

    def delete(self, location: Any) -> None:
        raise NotImplementedError("a query writes nothing")


def _as_array(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # type: ignore[return-value]


def _leaf_columns(footer: pq.FileMetaData, names: Sequence[str]) -> list[int]:
    selected = set(names)
    schema = footer.schema
    return [number for number in range(footer.num_columns) if schema.column(number).path.split(".")[0] in selected]


def _project(
    stored_columns: pa.Table | None,
    fields: Sequence[NestedField],
    stored_names_by_id: dict[int, str],
    relation: Relation,
    physical: pa.Schema,
    count: int,
) -> pa.Table:
    """The file's columns with the relation's names and types, in the order of `fields`; NULL if the file lacks one."""
    schema = pa.schema([relation.arrow.field(field.name) for field in fields])
    if stored_columns is not None and not all(isinstance(field.field_type, PrimitiveType) for field in fields):
        return _project_nested(stored_columns, fields, relation, physical, schema)
    columns = []
    for field, target in zip(fields, schema, strict=True):
        name = stored_names_by_id.get(field.field_id)
        if stored_columns is None or name is None:
            columns.append(pa.nulls(count, target.type))
        else:
            column = stored_columns[name]
            has_type = pa.types.is_dictionary(column.type) or column.type == target.type
            columns.append(column if has_type else column.cast(target.type))
    return pa.Table.from_arrays(columns, names=schema.names)


def _project_nested(
    stored_columns: pa.Table, fields: Sequence[NestedField], relation: Relation, physical: pa.Schema, schema: pa.Schema
) -> pa.Table:
    if not stored_columns.num_rows:
        return schema.empty_table()
    requested = Schema(*fields, schema_id=relation.schema.schema_id)
    stored = select_stored(file_schema(physical, relation.metadata), requested)
    return project_rows(stored_columns, stored, requested).cast(schema)


def engine_type(type_: Any) -> Any:
    """The engine's Arrow type: text and bytes with 32-bit offsets, a UUID as its 16 bytes."""
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


_ZEROS = pa.py_buffer(bytes(1 << 16))


def with_placeholder_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the schema's columns; those that it lacks are placeholders."""
    present = set(batch.schema.names)
    count = batch.num_rows
    columns = [batch.column(f.name) if f.name in present else placeholder_column(f.type, count) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def placeholder_column(type_: Any, count: int) -> pa.Array[Any]:
    """A column of nulls for a column that is not read. All placeholders share one buffer of zeros."""
    global _ZEROS
    if pa.types.is_nested(type_):
        return pa.nulls(count, type_)
    text = pa.types.is_string(type_) or pa.types.is_binary(type_)
    width = 32 if text else getattr(type_, "bit_width", 128)
    needed = (count + 1) * max(width, 8) // 8 + 64
    if _ZEROS.size < needed:
        _ZEROS = pa.py_buffer(bytes(needed))
    buffers: list[Any] = [_ZEROS, _ZEROS, _ZEROS] if text else [_ZEROS, _ZEROS]
    return pa.Array.from_buffers(type_, count, buffers, null_count=count)


def _placeholder_batches(schema: pa.Schema, count: int) -> Iterator[pa.RecordBatch]:
    """So many rows of placeholder columns, for a query that only counts rows."""
    step = 1 << 20
    for start in range(0, count, step):
        size = min(step, count - start)
        yield pa.RecordBatch.from_arrays([placeholder_column(f.type, size) for f in schema], schema=schema)
