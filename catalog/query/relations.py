"""A table at a snapshot as Arrow: the columns a query asks for, of the row groups that may matter, found by field id.

So a renamed column is the same column, a dropped and re-added name is two, a promoted one is widened, a younger one
is NULL, and rows deleted by position are gone. Nothing is matched by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.pyarrow import _read_deletes, _to_requested_schema, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, NestedField, PrimitiveType, StringType

from catalog.errors import LakeError, NotFound, Unavailable
from catalog.query import words
from catalog.query.footers import Footers, ParquetObject, SmallObjects, Traffic
from catalog.query.inventory import Inventory
from catalog.query.predicates import Bounds, Mask, Predicate, columns_of, evaluate
from catalog.query.verification import BytesInput, CheckedIO
from catalog.tables.live import FileReader, LiveFile, schema_of

READERS = 8
SMALL_ROWS = 8192
BATCH_ROWS = 1 << 17  # what the engine makes of a batch stays near its cache
FILTERED_ROWS = 1 << 20
KEPT_DELETES = 256
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class Relation:
    """One table at one snapshot (None: it is empty), under the schema it had there."""

    name: str
    metadata: TableMetadata
    schema: Schema
    snapshot_id: int | None
    inventory: Inventory

    @cached_property
    def arrow(self) -> pa.Schema:
        """As the engine sees it: every column may be null, because an unread one is."""
        plain = schema_to_pyarrow(self.schema, include_field_ids=False)
        return pa.schema([pa.field(field.name, _plain(field.type)) for field in plain])

    def fields(self, columns: Sequence[str]) -> list[NestedField]:
        found = {field.name: field for field in self.schema.fields}
        return [found[name] for name in columns]


@dataclass(frozen=True)
class Reading:
    """One relation's part of a query: which files, which columns, which rows."""

    relation: Relation
    chosen: Mask
    columns: tuple[str, ...]
    predicate: Predicate | None = None
    fetch: int | None = None


class Reader:
    """Reads data files, many at a time. With `checked`, each is read whole and compared with its digest first."""

    def __init__(self, objects: SmallObjects, io: FileIO, footers: Footers) -> None:
        self._objects, self._io, self._footers = objects, io, footers
        self._deletes: dict[str, dict[str, Any]] = {}
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="query")
        self.decoders = ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="decode")

    def read(self, reading: Reading, traffic: Traffic, checked: CheckedIO | None = None) -> list[pa.RecordBatch]:
        """The rows, as batches of the relation's whole schema; columns nobody asked for are null and cost nothing.

        Requests: one for a file of up to 1 MiB; of a larger one the tail, once in this process's life, and its
        column chunks, neighbours together; one for each file of deletes.
        """
        relation, columns = reading.relation, reading.columns
        files = [relation.inventory.files[at] for at in np.flatnonzero(reading.chosen)]
        if not columns:
            count = int(relation.inventory.rows[reading.chosen].sum()) if self._untouched(reading) else None
            if count is not None:
                return list(_counted(relation.arrow, count))
            columns = (relation.schema.fields[0].name,)
        rows = int(relation.inventory.rows[reading.chosen].sum())
        task = _FileTask(self, relation, columns, reading.predicate, rows > FILTERED_ROWS, traffic, checked)
        pieces: list[pa.RecordBatch] = []
        found = 0
        for some in self._pieces(task, files, reading.fetch):
            pieces += some
            found += sum(piece.num_rows for piece in some)
            if reading.fetch is not None and found >= reading.fetch:
                break
        if not found:
            return []
        joined = pa.Table.from_batches(pieces)
        if found < SMALL_ROWS * len(pieces):  # many small pieces cost the engine more than one copy of them
            joined = joined.combine_chunks()
        return [with_phantoms(batch, relation.arrow) for batch in joined.to_batches(max_chunksize=BATCH_ROWS)]

    def _pieces(self, task: _FileTask, files: Sequence[LiveFile], fetch: int | None) -> Iterator[list[pa.RecordBatch]]:
        if fetch is not None or len(files) < 2:
            yield from map(task, files)  # one after the other: the first may be enough
        else:
            yield from self._pool.map(task, files)

    @staticmethod
    def _untouched(reading: Reading) -> bool:
        return not reading.relation.inventory.touched[reading.chosen].any()

    def parquet(self, live: LiveFile, traffic: Traffic, checked: CheckedIO | None) -> ParquetObject:
        path, length = live.file.file_path, live.file.file_size_in_bytes
        if checked is not None:
            return ParquetObject.of_bytes(checked.read(path))
        return ParquetObject(self._objects, self._footers, path, length, traffic)

    def files(self, relation: Relation, checked: CheckedIO | None) -> FileReader:
        return FileReader(relation.metadata, self._io if checked is None else checked)

    def alive(self, live: LiveFile, traffic: Traffic, checked: CheckedIO | None) -> Mask:
        """Which rows of a file no delete speaks of. A file of deletes is small, and kept as small objects are."""
        mask = np.ones(live.file.record_count, dtype=bool)
        for entry in (*live.own, *live.shared):
            positions = self._positions(entry.data_file, traffic, checked).get(live.file.file_path)
            if positions is not None:
                mask[positions.to_numpy()] = False
        return mask

    def _positions(self, file: DataFile, traffic: Traffic, checked: CheckedIO | None) -> dict[str, Any]:
        if checked is not None:
            return _read_deletes(checked, file)
        found = self._deletes.get(file.file_path)
        if found is None:
            found = _read_deletes(_Kept(self._objects, file.file_size_in_bytes, traffic), file)
            if len(self._deletes) >= KEPT_DELETES:
                self._deletes = {}
            self._deletes[file.file_path] = found
        return found


@dataclass(frozen=True)
class _FileTask:
    reader: Reader
    relation: Relation
    columns: tuple[str, ...]
    predicate: Predicate | None
    filtering: bool
    traffic: Traffic
    checked: CheckedIO | None

    def __call__(self, live: LiveFile) -> list[pa.RecordBatch]:
        path = live.file.file_path
        try:
            if live.file.file_format == FileFormat.PARQUET:
                return self._parquet(live)
            return [self._kept(self._other(live))]
        except FileNotFoundError:
            raise NotFound(
                f"{path} is gone, but a snapshot of {self.relation.name} needs it: it may have expired meanwhile",
                subject=path,
            ) from None
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, LakeError):
                raise
            raise Unavailable(f"{path} cannot be read: {error}", subject=path) from error

    def _parquet(self, live: LiveFile) -> list[pa.RecordBatch]:
        """Row group by row group: what one leaves behind in memory and cache, the next one uses."""
        source = self.reader.parquet(live, self.traffic, self.checked)
        physical = source.footer.schema.to_arrow_schema()
        stored = _ids(physical, self.relation.metadata)
        fields = self.relation.fields(self.columns)
        groups = self._groups(source.footer, physical, stored)
        names = [stored[field.field_id] for field in fields if field.field_id in stored]
        plain = all(isinstance(field.field_type, PrimitiveType) for field in fields)
        coded = words.columns_of_few_words(source.footer, physical, names) if plain and names else ()
        if names and groups:
            source.fetch(groups, _leaves(source.footer, names))
        rows = [source.footer.row_group(at).num_rows for at in range(source.footer.num_row_groups)]
        offsets = [0, *accumulate(rows)]
        alive = self._alive(live) if live.own or live.shared else None

        def decode(at: int) -> pa.RecordBatch:
            found = source.read(at, names, coded, threads=len(groups) == 1) if names else None
            table = _projected(found, fields, stored, self.relation, physical, rows[at])
            if alive is not None:
                table = table.filter(pa.array(alive[offsets[at] : offsets[at + 1]]))
            return self._kept(table)

        return list(self.reader.decoders.map(decode, groups) if len(groups) > 1 else map(decode, groups))

    def _groups(self, footer: pq.FileMetaData, physical: pa.Schema, stored: dict[int, str]) -> list[int]:
        """The row groups that may hold a row in question, by their statistics."""
        count = footer.num_row_groups
        if self.predicate is None or count == 0:
            return list(range(count))
        fields = {field.name: field for field in self.relation.schema.fields}

        def bounds_of(name: str) -> Bounds | None:
            field = fields.get(name)
            physical_name = stored.get(field.field_id) if field is not None else None
            if field is None or physical_name is None:
                return None
            return _group_bounds(footer, physical, physical_name, field)

        return [int(at) for at in np.flatnonzero(evaluate(self.predicate, bounds_of, count).may)]

    def _other(self, live: LiveFile) -> pa.Table:
        schema = schema_of(self.relation.schema, self.columns)
        table = self.reader.files(self.relation, self.checked).read(live.file, schema)
        if live.own or live.shared:
            table = table.filter(pa.array(self._alive(live)))
        return table.cast(pa.schema([self.relation.arrow.field(name) for name in table.column_names]))

    def _alive(self, live: LiveFile) -> Mask:
        return self.reader.alive(live, self.traffic, self.checked)

    def _kept(self, table: pa.Table) -> pa.RecordBatch:
        """Where there are many, without the rows that cannot matter: the engine would hold them first."""
        batch = pa.RecordBatch.from_arrays([_whole(column) for column in table.columns], names=table.column_names)
        if not self.filtering or self.predicate is None or not columns_of(self.predicate) <= set(table.column_names):
            return words.spelled(batch)
        return words.filtered(batch, self.predicate)


class _Kept(FileIO):
    """A FileIO over small objects of one length: what pyiceberg reads deletes through."""

    def __init__(self, objects: SmallObjects, length: int, traffic: Traffic) -> None:
        super().__init__()
        self._objects, self._length, self._traffic = objects, length, traffic

    def new_input(self, location: str) -> InputFile:
        return BytesInput(location, lambda path: self._objects.get(path, self._length, self._traffic))

    def new_output(self, location: str) -> Any:
        raise NotImplementedError("a query writes nothing")

    def delete(self, location: Any) -> None:
        raise NotImplementedError("a query writes nothing")


def _whole(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # type: ignore[return-value]


def _ids(physical: pa.Schema, metadata: TableMetadata) -> dict[int, str]:
    """Field id -> the column's name in the file. Files without ids are read by the table's name mapping."""
    found = {}
    for field in physical:
        stated = (field.metadata or {}).get(_FIELD_ID)
        if stated is not None:
            found[int(stated)] = field.name
    if found or not len(physical):
        return found
    mapping = metadata.name_mapping()
    schema = pyarrow_to_schema(physical, mapping, downcast_ns_timestamp_to_us=True, format_version=2)
    return {field.field_id: name for field, name in zip(schema.fields, physical.names, strict=False)}


def _leaves(footer: pq.FileMetaData, names: Sequence[str]) -> list[int]:
    wanted = set(names)
    schema = footer.schema
    return [at for at in range(footer.num_columns) if schema.column(at).path.split(".")[0] in wanted]


def _projected(
    found: pa.Table | None,
    fields: Sequence[NestedField],
    stored: dict[int, str],
    relation: Relation,
    physical: pa.Schema,
    count: int,
) -> pa.Table:
    """The file's columns under the relation's names and types, in the order of `fields`."""
    schema = pa.schema([relation.arrow.field(field.name) for field in fields])
    if found is not None and not all(isinstance(field.field_type, PrimitiveType) for field in fields):
        return _nested(found, fields, relation, physical, schema)
    columns = []
    for field, target in zip(fields, schema, strict=True):
        name = stored.get(field.field_id)
        if found is None or name is None:
            columns.append(pa.nulls(count, target.type))
        else:
            column = found[name]
            kept = pa.types.is_dictionary(column.type) or column.type == target.type
            columns.append(column if kept else column.cast(target.type))
    return pa.Table.from_arrays(columns, names=schema.names)


def _nested(
    found: pa.Table, fields: Sequence[NestedField], relation: Relation, physical: pa.Schema, schema: pa.Schema
) -> pa.Table:
    mapping = relation.metadata.name_mapping()
    whole = pyarrow_to_schema(physical, mapping, downcast_ns_timestamp_to_us=True, format_version=2)
    wanted = Schema(*fields, schema_id=relation.schema.schema_id)
    part = prune_columns(whole, wanted.field_ids, select_full_types=True)
    batches = [
        _to_requested_schema(wanted, part, batch, downcast_ns_timestamp_to_us=True) for batch in found.to_batches()
    ]
    if not batches:
        return schema.empty_table()
    return pa.Table.from_batches(batches).cast(schema)


def _group_bounds(footer: pq.FileMetaData, physical: pa.Schema, name: str, field: NestedField) -> Bounds | None:
    """A column's statistics over the file's row groups; None where Parquet's form is not certainly Iceberg's."""
    kind = physical.field(name).type
    number = next((at for at in range(footer.num_columns) if footer.schema.column(at).path == name), None)
    decode = _raw(kind, field)
    if number is None or decode is None:
        return None
    count = footer.num_row_groups
    lower, upper = np.empty(count, dtype=object), np.empty(count, dtype=object)
    known, nulls = np.zeros(count, dtype=bool), np.full(count, -1, dtype=np.int64)
    for at in range(count):
        statistics: Any = footer.row_group(at).column(number).statistics
        if statistics is None:
            continue
        if statistics.has_null_count:
            nulls[at] = statistics.null_count
        if statistics.has_min_max:
            low, high = decode(statistics.min_raw), decode(statistics.max_raw)
            if low == low and high == high:  # a NaN among them says nothing
                lower[at], upper[at], known[at] = low, high, True
    rows = np.array([footer.row_group(at).num_rows for at in range(count)], dtype=np.int64)
    nans = np.full(count, -1, dtype=np.int64) if pa.types.is_floating(kind) else None
    exact = np.full(count, not isinstance(field.field_type, StringType))
    return Bounds(lower, upper, known, nulls, nans, rows, exact)


def _raw(kind: Any, field: NestedField) -> Callable[[Any], Any] | None:
    if pa.types.is_timestamp(kind):
        return (lambda value: value) if kind.unit == "us" else None
    if pa.types.is_decimal(kind) and isinstance(field.field_type, DecimalType):
        scale = kind.scale

        def unscaled(value: Any) -> Decimal:
            number = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)
            return Decimal(number).scaleb(-scale)

        return unscaled
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_date32(kind) or pa.types.is_boolean(kind):
        return lambda value: value
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda value: value if isinstance(value, bytes) else str(value).encode()
    return None


def _plain(kind: Any) -> Any:
    """Arrow types as the engine takes them: text and bytes with 32-bit offsets, a UUID as its 16 bytes."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


_ZEROS = pa.py_buffer(bytes(1 << 16))


def with_phantoms(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    given = set(batch.schema.names)
    count = batch.num_rows
    columns = [batch.column(f.name) if f.name in given else phantom(f.type, count) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def phantom(kind: Any, count: int) -> pa.Array[Any]:
    """Nulls that all share one buffer of zeros: a column that is there by name only."""
    global _ZEROS
    if pa.types.is_nested(kind):
        return pa.nulls(count, kind)
    text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    width = 32 if text else getattr(kind, "bit_width", 128)
    needed = (count + 1) * max(width, 8) // 8 + 64
    if _ZEROS.size < needed:
        _ZEROS = pa.py_buffer(bytes(needed))
    buffers: list[Any] = [_ZEROS, _ZEROS, _ZEROS] if text else [_ZEROS, _ZEROS]
    return pa.Array.from_buffers(kind, count, buffers, null_count=count)


def _counted(schema: pa.Schema, count: int) -> Iterator[pa.RecordBatch]:
    """So many rows of which nothing is asked but that they are there."""
    step = 1 << 20
    for start in range(0, count, step):
        size = min(step, count - start)
        yield pa.RecordBatch.from_arrays([phantom(f.type, size) for f in schema], schema=schema)
