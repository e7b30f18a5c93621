"""Rows digests in Spark's Python workers: of batches that the JVM sends, and of files that a worker reads.

Every new worker imports this module first, so it imports little; what only file reads need is imported by the read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog.changes import RowsDigest

_TYPE: Any = pa.struct([("rows", pa.int64()), ("state", pa.binary())])


@dataclass(frozen=True)
class WrittenFiles:
    """Data files that are in no snapshot yet, with everything that reading them needs: no request to the catalog.

    `metadata`: the table's, as JSON, without its snapshots; `schema`: the one to read with, as JSON.
    """

    metadata: str
    schema: str
    properties: dict[str, str]
    files: tuple[tuple[str, str, int], ...]
    """Path, format and partition spec of each."""

    def digests(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For mapInArrow: takes rows with the number of a file, and returns one row with the digest for each."""
        for _, parts in self._read(batches):
            yield one_row(RowsDigest.sum(RowsDigest.of(rows) for rows in parts))

    def row_digests(self, prefix_bytes: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For mapInArrow: takes rows with the number of a file, and returns for each the number and one binary value:
        the first bytes of each of its rows' digests, in the order of the file."""
        from catalog.changes import row_digests

        for number, parts in self._read(batches):
            prefixes = (row_digests(rows)[:, :prefix_bytes].tobytes() for rows in parts)
            yield pa.RecordBatch.from_pydict({"file": [number], "digests": [b"".join(prefixes)]})

    def _read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[Any]]]:
        """The number of each file, and its rows by row group."""
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.manifest import DataFile, FileFormat
        from pyiceberg.schema import Schema
        from pyiceberg.table import Table
        from pyiceberg.table.metadata import TableMetadataUtil
        from pyiceberg.typedef import Record

        from catalog.changes import RowReader, TouchedFile
        from catalog.iceberg import ObjectIO

        metadata = TableMetadataUtil.parse_raw(self.metadata)
        table = Table(("written",), metadata, "", ObjectIO(self.properties), NoopCatalog("none"))
        reader = RowReader(table, Schema.model_validate_json(self.schema))
        for batch in batches:
            numbers: Any = batch.column(0).to_pylist()
            for number in numbers:
                path, kind, spec = self.files[number]
                file = DataFile.from_args(file_path=path, file_format=FileFormat(kind.upper()), partition=Record())
                file.spec_id = spec
                yield number, reader.read(TouchedFile(file))


def digests_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: takes the batches of a partition, and returns one row with the digest."""
    yield one_row(RowsDigest.sum(_digest(schema, batch.columns) for batch in batches))


def first_of_batch(schema: pa.Schema, columns: Sequence[pa.Array]) -> pa.Array:
    """For a column: the batch's digest in its first row, NULL in the others."""
    rows = len(columns[0])
    if not rows:
        return pa.array([], _TYPE)
    first = pa.array([_digest(schema, columns).columns], _TYPE)
    return pa.concat_arrays([first, pa.nulls(rows - 1, _TYPE)])


def one_row(digest: RowsDigest) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([digest.columns], schema=pa.schema(_TYPE))


def _digest(schema: pa.Schema, columns: Iterable[pa.Array]) -> RowsDigest:
    arrays = [_as_stored(column, field) for column, field in zip(columns, schema, strict=True)]
    fields = [field.with_type(array.type).with_nullable(True) for field, array in zip(schema, arrays, strict=True)]
    return RowsDigest.of(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))


def _as_stored(column: Any, field: pa.Field[Any]) -> Any:
    """Spark's column as the table stores it: with field ids in the type, and a uuid as 16 bytes rather than text."""
    kind = _relaxed(field.type)
    if _has_uuid(field.type):
        return pa.array([_uuids(value, field.type) for value in column.to_pylist()], kind)
    return column.cast(kind)


def _uuids(value: Any, kind: Any) -> Any:
    """The value with each uuid's text as bytes, at any depth."""
    if value is None or not _has_uuid(kind):
        return value
    if isinstance(kind, pa.BaseExtensionType):
        return bytes.fromhex(value.replace("-", ""))
    if pa.types.is_struct(kind):
        return {field.name: _uuids(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_uuids(key, kind.key_type), _uuids(item, kind.item_type)) for key, item in value]
    return [_uuids(item, kind.value_type) for item in value]


def _has_uuid(kind: Any) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return True
    return any(_has_uuid(kind.field(position).type) for position in range(kind.num_fields))


def _relaxed(kind: Any) -> Any:
    """The type, nullable at every level: Arrow casts no nullable type to a required one, even without NULLs."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_relaxed(field.type)).with_nullable(True) for field in kind])
    if pa.types.is_map(kind):
        key, item = (field.with_type(_relaxed(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item.with_nullable(True))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_relaxed(kind.value_type)).with_nullable(True))
    return kind
