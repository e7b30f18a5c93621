"""Describes a table from its metadata and manifests alone: no data file is opened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.types import NestedField, PrimitiveType

from catalog.iceberg import LiveFile, LiveFiles, ManifestReader, ObjectIO
from catalog.tables.glue_store import TableVersion
from catalog.tables.planner import KEY_PROPERTY, MODE_PROPERTY
from catalog.tables.write_modes import compaction_reason


@dataclass(frozen=True)
class Column:
    """A column with the statistics of its files; None where they have none.

    `low` and `high` bound the values, those of deleted rows too. Long texts are truncated, so a bound need not occur.
    `nulls` counts live rows; None if some rows of a file with nulls are deleted, since the file's statistics count all.
    """

    name: str
    type: str
    required: bool
    doc: str | None
    low: Any = None
    high: Any = None
    nulls: int | None = None


@dataclass(frozen=True)
class Description:
    """A table's schema, size and statistics. `rows` counts live rows. `committed_ms` is the time of the last commit."""

    name: str
    uuid: str
    location: str
    mode: str
    key: tuple[str, ...]
    partition: tuple[str, ...]
    sort: tuple[str, ...]
    rows: int
    files: int
    bytes: int
    pending_deletes: int
    delete_files: int
    manifests: int
    snapshots: int
    snapshot_id: int | None
    committed_ms: int | None
    tags: dict[str, int]
    needs_compaction: str | None
    columns: tuple[Column, ...]
    properties: dict[str, str]


def describe_table(version: TableVersion, io: ObjectIO, reader: ManifestReader) -> Description:
    metadata, schema, head = version.metadata, version.schema, version.head()
    live = LiveFiles.of(io, reader, head, version.name)
    files = [file.file for file in live.data]
    stored = sum(file.record_count for file in files)
    deleted = sum(entry.data_file.record_count for entry in live.deletes)
    return Description(
        name=version.name,
        uuid=version.uuid,
        location=metadata.location,
        mode=version.properties.get(MODE_PROPERTY, "cow"),
        key=tuple(name for name in version.properties.get(KEY_PROPERTY, "").split(",") if name),
        partition=tuple(f"{f.transform}({schema.find_column_name(f.source_id)})" for f in metadata.spec().fields),
        sort=tuple(f"{schema.find_column_name(f.source_id)} {f.direction.value}" for f in metadata.sort_order().fields),
        rows=stored - deleted,
        files=len(files),
        bytes=sum(file.file_size_in_bytes for file in files),
        pending_deletes=deleted,
        delete_files=len(live.deletes),
        manifests=live.manifests,
        snapshots=len(metadata.snapshots),
        snapshot_id=head.snapshot_id if head else None,
        committed_ms=head.timestamp_ms if head else None,
        tags={n: r.snapshot_id for n, r in metadata.refs.items() if r.snapshot_ref_type == SnapshotRefType.TAG},
        needs_compaction=compaction_reason(stored, deleted, len(live.deletes)),
        columns=tuple(_column(field, live.data) for field in schema.fields),
        properties=dict(version.properties),
    )


def _column(field: NestedField, files: Iterable[LiveFile]) -> Column:
    lows, highs, nulls, exact = [], [], 0, True
    has_bounds = isinstance(field.field_type, PrimitiveType)
    for live in files:
        file = live.file
        null_count = (file.null_value_counts or {}).get(field.field_id)
        exact = exact and not (live.deletes and null_count != 0)
        if null_count is None:
            # Either the file is older than the column, which is null in every row, or it has no statistics.
            has_bounds = has_bounds and bool(file.value_counts)
            nulls += file.record_count
            continue
        nulls += null_count
        if null_count < file.record_count:
            low, high = (
                (file.lower_bounds or {}).get(field.field_id),
                (file.upper_bounds or {}).get(field.field_id),
            )
            if low is None or high is None or not isinstance(field.field_type, PrimitiveType):
                has_bounds = False
                continue
            lows.append(from_bytes(field.field_type, low))
            highs.append(from_bytes(field.field_type, high))
    bounded = has_bounds and lows
    return Column(
        name=field.name,
        type=str(field.field_type),
        required=field.required,
        doc=field.doc,
        low=min(lows) if bounded else None,
        high=max(highs) if bounded else None,
        nulls=nulls if exact and isinstance(field.field_type, PrimitiveType) else None,
    )
