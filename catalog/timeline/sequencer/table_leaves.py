"""Leaves from table events: the attestation of each new snapshot, the changes of each move of main, the rows after it.

Writes only attestations.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.iceberg import ROWS_DIGEST
from catalog.merkle.prefix_map import ReadNodes
from catalog.timeline.log.erasure import ERASURE_PROPERTY
from catalog.timeline.log.leaf import ATTESTED_BY_LAKE, ERASE, MAIN, MOVES_OF_MAIN, Leaf
from catalog.timeline.sequencer.attestation import Attestations, ChangesDigest, ComputeChanges
from catalog.timeline.sequencer.erasure_records import ErasureRecords
from catalog.timeline.sequencer.row_state import NOT_COMPUTED, ComputeState, RowState
from catalog.timeline.sequencer.table_state import MetadataFile, TableEvent

logger = logging.getLogger(__name__)

AT_ONCE = 8
"""Events whose changes are computed side by side, and held in memory until the rows after them are known."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LATEST_MS = 9_999_999_999_999  # has as many digits as any time of the next 260 years


@dataclass(frozen=True)
class BuiltLeaf:
    """A leaf, and the state of main's rows after it; None if the leaf does not say which rows main has."""

    leaf: Leaf
    rows: RowState | None = None


@dataclass(frozen=True)
class LeafBuilder:
    """Builds the leaves of one table, at one of its metadata files.

    `stored_rows`: the stored state of main's rows before the first of them. `read_nodes`: of its state map.
    """

    name: str
    uuid: str
    table: Table
    file: MetadataFile
    attestations: Attestations
    compute_changes: ComputeChanges | None
    compute_state: ComputeState | None
    stored_rows: bytes | None
    read_nodes: ReadNodes

    def build(self, events: Sequence[TableEvent], first_sequence: int, pool: ThreadPoolExecutor) -> Iterator[BuiltLeaf]:
        """One leaf per event, in order. Attestations and changes are loaded side by side; states follow each other."""
        stored, new_nodes, remaining = self.stored_rows, dict[bytes, bytes](), iter(events)
        sequence = first_sequence
        while window := list(islice(remaining, AT_ONCE)):
            for leaf, changes in pool.map(self._leaf, window):
                leaf, rows = replace(leaf, sequence=sequence), None
                if leaf.states_rows:
                    rows = self._rows_after(leaf, changes, stored, new_nodes)
                    stored = rows.stored or stored
                    leaf = replace(leaf, state_digest=rows.digest, state_root=rows.root, state_missing=rows.missing)
                yield BuiltLeaf(leaf, rows)
                sequence += 1

    def _leaf(self, event: TableEvent) -> tuple[Leaf, ChangesDigest | None]:
        """The leaf of an event, without the rows after it; and its changes, if they were computed from the files."""
        leaf = build_leaf(self.name, self.uuid, self.file.sha256, 0, event)
        if event.snapshot is not None:
            return self._with_attestation(leaf, event, event.snapshot)
        if event.operation == ERASE:
            return self._with_erasure(leaf), None
        changes = self._changes_of_move(event)
        if changes is not None:
            leaf = replace(leaf, changes_root=changes.root, changes_count=changes.count, attested=ATTESTED_BY_LAKE)
        return leaf, changes

    def _with_erasure(self, leaf: Leaf) -> Leaf:
        """The leaf with the root of the erasure's record. Without a valid record nothing is erased: a `metadata` leaf.

        That the record tells the truth is for deep verification, which the eraser runs before it deletes anything.
        """
        records = ErasureRecords(self.attestations.s3, self.attestations.bucket)
        try:
            erasure = records.load(self.uuid, self.table.metadata.properties[ERASURE_PROPERTY])
        except (NotFound, Unverified) as error:
            logger.warning("an erasure has no valid record", extra={"table": self.name, "error": error.message})
            return replace(leaf, operation="metadata")
        return replace(leaf, content_root=erasure.content_root, content_count=erasure.content_count)

    def _rows_after(
        self, leaf: Leaf, changes: ChangesDigest | None, stored: bytes | None, new_nodes: dict[bytes, bytes]
    ) -> RowState:
        """The state of main's rows after the leaf. `new_nodes`: those that are not stored yet; its own are added."""
        if self.compute_state is None:
            return RowState(None, None, NOT_COMPUTED, b"")
        until = None if leaf.snapshot_id is None else self._snapshots.get(leaf.snapshot_id)
        schema_id = self._schema_ids.get(leaf.schema_sha256 or "")

        def read_nodes(hashes: Sequence[bytes]) -> Sequence[bytes]:
            unknown = [hash_ for hash_ in hashes if hash_ not in new_nodes]
            read = dict(zip(unknown, self.read_nodes(unknown), strict=True)) if unknown else {}
            return [new_nodes.get(hash_) or read[hash_] for hash_ in hashes]

        rows = self.compute_state(self.table, leaf, until, schema_id, stored, changes, read_nodes)
        new_nodes |= rows.nodes
        return rows

    @cached_property
    def _schema_ids(self) -> dict[str, int]:
        return {digest: schema_id for schema_id, digest in self.file.schemas.items()}

    @cached_property
    def _snapshots(self) -> dict[int, Snapshot]:
        return {snapshot.snapshot_id: snapshot for snapshot in self.table.metadata.snapshots}

    def _with_attestation(self, leaf: Leaf, event: TableEvent, snapshot: Snapshot) -> tuple[Leaf, ChangesDigest | None]:
        """The leaf of an event that adds a snapshot. Its changes are from `event.parent_id`.

        A writer's changes are from the parent that the snapshot names, so they are believed only if that is the same.
        """
        computed = list[ChangesDigest | None]()

        def compute_changes(io: FileIO) -> ChangesDigest | None:
            computed.append(self._changes(event.parent_id, snapshot, snapshot.schema_id, io))
            return computed[0]

        attestation, attested = self.attestations.load(
            self.uuid,
            snapshot,
            self.table.io,
            compute_changes,
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
        return _with_rows_digest(leaf, snapshot), computed[0]

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
