"""Properties of a snapshot's summary, and names of branches, that both tables and timeline use."""

from __future__ import annotations

TRANSACTION_ID, PARTICIPANTS = "strandline.transaction", "strandline.participants"
"""On every snapshot of a transaction: its id, and [table, snapshot id] of each table's last snapshot, as JSON."""

PICKED_FROM = "strandline.picked-from"
"""On the snapshot that applies a transaction to a main that moved after staging: the id of the staged snapshot."""

TRANSACTION_PREFIX = "tx-"
"""`tx-<id>` is the branch on which a transaction's writes to a table are staged."""

ROWS_DIGEST, ROWS_COUNT = "strandline.rows-digest", "strandline.rows-count"
"""On a snapshot that only rewrote files: the rows digest of those files, the same before and after, and their rows."""
