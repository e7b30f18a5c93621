"""The leaf: one commit, or one move of a reference, as the canonical JSON record whose hash enters the tree.

Canonical means RFC 8785, so that a stranger rebuilds the same bytes from the same facts in any language. JSON
numbers are exact only below 2**53, and Iceberg's snapshot ids have 63 bits: ids are decimal strings here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

import rfc8785

from catalog.errors import Invalid, Unverified

FORMAT = "strandline/commit@v1"
MAX_BYTES = 1024
MAIN = "main"

# What Iceberg itself calls a snapshot's operation, and what this timeline calls the moves that add no
# snapshot.
SNAPSHOT_OPERATIONS = frozenset({"append", "replace", "overwrite", "delete"})
REFERENCE_OPERATIONS = frozenset(
    {
        "create",  # the table exists; snapshot_id is null until something is written
        "rename",  # the same table_uuid under another name
        "drop",  # the table is gone from the catalog
        "rollback",  # a branch went back to one of its own ancestors
        "branch",  # a branch was made, or moved to what is no ancestor (fast-forward, cherry-pick)
        "tag",  # a tag was made or moved
        "unref",  # a branch or tag was removed
        "schema",  # the current schema changed
        "transaction",  # main moved to what a transaction over several tables had staged
        "metadata",  # anything else in the table's metadata: properties, partition spec, expiry
        "vectors",  # a vector table offers a version: see vector_moves.py for its fields
    }
)
TRANSACTION = "transaction"
MOVES_OF_MAIN = frozenset({"rollback", "branch", TRANSACTION})
"""References' moves that change what main shows, when main is the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One record of the timeline. Every field but the last is always present; null says "there is none".

    `sequence` counts this table's own leaves from 0 without gaps, so a feed that leaves one out shows it.
    `ref` says which reference stands at `snapshot_id` from this leaf on: "main" in a plain commit, and in
    every leaf that concerns the whole table (create, rename, schema, metadata, drop), which restate where
    main is. A null `ref` is a snapshot no reference led to when it was sequenced. In the moves of one
    reference, `parent_id` is where it stood before. `metadata_sha256` is over the table's metadata file in
    which the sequencer saw all this: a table's last leaf covers its metadata file byte for byte.
    `changes_root` and `changes_count` are of the rows' changes from `parent_id` to `snapshot_id`, under the
    schema the leaf names; null when none were computed (docs/adr/0006).

    `rows_digest` is there only in the leaf of a commit that rewrote files and says that it changed no row: the multiset
    digest (docs/row-digest.md) of the rows in the files it took away, and so in those it added.

    The leaves of a transaction stand side by side. `content_count` of each says how many of it follow, and
    `content_root` is over those: all count from the last on, so at every index all of them do or none.
    """

    table: str
    table_uuid: str
    snapshot_id: int | None
    parent_id: int | None
    sequence: int
    committed_ms: int
    sequenced_ms: int
    operation: str
    ref: str | None
    schema_sha256: str | None
    metadata_sha256: str | None
    manifest_list_sha256: str | None = None
    content_root: str | None = None
    content_count: int = 0
    changes_root: str | None = None
    changes_count: int | None = None
    rows_digest: str | None = None

    @property
    def is_snapshot(self) -> bool:
        """Whether the leaf adds a snapshot, rather than move a reference."""
        return self.operation not in REFERENCE_OPERATIONS

    @property
    def following(self) -> int:
        """How many leaves of its transaction follow: the leaf counts from the last of them on."""
        return self.content_count if self.operation == TRANSACTION else 0

    @property
    def moves_rows(self) -> bool:
        """Whether the rows that main shows may differ after the leaf: all other leaves change none."""
        return self.ref == MAIN and (self.is_snapshot or self.operation in MOVES_OF_MAIN)

    def encode(self) -> bytes:
        """The leaf's bytes: RFC 8785. Raises Invalid when they pass 1 KB (only absurdly long names do)."""
        record: dict[str, Any] = {field: getattr(self, field) for field in _STORED}
        record["format"] = FORMAT
        if self.rows_digest is None:  # absent, not null: leaves from before it was known have these bytes
            del record["rows_digest"]
        for field in ("snapshot_id", "parent_id"):
            record[field] = None if record[field] is None else str(record[field])
        for field, value in record.items():
            exact = type(value) is int and abs(value) < 2**53 if field in _NUMBERS else type(value) is str
            if value is not None and not exact:
                wanted = "an integer below 2**53" if field in _NUMBERS else "text"
                raise ValueError(f"{field} is not {wanted}: {value!r:.80}")
        # Of a flat record of text, null and exact integers under ASCII names, this is RFC 8785 (a test compares
        # them), at a fifth of a general encoder's cost, which was half of what sequencing a leaf took.
        encoded = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        if len(encoded) > MAX_BYTES:
            raise Invalid(
                f"the leaf of {self.table} has {len(encoded)} bytes, over the limit of {MAX_BYTES}: give the "
                "table or the reference a shorter name",
                subject=self.table,
            )
        return encoded

    @classmethod
    def decode(cls, data: bytes) -> Leaf:
        """Reads a leaf, strictly: Unverified unless the bytes are exactly what `encode` would write."""
        try:
            record = json.loads(data)
            if record.pop("format") != FORMAT:
                raise ValueError("it has another format")
            for field in ("snapshot_id", "parent_id"):
                record[field] = None if record[field] is None else int(record[field])
            leaf = cls(**record)
            if leaf.encode() != data:
                raise ValueError("it is not in its canonical form")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unverified(f"not a leaf of the timeline: {data[:80]!r} ({error})") from None
        return leaf


_STORED = tuple(field.name for field in fields(Leaf))
_NUMBERS = frozenset({"sequence", "committed_ms", "sequenced_ms", "content_count", "changes_count"})


def canonical_sha256(value: Any) -> str:
    """SHA-256, in hex, over a JSON value's canonical form; integers beyond 2**53 count as decimal strings."""
    return sha256(rfc8785.dumps(_exact(value))).hexdigest()


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    if isinstance(value, int) and abs(value) >= 2**53:
        return str(value)
    return value
