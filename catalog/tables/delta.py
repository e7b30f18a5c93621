"""A delta: the files that one commit adds and removes; and the snapshot and table updates made from it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate

from catalog.core.errors import Invalid
from catalog.iceberg import CommitIO, ManifestReader
from catalog.tables.glue_store import TableVersion
from catalog.tables.manifest_writer import FORMAT_VERSION, ManifestPlan
from catalog.tables.write_modes import compaction_reason

COMPACTION = "strandline.compaction"
"""The summary property of a table that should be compacted: the reason."""


@dataclass(frozen=True)
class Delta:
    """The data files and position-delete files that a commit adds and removes.

    `rows` are new; `matched` rows existed before, and are replaced or deleted. `mode` is the write mode used, `reason`
    why it was chosen.
    """

    added: tuple[DataFile, ...] = ()
    removed: tuple[ManifestEntry, ...] = ()
    rows: int = 0
    matched: int = 0
    mode: str = ""
    reason: str = ""
    operation: Operation | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.added and not self.removed

    def with_properties(self, properties: Mapping[str, str]) -> Delta:
        return replace(self, properties={**self.properties, **properties})

    def kind(self) -> Operation:
        """Iceberg's operation: append adds rows, delete removes rows, overwrite does both."""
        if self.operation is not None:
            return self.operation
        if not self.removed and all(file.content == 0 for file in self.added):
            return Operation.APPEND
        if not any(file.content == 0 for file in self.added):
            return Operation.DELETE
        return Operation.OVERWRITE


def build_snapshot(
    version: TableVersion,
    delta: Delta,
    io: CommitIO,
    reader: ManifestReader,
    *,
    branch: str = MAIN_BRANCH,
    snapshot_id: int | None = None,
) -> tuple[Snapshot, list[TableUpdate]]:
    """Writes the delta's manifests and manifest list, which may be in flight on return; gives the updates to commit."""
    metadata, parent = version.metadata, version.head(branch)
    if metadata.format_version != FORMAT_VERSION:
        raise Invalid(
            f"{version.name} has Iceberg format {metadata.format_version}: only format {FORMAT_VERSION} can be written",
            subject=version.name,
        )
    snapshot_id = snapshot_id or metadata.new_snapshot_id()
    sequence = metadata.next_sequence_number()
    plan = ManifestPlan(version, io, reader, snapshot_id, sequence)
    manifests = plan.write(parent, delta.added, delta.removed)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence,
        # Strictly later than any earlier change of the table, so that "as of" a time names one snapshot.
        timestamp_ms=max(int(time.time() * 1000), metadata.last_updated_ms + 1),
        manifest_list=plan.write_list(parent, manifests),
        summary=summarise(version, delta, parent),
        schema_id=metadata.current_schema_id,
    )
    return snapshot, [AddSnapshotUpdate(snapshot=snapshot), set_ref(branch, snapshot.snapshot_id)]


def summary_value(snapshot: Snapshot | None, name: str) -> str:
    """A property of a snapshot's summary; empty if it has none."""
    return str(snapshot.summary[name] or "") if snapshot is not None and snapshot.summary is not None else ""


def set_ref(name: str, snapshot_id: int, kind: SnapshotRefType = SnapshotRefType.BRANCH) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def summarise(version: TableVersion, delta: Delta, parent: Snapshot | None) -> Summary:
    collector, specs = SnapshotSummaryCollector(), version.metadata.specs()
    for file in delta.added:
        collector.add_file(file, version.schema, specs[file.spec_id])
    for entry in delta.removed:
        collector.remove_file(entry.data_file, version.schema, specs[entry.data_file.spec_id])
    # pyiceberg computes totals for every operation but "replace", whose totals are computed in the same way.
    counts = Summary(operation=Operation.OVERWRITE, **collector.build(), **delta.properties)
    totals = update_snapshot_summaries(counts, parent.summary if parent else None)
    summary = Summary(operation=delta.kind(), **totals.additional_properties)
    reason = compaction_reason(
        int(summary["total-records"] or 0),
        int(summary["total-position-deletes"] or 0),
        int(summary["total-delete-files"] or 0),
    )
    if reason:
        summary[COMPACTION] = reason
    return summary
