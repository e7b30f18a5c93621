"""The multiset digest of a frame's rows (catalog.changes.multiset), taken in one pass, or as they flow to a writer.

Rows go to the Python workers as Arrow, where the one implementation of the row digest is: as SQL it was slower.
What comes back is a handful of numbers for a batch. Files can be read by the workers themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql.functions import arrow_udf, col, expr

from catalog.changes.multiset import RowsDigest
from catalog.changes.reading import Reader
from catalog.changes.sources import Source
from catalog.lake import open_lake
from catalog.settings import Settings

_SUMS = "__strandline_sums"
_NAMES = tuple(RowsDigest().named)
_TYPE = ", ".join(f"{name} bigint" for name in _NAMES)
_ARROW: Any = pa.struct([(name, pa.int64()) for name in _NAMES])


def digest(frame: DataFrame, schema: pa.Schema) -> RowsDigest:
    """The digest of a frame's rows: one pass over them. `schema`: its columns with their field ids."""
    # Under plain names: mapInArrow cannot take every one that a column may have.
    chosen = frame.select(*(_column(name).alias(f"c{at}") for at, name in enumerate(schema.names)))
    parts = chosen.mapInArrow(partial(_digests, schema), _TYPE).collect()
    return RowsDigest.sum(RowsDigest.parse(part.asDict()) for part in parts)


def watched(frame: DataFrame, schema: pa.Schema, into: Observation) -> DataFrame:
    """The frame as it is, whose rows are digested when they are read; `seen` says the outcome afterwards.

    Rows that are read twice count twice. Sums are exact up to 2**31 rows; then Spark's ANSI mode stops with an
    overflow rather than a wrong sum.
    """

    def sums(*columns: pa.Array) -> pa.Array:
        return _first_of_batch(schema, columns)

    of_batch: Any = arrow_udf(sums, _TYPE)
    marked = frame.withColumn(_SUMS, of_batch(*map(_column, schema.names)))
    totals = [expr(f"sum({_SUMS}.{name})").alias(name) for name in _NAMES]
    return marked.observe(into, *totals).drop(_SUMS)


def digest_files(
    spark: SparkSession, settings: Settings, table: str, schema: Schema, files: Sequence[tuple[str, str, int]]
) -> RowsDigest:
    """The digest of all rows in data files of a table: path, format and partition spec of each.

    Each is read by one task, straight from the store by Arrow: no row passes through the JVM. Memory: a row group.
    """
    if not files:
        return RowsDigest()
    named = spark.createDataFrame(list(files), "path string, format string, spec int")
    work = partial(_read, settings, table, schema.model_dump_json())
    parts = named.repartition(len(files)).mapInArrow(work, _TYPE).collect()
    return RowsDigest.sum(RowsDigest.parse(part.asDict()) for part in parts)


def seen(observation: Observation) -> RowsDigest:
    return RowsDigest.parse(observation.get)


def _read(settings: Settings, table: str, schema: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    wanted = [row for batch in batches for row in batch.to_pylist()]
    if not wanted:
        return
    reader = Reader(open_lake(settings).tables.load(table), Schema.model_validate_json(schema))
    for row in wanted:
        file = DataFile.from_args(
            file_path=row["path"], file_format=FileFormat(row["format"].upper()), partition=Record()
        )
        file.spec_id = row["spec"]
        found = RowsDigest.sum(RowsDigest.of(rows) for rows in reader.read(Source(file)))
        yield pa.RecordBatch.from_pylist([found.named], schema=pa.schema(_ARROW))


def _digests(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: the batches of a part in, one row of sums out."""
    found = RowsDigest.sum(_of(schema, batch.columns) for batch in batches)
    yield pa.RecordBatch.from_pylist([found.named], schema=pa.schema(_ARROW))


def _first_of_batch(schema: pa.Schema, columns: Sequence[pa.Array]) -> pa.Array:
    """For a column: the batch's sums beside its first row, NULL beside the others; what is summed is the same."""
    rows = len(columns[0])
    return pa.array([_of(schema, columns).named, *[None] * (rows - 1)] if rows else [], _ARROW)


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


def _column(name: str) -> Column:
    return col("`" + name.replace("`", "``") + "`")
