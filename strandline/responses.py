"""Responses of the API that the client returns as they are: JSON objects with these members."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class Receipt(TypedDict, total=False):
    table: str
    snapshot_id: str
    sequence: int
    rows: int
    matched: int
    replayed: bool
    mode: str
    reason: str


class Written(TypedDict, total=False):
    """What a statement did."""

    statement: str
    table: str
    rows: int
    snapshot_id: str


class Commit(TypedDict, total=False):
    index: int
    table: str
    table_uuid: str
    snapshot_id: str
    parent_id: str
    sequence: int
    committed_ms: int
    sequenced_ms: int
    operation: str
    ref: str
    entry: str


class FileStatus(TypedDict, total=False):
    """`files`: each with status, key, table, rows, snapshot_id, index, reason, position, …"""

    sha256: str
    status: Literal["landing", "committed", "duplicate", "empty", "quarantined", "failed", "unknown"]
    files: list[dict[str, Any]]
