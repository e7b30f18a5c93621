"""The names of the jobs. Imports nothing, so that a program that starts jobs needs no Spark."""

from __future__ import annotations

JOBS = {
    "medallion": "the notes pipeline, bronze to gold",
    "compact": "small files and pending deletes merged, with proof that no row changed",
    "expire": "snapshots past their retention expired",
    "maintain": "orphans removed, manifests rewritten, statistics computed",
    "attest": "digests of large commits computed in parallel",
    "transform": "a table from others, by SQL or Python",
    "merge_changes": "a table that follows another by its change feed",
    "backfill": "a range of days computed again",
    "export": "a table's rows as files",
    "vectors": "vector tables refreshed, compacted and indexed",
    "query": "a query too large for a function",
    "verify": "the timeline, and on request every object, compared with what was signed",
}
"""Each job's name, which is its module's name, and what it does."""
