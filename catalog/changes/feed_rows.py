"""The rows that a feed's changes add up to, compared with the state_digest of each of the table's leaves.

A leaf states one digest of all of main's rows. Its changes must turn the digest of the leaf before into its own: so a
signed change set that hides a row, and a signed state that the changes do not give, contradict each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from catalog.changes.change_set import ChangeSet
from catalog.changes.commit_leaf import MAIN, ParsedLeaf
from catalog.changes.multiset import RowsDigest
from catalog.changes.records import side
from catalog.core.errors import Unverified


@dataclass(frozen=True)
class FeedRows:
    """Main's rows after a verified leaf; `digest` is None if they are not known. Immutable.

    They are not known in a feed that begins in the middle of the table's history, after a change set that is not
    complete, and after a column was dropped: that changes digests of rows that the feed does not show.
    """

    digest: RowsDigest | None = None
    schema_sha256: str | None = None
    fields: frozenset[int] = frozenset()
    """The ids of all fields of the last change set's schema."""

    def after(self, leaf: ParsedLeaf, changes: ChangeSet | None, subject: str) -> FeedRows:
        """The rows after the next leaf. Unverified if the leaf states other rows. `changes`: if it moves rows."""
        if leaf.ref != MAIN or leaf.operation == "drop":
            if leaf.state_digest is not None or leaf.state_root is not None:
                raise Unverified(f"{subject}: leaf {leaf.sequence} states the rows of main, but is not about them")
            return self
        rows = self if changes is None else self._with_changes(leaf, changes)
        # A leaf without changes may be under a new schema, of which the feed has the digest alone.
        comparable = changes is not None or leaf.schema_sha256 == rows.schema_sha256
        known = rows.digest is not None and leaf.state_digest is not None and comparable
        if known and rows.digest is not None and rows.digest.hex != leaf.state_digest:
            raise Unverified(
                f"{subject}: its state_digest is not that of the rows before it and its changes: the changes do not "
                "lead to the rows that the timeline states"
            )
        return rows

    def _with_changes(self, leaf: ParsedLeaf, changes: ChangeSet) -> FeedRows:
        schema: Any = json.loads(changes.schema_json or b"{}")
        fields, defaults = _field_ids(schema, self.fields)
        after = FeedRows(None, leaf.schema_sha256, fields)
        if self.digest is None or changes.part is not None or not self.fields <= fields or defaults:
            return after
        removed, added = (RowsDigest.of(side(changes.changes, name)) for name in ("before", "after"))
        if self.digest.rows < removed.rows:
            raise Unverified(f"leaf {leaf.sequence} deletes more rows than the table has")
        return replace(after, digest=self.digest - removed + added)


def _field_ids(schema: Any, known: frozenset[int]) -> tuple[frozenset[int], bool]:
    """The ids of all fields of an Iceberg schema, and whether a new one has a default, which old rows then have."""
    ids, defaults, stack = set[int](), False, [schema]
    while stack:
        at = stack.pop()
        if isinstance(at, list):
            stack += at
        elif isinstance(at, dict):
            stack += at.values()
            own = {at[name] for name in ("id", "element-id", "key-id", "value-id") if isinstance(at.get(name), int)}
            defaults = defaults or (at.get("initial-default") is not None and not own <= known)
            ids |= own
    return frozenset(ids), defaults and bool(known)
