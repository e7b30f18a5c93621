"""All rows of a snapshot, as digests: from its files alone, a row group at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.digest import key_digests, row_digests
from catalog.changes.hashing import Hashes
from catalog.changes.limits import Limit, RowCounts
from catalog.changes.multiset import RowsDigest
from catalog.changes.row_reader import RowReader
from catalog.changes.touched_rows import TouchedFile, diff_snapshots
from catalog.iceberg import ManifestReader


def live_rows(table: Table, snapshot: Snapshot) -> Sequence[TouchedFile]:
    """The snapshot's data files, each without its deleted rows."""
    return diff_snapshots(table, None, snapshot).added


def digest_rows(
    table: Table,
    snapshot: Snapshot,
    schema: Schema,
    key: Sequence[str] | None,
    most_keys: int,
    limit: Limit | None = None,
    manifests: ManifestReader | None = None,
) -> tuple[RowsDigest, tuple[Hashes, Hashes] | None]:
    """The digest of all rows under a schema; with a key, also the key digest and row digest of each row, if they are
    at most `most_keys`.

    Memory: one row group, and 64 bytes for each of so many rows. TooLarge over the limit; Invalid for equality deletes.
    """
    reader = RowReader(table, schema, RowCounts(limit))
    sources = diff_snapshots(table, None, snapshot, manifests).added
    if limit is not None:
        limit.check(sources, reader.count)
    total, keys, digests = RowsDigest(), [np.empty((0, 32), np.uint8)], [np.empty((0, 32), np.uint8)]
    for source in sources:
        for rows in reader.read(source):
            in_group = row_digests(rows)
            total += RowsDigest.of_digests(in_group)
            if total.rows > most_keys:
                key, keys, digests = None, [], []
            if key is not None:
                keys.append(key_digests(rows, key))
                digests.append(in_group)
    return total, None if key is None else (np.concatenate(keys), np.concatenate(digests))
