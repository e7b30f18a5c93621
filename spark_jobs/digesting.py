"""What Spark's Python workers do for a proof: digests of batches that the JVM sends, and of files read back.

A worker begins by importing this module, for every task of a job that is no longer warm: so it imports little, and what
only reading needs, when it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog.changes.multiset import RowsDigest

NAMES = tuple(RowsDigest().named)
_ARROW: Any = pa.struct([(name, pa.int64()) for name in NAMES])


@dataclass(frozen=True)
class WrittenFiles:
    """Data files of a table that no snapshot has yet, and all that reading them takes: no catalog is asked.

    `metadata`: the table's, as JSON, without its snapshots; `schema`: the one to read with, as JSON.
    """

    metadata: str
    schema: str
    properties: dict[str, str]
    files: tuple[tuple[str, str, int], ...]
    """Path, format and partition spec of each."""

    def digests(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For mapInArrow: rows of one number in, which file to read; one row of sums out for each."""
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.manifest import DataFile, FileFormat
        from pyiceberg.schema import Schema
        from pyiceberg.table import Table
        from pyiceberg.table.metadata import TableMetadataUtil
        from pyiceberg.typedef import Record

        from catalog.changes.reading import Reader
        from catalog.changes.sources import Source
        from catalog.tables.fileio import ObjectIO

        metadata = TableMetadataUtil.parse_raw(self.metadata)
        table = Table(("written",), metadata, "", ObjectIO(self.properties), NoopCatalog("none"))
        reader = Reader(table, Schema.model_validate_json(self.schema))
        for batch in batches:
            numbers: Any = batch.column(0).to_pylist()
            for number in numbers:
                path, kind, spec = self.files[number]
                file = DataFile.from_args(file_path=path, file_format=FileFormat(kind.upper()), partition=Record())
                file.spec_id = spec
                yield one_row(RowsDigest.sum(RowsDigest.of(rows) for rows in reader.read(Source(file))))


def digests_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: the batches of a part in, one row of sums out."""
    yield one_row(RowsDigest.sum(_of(schema, batch.columns) for batch in batches))


def first_of_batch(schema: pa.Schema, columns: Sequence[pa.Array]) -> pa.Array:
    """For a column: the batch's sums beside its first row, NULL beside the others; what is summed is the same."""
    rows = len(columns[0])
    if not rows:
        return pa.array([], _ARROW)
    first = pa.array([_of(schema, columns).named], _ARROW)
    return pa.concat_arrays([first, pa.nulls(rows - 1, _ARROW)])


def one_row(found: RowsDigest) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([found.named], schema=pa.schema(_ARROW))


def _of(schema: pa.Schema, columns: Iterable[pa.Array]) -> RowsDigest:
    arrays = [_as_stored(column, field) for column, field in zip(columns, schema, strict=True)]
    named = [field.with_type(array.type).with_nullable(True) for field, array in zip(schema, arrays, strict=True)]
    return RowsDigest.of(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(named)))


def _as_stored(column: Any, field: pa.Field[Any]) -> Any:
    """Spark's column as the table has it: field ids are in the type, and a uuid is 16 bytes, not text."""
    kind = _relaxed(field.type)
    if _has_uuid(field.type):
        return pa.array([_uuids(value, field.type) for value in column.to_pylist()], kind)
    return column.cast(kind)


def _uuids(value: Any, kind: Any) -> Any:
    """The value with each uuid's text as its bytes, however deep it stands."""
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
    return any(_has_uuid(kind.field(at).type) for at in range(kind.num_fields))


def _relaxed(kind: Any) -> Any:
    """The type, nullable throughout: Arrow casts nothing nullable to what is not, even if no value is null."""
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
