"""Change sets between two snapshots of a table: commit by commit, or net."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.change_set import ChangeSet
from catalog.changes.comparison import between_with_schema, find_snapshot
from catalog.core.errors import NotFound


@dataclass(frozen=True)
class Step:
    """From one snapshot to another: a commit, or the undoing of commits that a rollback removed."""

    since: Snapshot | None
    until: Snapshot


def steps(table: Table, since: int | None = None, until: int | None = None) -> list[Step]:
    """The steps from snapshot `since` (None: before the first) to `until` (None: the current one), oldest first.

    When `since` is no ancestor of `until`, the table was rolled back: the first step then leads from `since` to their
    common ancestor. Without `since`, the first step leads from the empty table to the oldest snapshot that has not
    expired. Makes no requests.
    """
    if table.current_snapshot() is None and until is None and since is None:
        return []
    ancestors = _ancestors(table, find_snapshot(table, until))
    if since is None:
        return _pairs([None, *reversed(ancestors)])
    positions = {snapshot.snapshot_id: position for position, snapshot in enumerate(ancestors)}
    if since in positions:
        return _pairs(list(reversed(ancestors[: positions[since] + 1])))
    start = find_snapshot(table, since)
    for snapshot in _ancestors(table, start):
        if snapshot.snapshot_id in positions:
            return [
                Step(start, snapshot),
                *_pairs(list(reversed(ancestors[: positions[snapshot.snapshot_id] + 1]))),
            ]
    raise NotFound(
        f"snapshot {since} of table {'.'.join(table.name())} has no common ancestor with the current one: "
        "read the changes from the beginning",
        subject=".".join(table.name()),
    )


def changes(table: Table, since: int | None = None, until: int | None = None) -> Iterator[ChangeSet]:
    """One change set per commit after snapshot `since` up to `until`, oldest first, also for commits without changes.

    Each has the root that its leaf in the timeline has. Computed lazily. Memory: one change set.
    """
    for step in steps(table, since, until):
        yield between_with_schema(table, step.since, step.until)


def net_changes(table: Table, since: int | None = None, until: int | None = None) -> ChangeSet:
    """The net changes of all commits after `since` up to `until`, from the two snapshots alone.

    No leaf has its root. To verify it, verify the change sets of the commits, and `collapse` them to the same rows.
    """
    last = find_snapshot(table, until)
    return between_with_schema(table, None if since is None else find_snapshot(table, since), last)


def _ancestors(table: Table, snapshot: Snapshot) -> list[Snapshot]:
    """The snapshot and its ancestors that have not expired, newest first."""
    ancestors: list[Snapshot] = [snapshot]
    while (parent_id := ancestors[-1].parent_snapshot_id) is not None:
        parent = table.snapshot_by_id(parent_id)
        if parent is None:
            break
        ancestors.append(parent)
    return ancestors


def _pairs(snapshots: list[Snapshot | None] | list[Snapshot]) -> list[Step]:
    return [Step(a, b) for a, b in itertools.pairwise(snapshots) if b is not None]
