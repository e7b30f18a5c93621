"""Change capture: row digests, change sets with proofs, feeds and their verification, incremental processing.

    digest            a 32-byte digest of a row, the same in every engine (docs/row-digest.md)
    multiset          one digest for all rows of a table, independent of their order and files
    comparison        diff: the exact changes of a commit, from Iceberg's metadata and the files it touched
    snapshot_changes  changes(table, since, until) by snapshot, commit by commit or net
    changes_root      the root that a commit's leaf carries, computed for commits below a size limit
    timeline_feed     the change sets of a table's leaves, with evidence: `lake.changes`
    change_set        the change set: complete, in pages, by key range, or a selection with proofs
    verifier          verifies a change set offline, with the timeline's public key
    feed_verifier     verifies a feed: every change set, and that none is missing
    serialization     change sets as Arrow IPC and JSON lines, both ways
    processing        runs a function over the change sets after a consumer's watermark: `lake.process`

Verifying a feed needs only pyarrow and catalog.merkle; pyiceberg is imported with the names that read tables.
"""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
