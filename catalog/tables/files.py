"""Writing Parquet: data files in the table's sort order, one set per partition, and position-delete files.

From Arrow in memory to bytes in memory to S3. Content-defined chunking makes pages end where the content says, so
that a rewritten file shares most of its blocks with the one it replaces.
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

from catalog.tables.fileio import CommitIO
from catalog.tables.partitions import sorted_rows, split
from catalog.tables.versions import Version

# Reserved by the Iceberg specification, "Reserved Field IDs".
PATH_ID, POSITION_ID = 2147483546, 2147483545
TARGET_BYTES = 256 << 20
ROW_GROUP_ROWS = 256 * 1024
# A dictionary of values that hardly ever come twice costs half of the encoding, and makes the file larger.
SAMPLE_ROWS = 4096
UNIQUE_SHARE = 0.95

_DELETES = pa.schema(
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

    version: Version

    @cached_property
    def schema(self) -> Schema:
        """The table's schema as its files spell it: Parquet, through Avro's rules, takes fewer names."""
        return sanitize_column_names(self.version.schema)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        return schema_to_pyarrow(self.schema, include_field_ids=True)

    @cached_property
    def target_bytes(self) -> int:
        return int(self.version.properties.get("write.target-file-size-bytes", TARGET_BYTES))

    def write(self, rows: pa.Table, io: CommitIO) -> list[DataFile]:
        """The rows as data files: partitioned, sorted, and cut where a file's Arrow size passes the target."""
        metadata, files = self.version.metadata, []
        order = metadata.sort_order()
        for partition, part in split(rows, self.version.schema, metadata.spec()):
            ordered = sorted_rows(part, self.version.schema, order)
            for piece in _pieces(ordered, self.target_bytes):
                files.append(self._write_file(piece, partition, io))
        return files

    def write_deletes(self, file: DataFile, positions: np.ndarray[Any, Any], io: CommitIO) -> DataFile:
        """All deleted positions of one data file, as its one position-delete file.

        Equal lower and upper bounds of file_path tell every reader which data file it is about; so the path must
        stand there whole, never truncated.
        """
        ordered = np.unique(positions.astype(np.int64))
        paths = pa.DictionaryArray.from_arrays(
            np.zeros(len(ordered), dtype=np.int32), pa.array([file.file_path], pa.string())
        ).cast(pa.string())
        rows = pa.Table.from_arrays([paths, pa.array(ordered)], schema=_DELETES)
        data, parquet = encode(rows, self._codec)
        spec = self.version.metadata.specs()[file.spec_id]
        folder = spec.partition_to_path(file.partition, self.version.schema) if len(file.partition) else ""
        path = f"{self.version.paths().data_path}/{folder + '/' if folder else ''}{uuid4()}-deletes.parquet"
        io.send(path, data)
        bounds = {PATH_ID: file.file_path.encode()}
        written = DataFile.from_args(
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
        written.spec_id = file.spec_id
        return written

    def _write_file(self, rows: pa.Table, partition: PartitionKey | None, io: CommitIO) -> DataFile:
        named = pa.Table.from_arrays(rows.columns, schema=self.arrow_schema)
        data, parquet = encode(named, self._codec)
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
    def _codec(self) -> str:
        codec = self.version.properties.get("write.parquet.compression-codec", "zstd")
        return "none" if codec == "uncompressed" else codec


def encode(rows: pa.Table, codec: str) -> tuple[bytes, pq.FileMetaData]:
    """The rows as one Parquet file."""
    sink = pa.BufferOutputStream()
    chosen: dict[str, Any] = {"compression": codec, "use_dictionary": _repeating(rows)}
    writer = pq.ParquetWriter(
        sink, rows.schema, store_decimal_as_integer=True, use_content_defined_chunking=True, **chosen
    )
    with writer:
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue().to_pybytes(), writer.writer.metadata


def _repeating(rows: pa.Table) -> list[str] | bool:
    """The columns, by their paths in Parquet, that a dictionary is worth its while for: judged by a sample."""
    if rows.num_rows < 2 * SAMPLE_ROWS:
        return True
    sample = rows.take(np.linspace(0, rows.num_rows - 1, SAMPLE_ROWS).astype(np.int64))
    return [path for field in rows.schema if not _is_unique(sample[field.name]) for path in _paths(field)]


def _is_unique(column: Any) -> bool:
    if pa.types.is_nested(column.type) or isinstance(column.type, pa.BaseExtensionType):
        return False
    return bool(pc.count_distinct(column).as_py() > UNIQUE_SHARE * len(column))


def _paths(field: Any, before: str = "") -> list[str]:
    """Those of a column's values, as Parquet has them, where lists and maps are a level of their own."""
    name: str = before + field.name
    kind: Any = field.type
    if pa.types.is_struct(kind):
        inner = list(kind)
    elif pa.types.is_map(kind):
        name, inner = f"{name}.key_value", [kind.key_field, kind.item_field]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        name, inner = f"{name}.list", [kind.value_field.with_name("element")]
    else:
        return [name]
    return [path for child in inner for path in _paths(child, f"{name}.")]


def _pieces(rows: pa.Table, target: int) -> Iterator[pa.Table]:
    count = max(1, -(-rows.nbytes // target))
    step = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
