"""Writes Parquet: data files in the table's sort order, one set per partition, and position-delete files.

Encodes from Arrow to bytes in memory, then sends them to S3. Content-defined chunking ends pages by their content, so
that a rewritten file shares most of its pages with the one it replaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from catalog.iceberg import PATH_ID, POSITION_ID, CommitIO
from catalog.tables.glue_store import TableVersion
from catalog.tables.parquet_names import with_file_names
from catalog.tables.partitions import sorted_rows, split

TARGET_BYTES = 256 << 20
ROW_GROUP_ROWS = 256 * 1024
# A dictionary of mostly distinct values takes half of the encoding time and makes the file larger.
SAMPLE_ROWS = 4096
UNIQUE_SHARE = 0.95

DELETES_SCHEMA = pa.schema(
    cast(
        "list[pa.Field[Any]]",
        [
            pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
            pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
        ],
    )
)


@dataclass(frozen=True)
class FileWriter:
    """Writes files for one version of a table. Rows must already have the table's schema."""

    version: TableVersion

    @cached_property
    def schema(self) -> Schema:
        """The table's schema with the column names of its files: Iceberg applies Avro's naming rules to Parquet."""
        return sanitize_column_names(self.version.schema)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        return schema_to_pyarrow(self.schema, include_field_ids=True)

    @cached_property
    def target_bytes(self) -> int:
        return int(self.version.properties.get("write.target-file-size-bytes", TARGET_BYTES))

    def write(self, rows: pa.Table, io: CommitIO) -> list[DataFile]:
        """Writes the rows as data files: partitioned, sorted, and split at the target size, measured in Arrow."""
        metadata, files = self.version.metadata, []
        order = metadata.sort_order()
        for partition, part in split(rows, self.version.schema, metadata.spec()):
            ordered = sorted_rows(part, self.version.schema, order)
            for rows_of_file in _slices(ordered, self.target_bytes):
                files.append(self._write_file(rows_of_file, partition, io))
        return files

    def write_deletes(self, file: DataFile, positions: np.ndarray[Any, Any], io: CommitIO) -> DataFile:
        """Writes all deleted positions of one data file as its one position-delete file.

        Equal lower and upper bounds of file_path tell readers which data file it applies to, so they hold the whole
        path, never a truncated one.
        """
        ordered = np.unique(positions.astype(np.int64))
        paths = pa.DictionaryArray.from_arrays(
            np.zeros(len(ordered), dtype=np.int32), pa.array([file.file_path], pa.string())
        ).cast(pa.string())
        rows = pa.Table.from_arrays([paths, pa.array(ordered)], schema=DELETES_SCHEMA)
        data, parquet = encode(rows, self.codec)
        spec = self.version.metadata.specs()[file.spec_id]
        folder = spec.partition_to_path(file.partition, self.version.schema) if len(file.partition) else ""
        path = f"{self.version.paths().data_path}/{folder + '/' if folder else ''}{uuid4()}-deletes.parquet"
        io.send(path, data)
        bounds = {PATH_ID: file.file_path.encode()}
        deletes = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=file.partition,
            record_count=len(ordered),
            file_size_in_bytes=len(data),
            column_sizes={},
            value_counts={PATH_ID: len(ordered), POSITION_ID: len(ordered)},
            null_value_counts={PATH_ID: 0, POSITION_ID: 0},
            nan_value_counts={},
            lower_bounds={**bounds, POSITION_ID: to_bytes(LongType(), int(ordered[0]))},
            upper_bounds={**bounds, POSITION_ID: to_bytes(LongType(), int(ordered[-1]))},
            key_metadata=None,
            split_offsets=[parquet.row_group(0).column(0).file_offset or 4],
            equality_ids=None,
            sort_order_id=None,
        )
        deletes.spec_id = file.spec_id
        return deletes

    def _write_file(self, rows: pa.Table, partition: PartitionKey | None, io: CommitIO) -> DataFile:
        with_ids = with_file_names(rows, self.arrow_schema)
        data, parquet = encode(with_ids, self.codec)
        path = self.version.paths().new_data_location(f"{uuid4()}.parquet", partition)
        io.send(path, data)
        statistics = data_file_statistics_from_parquet_metadata(parquet, self._statistics, self._column_ids)
        order = self.version.metadata.sort_order()
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=partition.partition if partition else Record(),
            file_size_in_bytes=len(data),
            sort_order_id=order.order_id if order.fields else None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        file.spec_id = self.version.metadata.default_spec_id
        return file

    @cached_property
    def _statistics(self) -> Any:
        return compute_statistics_plan(self.schema, self.version.properties)

    @cached_property
    def _column_ids(self) -> dict[str, int]:
        return parquet_path_to_id_mapping(self.schema)

    @cached_property
    def codec(self) -> str:
        codec = self.version.properties.get("write.parquet.compression-codec", "zstd")
        return "none" if codec == "uncompressed" else codec


def encode(rows: pa.Table, codec: str) -> tuple[bytes, pq.FileMetaData]:
    """The rows as one Parquet file."""
    sink = pa.BufferOutputStream()
    options: dict[str, Any] = {"compression": codec, "use_dictionary": _dictionary_columns(rows)}
    writer = pq.ParquetWriter(
        sink, rows.schema, store_decimal_as_integer=True, use_content_defined_chunking=True, **options
    )
    with writer:
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue().to_pybytes(), writer.writer.metadata


def _dictionary_columns(rows: pa.Table) -> list[str] | bool:
    """The Parquet paths of the columns to encode with a dictionary, by a sample; True: all of them."""
    if rows.num_rows < 2 * SAMPLE_ROWS:
        return True
    sample = rows.take(np.linspace(0, rows.num_rows - 1, SAMPLE_ROWS).astype(np.int64))
    return [path for field in rows.schema if not _mostly_distinct(sample[field.name]) for path in _parquet_paths(field)]


def _mostly_distinct(column: Any) -> bool:
    if pa.types.is_nested(column.type) or isinstance(column.type, pa.BaseExtensionType):
        return False
    return bool(pc.count_distinct(column).as_py() > UNIQUE_SHARE * len(column))


def _parquet_paths(field: Any, prefix: str = "") -> list[str]:
    """The paths of a column's leaves in Parquet, where lists and maps add a level."""
    name: str = prefix + field.name
    kind: Any = field.type
    if pa.types.is_struct(kind):
        inner = list(kind)
    elif pa.types.is_map(kind):
        name, inner = f"{name}.key_value", [kind.key_field, kind.item_field]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        name, inner = f"{name}.list", [kind.value_field.with_name("element")]
    else:
        return [name]
    return [path for child in inner for path in _parquet_paths(child, f"{name}.")]


def _slices(rows: pa.Table, target: int) -> Iterator[pa.Table]:
    count = max(1, -(-rows.nbytes // target))
    step = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
