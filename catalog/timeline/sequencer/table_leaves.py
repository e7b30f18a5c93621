"""Leaves from table events: with the attestation of each new snapshot and the row changes of each move of main.

Writes only attestations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.core.errors import Invalid
from catalog.iceberg import ROWS_DIGEST
from catalog.timeline.log.leaf import ATTESTED_BY_LAKE, MAIN, MOVES_OF_MAIN, Leaf
from catalog.timeline.sequencer.attestation import Attestations, ChangesDigest, ComputeChanges
from catalog.timeline.sequencer.table_state import TableEvent

_SHA256 = re.compile(r"[0-9a-f]{64}")
_LATEST_MS = 9_999_999_999_999  # has as many digits as any time of the next 260 years


@dataclass(frozen=True)
class LeafBuilder:
    """Builds the leaves of one table, at one of its metadata files."""

    name: str
    uuid: str
    table: Table
    metadata_sha256: str
    attestations: Attestations
    compute_changes: ComputeChanges | None

    def build(self, events: Sequence[TableEvent], first_sequence: int, pool: ThreadPoolExecutor) -> list[Leaf]:
        """One leaf per event, in order. Attestations and changes are loaded side by side."""
        return [
            replace(leaf, sequence=sequence)
            for sequence, leaf in enumerate(pool.map(self._leaf, events), first_sequence)
        ]

    def _leaf(self, event: TableEvent) -> Leaf:
        leaf = build_leaf(self.name, self.uuid, self.metadata_sha256, 0, event)
        if event.snapshot is not None:
            return self._with_attestation(leaf, event, event.snapshot)
        changes = self._changes_of_move(event)
        if changes is None:
            return leaf
        return replace(leaf, changes_root=changes.root, changes_count=changes.count, attested=ATTESTED_BY_LAKE)

    @cached_property
    def _snapshots(self) -> dict[int, Snapshot]:
        return {snapshot.snapshot_id: snapshot for snapshot in self.table.metadata.snapshots}

    def _with_attestation(self, leaf: Leaf, event: TableEvent, snapshot: Snapshot) -> Leaf:
        """The leaf of an event that adds a snapshot. Its changes are from `event.parent_id`.

        A writer's changes are from the parent that the snapshot names, so they are believed only if that is the same.
        """
        attestation, attested = self.attestations.load(
            self.uuid,
            snapshot,
            self.table.io,
            lambda io: self._changes(event.parent_id, snapshot, snapshot.schema_id, io),
            believe_changes=event.parent_id == snapshot.parent_snapshot_id,
        )
        leaf = replace(
            leaf,
            manifest_list_sha256=attestation.manifest_list.sha256,
            content_root=attestation.content_root,
            content_count=len(attestation.entries),
            changes_root=attestation.changes_root,
            changes_count=attestation.changes_count,
            attested=attested,
        )
        return _with_rows_digest(leaf, snapshot)

    def _changes_of_move(self, event: TableEvent) -> ChangesDigest | None:
        """The row changes of an event that moves main to another snapshot."""
        if event.ref != MAIN or event.operation not in MOVES_OF_MAIN or event.snapshot_id is None:
            return None
        until = self._snapshots.get(event.snapshot_id)
        return None if until is None else self._changes(event.parent_id, until, None, self.table.io)

    def _changes(
        self, since_id: int | None, until: Snapshot, schema_id: int | None, io: FileIO
    ) -> ChangesDigest | None:
        """The row changes between two snapshots, read through `io`; None when the earlier one has expired."""
        if self.compute_changes is None:
            return None
        since = None if since_id is None else self._snapshots.get(since_id)
        if since_id is not None and since is None:
            return None
        table = Table(self.table.name(), self.table.metadata, self.table.metadata_location, io, self.table.catalog)
        schema_id = table.metadata.current_schema_id if schema_id is None else schema_id
        return self.compute_changes(table, since, until, schema_id)


def build_leaf(name: str, uuid: str, metadata_sha256: str | None, sequence: int, event: TableEvent) -> Leaf:
    """The leaf of one event, without digests of what it added."""
    return Leaf(
        table=name,
        table_uuid=uuid,
        snapshot_id=event.snapshot_id,
        parent_id=event.parent_id,
        sequence=sequence,
        committed_ms=event.committed_ms,
        sequenced_ms=0,
        operation=event.operation,
        ref=event.ref,
        schema_sha256=event.schema_sha256,
        metadata_sha256=metadata_sha256,
    )


def _with_rows_digest(leaf: Leaf, snapshot: Snapshot) -> Leaf:
    """The leaf with the rows digest that a rewrite states in its summary. Deep verification recomputes the digest.

    Left out where a long name leaves no room for it in the leaf: the table must still be sequenced.
    """
    digest = snapshot.summary[ROWS_DIGEST] if snapshot.summary is not None else None
    if leaf.operation != "replace" or digest is None or not _SHA256.fullmatch(digest):
        return leaf
    with suppress(Invalid):
        replace(leaf, rows_digest=digest, sequenced_ms=_LATEST_MS).encode()
        return replace(leaf, rows_digest=digest)
    return leaf
