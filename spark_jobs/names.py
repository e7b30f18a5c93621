"""The jobs there are. Imports nothing, so that whoever starts a job need not have Spark."""

from __future__ import annotations

JOBS = {
    "medallion": "the notes pipeline, bronze to gold",
    "compact": "small files and pending deletes merged, with proof that no row changed",
    "expire": "snapshots past their retention forgotten",
    "maintain": "orphans removed, manifests rewritten, statistics computed",
    "attest": "digests of big commits computed in parallel",
    "transform": "a table from others, by SQL or Python",
    "merge_changes": "a table that follows another by its change feed",
    "backfill": "a stretch of days made anew",
    "export": "a table's rows as files",
    "vectors": "vector tables refreshed, compacted and indexed",
    "query": "a query too large for a function",
    "verify": "the timeline, and on request every object, compared with what was signed",
}
"""Name, also of the module in spark_jobs, and what it does."""
