"""Change capture: row digests, change sets that prove themselves, and watermarks.

    digest      32 bytes that stand for a row, the same in every engine (docs/row-digest.md)
    multiset    one value for all rows of a table, whatever their order and files
    comparison  diff: the exact changes of a commit, from Iceberg's metadata and the files it touched
    history     changes(table, since, until), commit by commit or net
    roots       the root that a commit's leaf carries, computed when small enough
    sequenced   the change sets of a table's leaves, with evidence: what `lake.changes` gives
    feed        the change set: whole, in pages, by key range, or a selection with proofs
    verifier    checks a change set offline, with the timeline's public key
    wire        Arrow IPC and JSON lines, both ways
    processing  runs a function over the change sets after a consumer's watermark: what `lake.process` does

To verify a feed takes pyarrow and catalog.merkle: pyiceberg is imported when a table is asked for, not
before.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from catalog.changes.digest import conform, key_digests, row_digests, rows_root
from catalog.changes.feed import ChangeSet, Commit, KeyRange, collapse
from catalog.changes.verifier import verify, verify_feed, verify_leaf, verify_root
from catalog.changes.wire import from_ipc, from_json_lines, to_ipc, to_json_lines

if TYPE_CHECKING:
    from catalog.changes.comparison import diff
    from catalog.changes.history import changes, net_changes

__all__ = [
    "ChangeSet",
    "Commit",
    "KeyRange",
    "changes",
    "collapse",
    "conform",
    "diff",
    "from_ipc",
    "from_json_lines",
    "key_digests",
    "net_changes",
    "row_digests",
    "rows_root",
    "to_ipc",
    "to_json_lines",
    "verify",
    "verify_feed",
    "verify_leaf",
    "verify_root",
]

_OF_TABLES = {"changes": "history", "diff": "comparison", "net_changes": "history"}


def __getattr__(name: str) -> Any:
    if name not in _OF_TABLES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_OF_TABLES[name]}"), name)
