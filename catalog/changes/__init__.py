"""Change capture: row digests, change sets that prove themselves, and watermarks.

    digest      32 bytes that stand for a row, the same from Arrow and Spark (docs/row-digest.md)
    comparison  diff: the exact changes of a commit, from Iceberg's metadata and the files it touched
    history     changes(table, since, until), commit by commit or net
    feed        the change set: whole, in pages, by key range, or a selection with proofs
    verifier    checks a change set offline, with the timeline's public key
    wire        Arrow IPC and JSON lines, both ways
    watermark   how far a consumer has come, signed; processing runs a function from there

To verify a feed takes pyarrow and catalog.merkle: pyiceberg is imported when a table is asked for, not
before.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from catalog.changes.digest import conform, key_digests, row_digests, rows_root
from catalog.changes.feed import ChangeSet, Commit, KeyRange, collapse
from catalog.changes.spark import spark_digest, spark_expression
from catalog.changes.verifier import verify, verify_leaf, verify_root
from catalog.changes.watermark import Marks, Watermark
from catalog.changes.wire import from_ipc, from_json_lines, to_ipc, to_json_lines

if TYPE_CHECKING:
    from catalog.changes.comparison import diff
    from catalog.changes.history import changes, net_changes
    from catalog.changes.processing import process

__all__ = [
    "ChangeSet",
    "Commit",
    "KeyRange",
    "Marks",
    "Watermark",
    "changes",
    "collapse",
    "conform",
    "diff",
    "from_ipc",
    "from_json_lines",
    "key_digests",
    "net_changes",
    "process",
    "row_digests",
    "rows_root",
    "spark_digest",
    "spark_expression",
    "to_ipc",
    "to_json_lines",
    "verify",
    "verify_leaf",
    "verify_root",
]

_OF_TABLES = {"changes": "history", "diff": "comparison", "net_changes": "history", "process": "processing"}


def __getattr__(name: str) -> Any:
    if name not in _OF_TABLES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_OF_TABLES[name]}"), name)
