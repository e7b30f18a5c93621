"""Change sets over a stretch of a table's history: commit by commit, or their net."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.comparison import find_snapshot, full
from catalog.changes.feed import ChangeSet
from catalog.errors import NotFound


@dataclass(frozen=True)
class Step:
    """From one snapshot to another: a commit, or a way back when the table was rolled back."""

    since: Snapshot | None
    until: Snapshot


def steps(table: Table, since: int | None = None, until: int | None = None) -> list[Step]:
    """The steps from snapshot `since` (None: before the first) to `until` (None: the current one), oldest
    first.

    When `since` is no ancestor of `until`, somebody rolled the table back: the first step then undoes what
    `since` had and the common ancestor has not. Without `since`, the oldest snapshot that has not expired
    stands for all before it. Reads metadata in memory only.
    """
    if table.current_snapshot() is None and until is None and since is None:
        return []
    ancestors = _ancestors(table, find_snapshot(table, until))
    if since is None:
        return _pairs([None, *reversed(ancestors)])
    known = {snapshot.snapshot_id: at for at, snapshot in enumerate(ancestors)}
    if since in known:
        return _pairs(list(reversed(ancestors[: known[since] + 1])))
    start = find_snapshot(table, since)
    for snapshot in _ancestors(table, start):
        if snapshot.snapshot_id in known:
            return [
                Step(start, snapshot),
                *_pairs(list(reversed(ancestors[: known[snapshot.snapshot_id] + 1]))),
            ]
    raise NotFound(
        f"snapshot {since} of table {'.'.join(table.name())} has no common ancestor with the current one: start anew",
        subject=".".join(table.name()),
    )


def changes(table: Table, since: int | None = None, until: int | None = None) -> Iterator[ChangeSet]:
    """One change set per commit after snapshot `since` up to `until`, oldest first; also those without
    changes.

    Each is what its own leaf in the timeline says. Computed as it is asked for: one change set in memory.
    """
    for step in steps(table, since, until):
        yield full(table, step.since, step.until)


def net_changes(table: Table, since: int | None = None, until: int | None = None) -> ChangeSet:
    """The net of all commits after `since` up to `until`, compared directly: the commits between are not
    read.

    No leaf has its root. To check it, take the whole change sets, verify them, and `collapse` them to the
    same rows.
    """
    last = find_snapshot(table, until)
    return full(table, None if since is None else find_snapshot(table, since), last)


def _ancestors(table: Table, snapshot: Snapshot) -> list[Snapshot]:
    """The snapshot and its ancestors that have not expired, newest first."""
    found: list[Snapshot] = [snapshot]
    while (parent_id := found[-1].parent_snapshot_id) is not None:
        parent = table.snapshot_by_id(parent_id)
        if parent is None:
            break
        found.append(parent)
    return found


def _pairs(snapshots: list[Snapshot | None] | list[Snapshot]) -> list[Step]:
    return [Step(a, b) for a, b in itertools.pairwise(snapshots) if b is not None]
