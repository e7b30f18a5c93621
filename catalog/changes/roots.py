"""The root of a commit's changes as its leaf carries it: the same from the writer, the sequencer and an auditor.

Computed from the files alone. Whether it is computed at all depends on the metadata alone (LIMIT), not on who asks; for
what is over it a job may stage the root (see catalog.timeline.attest), or the leaf goes without.
"""

from __future__ import annotations

import logging
import threading

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.comparison import Limit, between
from catalog.changes.feed import ChangeSet
from catalog.changes.multiset import RowsDigest
from catalog.changes.reading import Reader
from catalog.changes.sources import difference
from catalog.errors import Invalid, NotFound, Unverified
from catalog.tables.manifests import ManifestReader
from catalog.timeline.attest import Changed

log = logging.getLogger(__name__)

LIMIT = Limit(rows=200_000, bytes=32 << 20)
"""What a function compares within its memory and in about a second, besides reading."""

RECOUNTED = Limit(rows=10_000_000, bytes=1 << 30)
"""What an auditor compares: he has a machine, not a function."""

# Each holds its changes in memory; commits are attested many at a time.
_AT_ONCE = threading.BoundedSemaphore(2)


def changes_of(
    table: Table,
    since: Snapshot | None,
    until: Snapshot,
    schema_id: int,
    *,
    limit: Limit = LIMIT,
    manifests: ManifestReader | None = None,
) -> Changed | None:
    """Root and count of the changes between two snapshots, under a schema: catalog.timeline.attest.ChangesOf.

    None over the limit, for equality deletes, which have no exact changes, and for files that are gone or cannot
    be read. What does not answer (S3) raises, so that asking again gives what asking once would have. `manifests`
    spares reading what the asker has read or written.
    """
    try:
        with _AT_ONCE:
            found = between(table, since, until, schema=table.schemas()[schema_id], limit=limit, manifests=manifests)
    except (Invalid, NotFound, Unverified, FileNotFoundError, KeyError, pa.ArrowInvalid) as error:
        extra = {"table": ".".join(table.name()), "snapshot_id": str(until.snapshot_id), "reason": str(error)}
        log.info("no changes root", extra=extra)
        return None
    return Changed(found.root.hex(), found.count)


def recount(table: Table, since: Snapshot | None, until: Snapshot, schema_id: int, root: str) -> Changed | None:
    """The same for an auditor, who may read more, and looks for the root that was attested.

    None when it cannot be computed again: then nothing is said against it.
    """
    try:
        found = attested(table, since, until, schema_id, root, RECOUNTED)
    except (Invalid, NotFound, Unverified, FileNotFoundError, KeyError, pa.ArrowInvalid):
        return None
    return Changed(found.root.hex(), found.count)


def recount_rows(table: Table, since: Snapshot, until: Snapshot, schema_id: int) -> tuple[str, str] | None:
    """The multiset digests of the rows that went and of those that came: catalog.timeline's RecountRows.

    Reads every row of the files between the snapshots, a row group at a time. None when it cannot be computed.
    """
    reader = Reader(table, table.schemas()[schema_id])
    try:
        found = difference(table, since, until)
        sides = [[reader.read(source) for source in side] for side in (found.removed, found.added)]
        before, after = (RowsDigest.sum(RowsDigest.of(rows) for part in side for rows in part) for side in sides)
    except (Invalid, NotFound, Unverified, FileNotFoundError, KeyError, pa.ArrowInvalid):
        return None
    return before.hex, after.hex


def attested(
    table: Table,
    since: Snapshot | None,
    until: Snapshot,
    schema_id: int,
    root: str | None,
    limit: Limit | None = None,
) -> ChangeSet:
    """The changes between two snapshots, paired by the key that gives the attested root, if there is one that does.

    A key that is only a property of the table may have come after the commit, whose changes were then counted by
    whole rows. A key in the schema is fixed by it.
    """
    schema = table.schemas()[schema_id]
    found = between(table, since, until, schema=schema, limit=limit)
    if found.key and not schema.identifier_field_ids and root not in (None, found.root.hex()):
        by_rows = between(table, since, until, schema=schema, key=(), limit=limit)
        return by_rows if by_rows.root.hex() == root else found
    return found
