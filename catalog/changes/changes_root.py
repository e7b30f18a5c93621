"""The root of a commit's changes, as its leaf carries it: the same from the writer, the sequencer and an auditor.

It is computed from the files alone, and the files alone decide whether it is computed (LIMIT), not the caller. For a
commit over the limit, a job may stage the root (see catalog.timeline.sequencer.attestation); else the leaf has none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.change_set import ChangeSet
from catalog.changes.comparison import between
from catalog.changes.limits import Limit
from catalog.changes.multiset import RowsDigest
from catalog.changes.records import change_hashes, records
from catalog.changes.row_reader import RowReader
from catalog.changes.touched_rows import diff_snapshots
from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.iceberg import ManifestReader
from catalog.merkle.tree import root as tree_root
from catalog.timeline import ChangesDigest, Miscounted, RecomputedChanges

log = logging.getLogger(__name__)

LIMIT = Limit(rows=200_000, bytes=32 << 20)
"""What a Lambda function compares within its memory and in about a second, not counting reads."""

AUDIT_LIMIT = Limit(rows=10_000_000, bytes=1 << 30)
"""What an auditor compares, on a machine rather than in a Lambda function."""

# Many commits are attested concurrently, and each comparison holds its changes in memory.
_COMPARISONS = threading.BoundedSemaphore(2)


def changes_of(
    table: Table,
    since: Snapshot | None,
    until: Snapshot,
    schema_id: int,
    *,
    limit: Limit = LIMIT,
    manifests: ManifestReader | None = None,
    with_records: bool = False,
) -> ChangesDigest | None:
    """Root and count of the changes between two snapshots, under a schema: the sequencer's `ComputeChanges`.

    None over the limit, for equality deletes, which have no exact changes, and for files that are gone or cannot
    be read. An unavailable service (S3) raises, so that a retry gives the result that the first call would have.
    `manifests` may hold manifests that the caller has read or written; they are not read again. `with_records`: the
    result has the changes' records, 97 bytes each.
    """
    try:
        with _COMPARISONS:
            changes = between(table, since, until, schema=table.schemas()[schema_id], limit=limit, manifests=manifests)
    except (Invalid, NotFound, Unverified, FileNotFoundError, KeyError, pa.ArrowInvalid) as error:
        extra = {"table": ".".join(table.name()), "snapshot_id": str(until.snapshot_id), "reason": str(error)}
        log.info("no changes root", extra=extra)
        return None
    block = records(changes.changes, changes.key).tobytes() if with_records else b""
    return ChangesDigest(changes.root.hex(), changes.count, block)


def recount(
    table: Table,
    since: Snapshot | None,
    until: Snapshot,
    schema_id: int,
    root: str,
    erased: Mapping[int, bytes] = MappingProxyType({}),
) -> RecomputedChanges | None:
    """Computes an attested root again, for an auditor, within AUDIT_LIMIT.

    `erased`: position -> leaf hash of the changes that an erasure took from the files. None when it cannot be computed:
    that is no fault, and the audit's report counts such commits.
    """
    miscounted = list[Miscounted]()
    try:
        changes = attested_changes(table, since, until, schema_id, root, AUDIT_LIMIT, miscounted, erased)
    except (Invalid, NotFound, Unverified, FileNotFoundError, KeyError, pa.ArrowInvalid) as error:
        extra = {"table": ".".join(table.name()), "snapshot_id": str(until.snapshot_id), "reason": str(error)}
        log.warning("changes not counted again", extra=extra)
        return None
    block = records(changes.changes, changes.key).tobytes()
    return RecomputedChanges(
        root_with(changes, erased),
        changes.count + len(erased),
        tuple(dict.fromkeys(miscounted)),
        block,
        changes.count,
    )


def root_with(changes: ChangeSet, erased: Mapping[int, bytes]) -> str:
    """The root over these changes and the leaf hashes of erased ones, each at its position among all of them.

    Empty if there is no such position.
    """
    if not erased:
        return changes.root.hex()
    if max(erased) >= changes.count + len(erased):
        return ""
    shown = iter([bytes(hash_) for hash_ in change_hashes(changes.changes, changes.key)])
    return tree_root(erased[at] if at in erased else next(shown) for at in range(changes.count + len(erased))).hex()


def recount_rows(table: Table, since: Snapshot, until: Snapshot, schema_id: int) -> tuple[str, str] | None:
    """The rows digests of the removed and of the added rows: catalog.timeline's RecountRows.

    Reads all rows that differ between the snapshots, a row group at a time. None when they cannot be read.
    """
    reader = RowReader(table, table.schemas()[schema_id])
    try:
        difference = diff_snapshots(table, since, until)
        sides = [[reader.read(source) for source in side] for side in (difference.removed, difference.added)]
        before, after = (RowsDigest.sum(RowsDigest.of(rows) for file in side for rows in file) for side in sides)
    except (Invalid, NotFound, Unverified, FileNotFoundError, KeyError, pa.ArrowInvalid):
        return None
    return before.hex, after.hex


def attested_changes(
    table: Table,
    since: Snapshot | None,
    until: Snapshot,
    schema_id: int,
    root: str | None,
    limit: Limit | None = None,
    miscounted: list[Miscounted] | None = None,
    erased: Mapping[int, bytes] = MappingProxyType({}),
) -> ChangeSet:
    """The changes between two snapshots, paired by the key that gives the attested root, if one does.

    A key that is only a table property may have been set after the commit; the commit's changes were then computed
    without a key. A key in the schema is fixed by it.
    """
    schema = table.schemas()[schema_id]
    keyed = between(table, since, until, schema=schema, limit=limit, miscounted=miscounted)
    if keyed.key and not schema.identifier_field_ids and root not in (None, root_with(keyed, erased)):
        keyless = between(table, since, until, schema=schema, key=(), limit=limit)
        return keyless if root_with(keyless, erased) == root else keyed
    return keyed
