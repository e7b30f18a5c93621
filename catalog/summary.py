"""What a snapshot's summary says beyond Iceberg's own words, where both tables and timeline read it."""

from __future__ import annotations

TRANSACTION, PARTICIPANTS = "strandline.transaction", "strandline.participants"
"""On every snapshot of a transaction: its id, and [table, snapshot id] of each table's last, as JSON."""

PICKED = "strandline.picked-from"
"""On the snapshot that brings a transaction onto a main that moved meanwhile: the id of the staged one."""

TRANSACTION_PREFIX = "tx-"
"""`tx-<id>` is the branch on which a table's part of a transaction is staged."""

ROWS_DIGEST, ROWS_COUNT = "strandline.rows-digest", "strandline.rows-count"
"""On a snapshot that only rewrote files: the multiset digest of the rows they hold, before and after, and how many."""
