"""What a leaf may say by itself, whatever the leaves before it say: the rules of docs/spec/timeline.md, section 2.

The sequencer reads leaves that it wrote (leaf.py). A verifier reads leaves that somebody with the signing key may have
forged, and checks each of them here first. Needs only the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from catalog.core.errors import Invalid, Unverified
from catalog.timeline.log.leaf import (
    ATTESTED_BY_LAKE,
    ATTESTED_BY_WRITER,
    ERASE,
    MAIN,
    MAX_BYTES,
    REFERENCE_OPERATIONS,
    RESET,
    SNAPSHOT_OPERATIONS,
    STATE_MISSING,
    Leaf,
    is_like_main,
)

_DIGESTS = (
    "schema_sha256",
    "metadata_sha256",
    "manifest_list_sha256",
    "content_root",
    "changes_root",
    "rows_digest",
    "map_root",
    "state_digest",
    "state_root",
)
_COUNTS = ("sequence", "sequenced_ms", "content_count", "changes_count")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OF_REFERENCES = frozenset({"tag", "unref"})
_OF_ANY_BRANCH = frozenset({"branch", "rollback"})
_RESTATES_MAIN = frozenset({"create", "rename", "schema", "metadata", ERASE})


def parse_shown_leaf(entry: bytes) -> Leaf:
    """The leaf that a proof or a feed shows; Unverified unless it is one canonical text that meets every rule.

    Nothing here shows that the leaf is in a log.
    """
    if len(entry) > MAX_BYTES:
        raise Unverified(f"not a leaf of the timeline: it has {len(entry)} bytes, over the limit of {MAX_BYTES}")
    leaf = Leaf.decode(entry)
    for fault in faults(leaf):
        raise Unverified(f"not a leaf of the timeline: {entry[:80]!r} ({fault})")
    return leaf


def check_leaf(leaf: Leaf) -> None:
    """Invalid for a leaf that no verifier would accept: the sequencer signs none, whatever a table's metadata says."""
    for fault in faults(leaf):
        raise Invalid(f"the leaf of {leaf.table} cannot be signed: {fault}. Correct the table", subject=leaf.table)


def faults(leaf: Leaf) -> Iterator[str]:
    """What the leaf says that no leaf may say."""
    for name in _DIGESTS:
        value = getattr(leaf, name)
        if value is not None and not _SHA256.fullmatch(value):
            yield f"its {name} is not a SHA-256 in hex"
    for name in _COUNTS:
        value = getattr(leaf, name)
        if value is not None and not 0 <= value < 2**53:
            yield f"its {name} is negative, or not exact"
    if abs(leaf.committed_ms) >= 2**53:
        yield "its committed_ms is not exact"
    for name in ("snapshot_id", "parent_id"):
        value = getattr(leaf, name)
        if value is not None and not -(2**63) <= value < 2**63:
            yield f"its {name} has more than 64 bits"
    if not leaf.table or not leaf.table_uuid:
        yield "it names no table"
    if leaf.attested not in (None, ATTESTED_BY_LAKE, ATTESTED_BY_WRITER):
        yield f"it is attested by {leaf.attested!r:.40}: neither lake nor writer"
    if len({leaf.changes_root is None, leaf.changes_count is None, leaf.attested is None}) != 1:
        yield "it has only some of changes_root, changes_count and attested"
    yield from _reference_faults(leaf)
    yield from _state_faults(leaf)


def _state_faults(leaf: Leaf) -> Iterator[str]:
    if leaf.state_missing not in (None, *STATE_MISSING):
        yield f"its state_missing is {leaf.state_missing!r:.40}, which is no reason"
    if not leaf.states_rows and (leaf.state_digest, leaf.state_root, leaf.state_missing) != (None, None, None):
        yield "it states the rows of main, but is not about them"
    if leaf.state_root is not None and (leaf.state_digest is None or leaf.state_missing is not None):
        yield "it has a state_root, but not all that belongs to one"


def _reference_faults(leaf: Leaf) -> Iterator[str]:
    operation, ref = leaf.operation, leaf.ref
    if operation not in SNAPSHOT_OPERATIONS | REFERENCE_OPERATIONS:
        yield f"it has the operation {operation!r:.40}, which does not exist"
        return
    if ref is not None and (not ref or is_like_main(ref)):
        yield f"its reference {ref!r:.80} can be mistaken for main"
    if operation in _OF_REFERENCES:
        is_allowed = ref not in (None, MAIN)
    elif operation in _OF_ANY_BRANCH:
        is_allowed = ref is not None
    else:
        is_allowed = ref == MAIN or operation in SNAPSHOT_OPERATIONS
    if not is_allowed:
        yield f"its operation is {operation}, but its reference is {ref!r:.80}"
    if operation in _RESTATES_MAIN and leaf.snapshot_id != leaf.parent_id:
        yield f"its operation is {operation}, but it moves main from {leaf.parent_id} to {leaf.snapshot_id}"
    if operation == ERASE and (leaf.content_root is None or not leaf.content_count):
        yield "it erases, but has no record of what"
    if operation == "drop" and leaf.snapshot_id is not None:
        yield "it drops the table, but has a snapshot"
    adds_or_moves = operation in SNAPSHOT_OPERATIONS or leaf.moves_rows
    if adds_or_moves and operation != RESET and leaf.snapshot_id is None:
        yield f"its operation is {operation}, but it has no snapshot"
