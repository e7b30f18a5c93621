"""The private names of pyiceberg that the lake uses, under plain names, each with why no public name serves.

No other module imports one: a unit test walks the imports. Check this file first after an upgrade of pyiceberg.
`catalog.tables.avro` and `catalog.tables.manifest_writer` also override protected members of pyiceberg's writers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.avro.file import _SCHEMA_KEY
from pyiceberg.catalog.glue import GlueCatalog, _construct_table_input
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _get_file_format,
    _pyarrow_to_schema_without_ids,
    _read_all_delete_files,
    _read_deletes,
    _to_requested_schema,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, StagedTable, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableUpdate, _apply_table_update, _TableMetadataUpdateContext
from pyiceberg.typedef import IcebergBaseModel

AVRO_SCHEMA_KEY = _SCHEMA_KEY
"""The key of the schema in an Avro file's header. The public writer composes a new header for every file."""

dataset_format = _get_file_format
"""Arrow's dataset format of an Iceberg file format. The public readers scan tables, not single files."""

read_position_deletes = _read_deletes
"""Data file path -> deleted positions, from one delete file. The public readers only apply them."""

project_batch = _to_requested_schema
"""A batch of a file under another schema, by field id. The public readers project whole scans only."""

schema_without_ids = _pyarrow_to_schema_without_ids
"""An Iceberg schema from an Arrow one whose fields have no ids. The public function requires ids or a name mapping."""

glue_table_input = _construct_table_input
"""Glue's TableInput for a table. The public `commit_table` loads the table again and swaps that version, not ours."""

InclusiveMetricsEvaluator, StrictMetricsEvaluator = _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
"""Whether statistics allow that a data file has a matching row, or prove that all its rows match. Only public scans
use them, and those do not tell the two apart."""


def scan_file_batches(scan: ArrowScan, io: FileIO, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """The rows of one file without deleted ones, batch by batch. The public `to_record_batches` opens all files."""
    deletes = _read_all_delete_files(io, [task])
    return scan._record_batches_from_scan_tasks_and_deletes([task], deletes)


def apply_updates(metadata: TableMetadata, updates: Sequence[TableUpdate]) -> TableMetadata:
    """The metadata after the updates. The public `update_table_metadata` makes a deep copy of all of it."""
    context = _TableMetadataUpdateContext()
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    return metadata


class ReplaceSnapshotsUpdate(IcebergBaseModel):
    """Puts snapshots in the place of those with the same ids, for an erasure. Iceberg has no such update: it never
    changes a snapshot. Goes with the updates of one commit, never to a REST catalog."""

    snapshots: list[Snapshot]


@_apply_table_update.register(ReplaceSnapshotsUpdate)
def _(  # type: ignore[misc]
    update: ReplaceSnapshotsUpdate, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    replaced = {snapshot.snapshot_id: snapshot for snapshot in update.snapshots}
    snapshots = [replaced.get(snapshot.snapshot_id, snapshot) for snapshot in base_metadata.snapshots]
    context.add_update(update)  # type: ignore[arg-type]
    return base_metadata.model_copy(update={"snapshots": snapshots, "statistics": [], "partition_statistics": []})


def transaction_updates(transaction: Transaction) -> tuple[TableUpdate, ...]:
    """The updates that a transaction gathered. The public `commit_transaction` sends them itself."""
    return transaction._updates


def add_updates(transaction: Transaction, updates: tuple[TableUpdate, ...]) -> None:
    """Adds updates to a transaction. Its public methods cannot replace a sort order by the one without fields."""
    transaction._apply(updates)


def get_glue_table(catalog: GlueCatalog, database: str, table: str) -> dict[str, Any]:
    """Glue's record of a table, with its VersionId: one GetTable. The public `load_table` drops the record."""
    return dict(catalog._get_glue_table(database_name=database, table_name=table))


def metadata_file_number(catalog: GlueCatalog, location: str) -> int:
    """The number in a metadata file's name; -1 without one. Only the public commit uses it."""
    return catalog._parse_metadata_version(location)


def new_table_location(catalog: GlueCatalog, database: str, table: str) -> str:
    """Where a new table is put, by the database's location: one GetDatabase. Only the public `create_table` uses it."""
    return catalog._resolve_table_location(None, database, table)


def stage_table(
    catalog: GlueCatalog,
    identifier: tuple[str, str],
    schema: Schema,
    spec: PartitionSpec,
    order: SortOrder,
    properties: dict[str, str],
) -> StagedTable:
    """A new table's metadata and the path for it; writes nothing. The public `create_table` also commits it."""
    return catalog._create_staged_table(identifier, schema, None, spec, order, properties)
