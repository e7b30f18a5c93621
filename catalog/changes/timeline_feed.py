"""A table's feed from the timeline: one change set per leaf that may change rows, with its evidence (`lake.changes`).

It follows the table's leaves, not Iceberg's history: a rollback, a branch that became main and a transaction each give
the change set of their leaf, and each change set begins at the snapshot where the one before ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.change_set import ChangeSet
from catalog.changes.changes_root import attested_changes
from catalog.changes.comparison import find_snapshot, with_schema
from catalog.core.aws_errors import translate_errors
from catalog.core.errors import Conflict, Invalid, NotFound, Unavailable
from catalog.core.point_in_time import FeedPositionLike, NamedSnapshot, SnapshotId, TableSequence, feed_position
from catalog.tables import named_snapshot_id
from catalog.timeline import ERASURE_PROPERTY, MAIN, Leaf, MetadataFile, Timeline, cut_at, snapshot_at


def timeline_changes(
    timeline: Timeline,
    table: Table,
    since: FeedPositionLike | None = None,
    until: FeedPositionLike | None = None,
    *,
    table_uuid: str | None = None,
    extends: int | None = None,
) -> Iterator[ChangeSet]:
    """The change sets after `since` (None: from the first leaf) up to and including `until` (None: the newest).

    `table_uuid`: the table that an earlier part of the feed was of. Conflict if the name now means another one: that
    has a feed of its own. `extends`: the size of a checkpoint that the receiver holds; the first change set proves that
    its tree extends that one.

    Computed lazily, one in memory. Commits that are not yet sequenced are not included. NotFound when a needed snapshot
    has expired; Invalid for a commit without exact changes (equality deletes). `verify` rejects the changes of a leaf
    without a root (see changes_root.LIMIT).
    """
    name, uuid = ".".join(table.name()), str(table.metadata.table_uuid)
    if table_uuid not in (None, uuid):
        raise Conflict(
            f"{name} was dropped and made anew since the feed began: it was the table with uuid {table_uuid}, and is "
            f"now {uuid}. Read the new table's feed from its beginning",
            subject=name,
        )
    first = -1 if since is None else sequence_at(timeline, table, since)
    last = None if until is None else sequence_at(timeline, table, until)
    return feed(timeline, table, first, last, extends)


def feed(
    timeline: Timeline, table: Table, since: int, until: int | None = None, extends: int | None = None
) -> Iterator[ChangeSet]:
    """The change sets of the table's leaves with since < sequence <= until; none for a table not yet sequenced.

    All are proven against one checkpoint. Leaves that are appended while the feed is read are not in it.
    """
    name, uuid, size = ".".join(table.name()), str(table.metadata.table_uuid), timeline.head().checkpoint.size
    newest = timeline.source.last_of(name, size - 1, size)
    if newest is None or newest[1].table_uuid != uuid:  # the leaves are of an earlier table of this name
        return
    head = timeline.head_for(newest[0])
    consistency = _consistency(timeline, extends, head.checkpoint.size)
    with translate_errors(name):
        schemas = MetadataFile.read(table.metadata_location, table.io).schemas
    ids = {digest: schema_id for schema_id, digest in schemas.items()}
    passed = list[tuple[bytes, bytes]]()
    for index, leaf in timeline.commits_since(name, since):
        if leaf.table_uuid != uuid or index > newest[0] or (until is not None and leaf.sequence > until):
            return
        evidence = (timeline.source.entry(index, head.checkpoint.size), timeline.proof(index, head))
        if not leaf.moves_rows:
            passed.append(evidence)
            continue
        with translate_errors(name):  # not around the yield: what the reader of the feed raises is its own
            changes = _change_set(table, leaf, ids)
        yield changes.with_evidence(*evidence, index, passed, consistency)
        passed, consistency = [], None


def _consistency(timeline: Timeline, old: int | None, size: int) -> tuple[int, tuple[bytes, ...]] | None:
    """The proof that the tree of `size` extends the receiver's; None if it has none, or the same."""
    if not old or old == size:
        return None
    if old > size:
        published = timeline.public_head().checkpoint.size
        if old > published:
            raise NotFound(
                f"the timeline has {published} leaves, and no checkpoint of {old}: if you hold a signed one, its "
                "history was cut off"
            )
        raise Unavailable(f"the timeline has {size} leaves here, and {old} where you read it before: try again")
    return old, timeline.consistency(old, size).hashes


def sequence_at(timeline: Timeline, table: Table, at: FeedPositionLike) -> int:
    """The sequence of the table's last leaf at that position; -1 before its first.

    A snapshot, by id or tag, means the first leaf after which it was main's.
    """
    name, point = ".".join(table.name()), feed_position(at)
    match point:
        case TableSequence(sequence):
            return sequence
        case SnapshotId(snapshot_id):
            return _first_at(timeline, table, snapshot_id)
        case NamedSnapshot(tag):
            tagged = named_snapshot_id(name, table.metadata.refs, tag, partial(snapshot_at, timeline))
            if tagged is not None:
                return _first_at(timeline, table, tagged)
    return _last_at(timeline, name, cut_at(timeline, (), point).index)


def _last_at(timeline: Timeline, name: str, index: int) -> int:
    """The sequence of the table's last leaf up to an index, without a transaction that is incomplete there."""
    size = timeline.head().checkpoint.size
    last = timeline.source.last_of(name, index, size) if index >= 0 else None
    while last is not None and last[0] + last[1].following > index:
        last = timeline.source.of_table(last[1].table_uuid, last[1].sequence - 1, size)
    return -1 if last is None else last[1].sequence


def _first_at(timeline: Timeline, table: Table, snapshot_id: int) -> int:
    """The sequence of the first leaf with the snapshot as main's. It may have been added earlier, on a branch."""
    name, uuid = ".".join(table.name()), str(table.metadata.table_uuid)
    size = timeline.head().checkpoint.size
    added = [leaf for _, leaf in timeline.source.of_snapshot(snapshot_id, size) if leaf.table_uuid == uuid]
    if not added:
        raise NotFound(f"snapshot {snapshot_id} of {name} is not in the timeline", subject=name)
    sequence = added[0].sequence
    while (indexed := timeline.source.of_table(uuid, sequence, size)) is not None:
        if indexed[1].ref == MAIN and indexed[1].snapshot_id == snapshot_id:
            return sequence
        sequence += 1
    raise Invalid(f"snapshot {snapshot_id} of {name} was never the snapshot of main", subject=name)


def _change_set(table: Table, leaf: Leaf, schema_ids: dict[str, int]) -> ChangeSet:
    """The changes of the leaf's commit, computed from the files."""
    if leaf.snapshot_id is None or leaf.schema_sha256 not in schema_ids:
        raise NotFound(f"leaf {leaf.sequence} of {leaf.table} has a schema that the table's metadata no longer has")
    since: Snapshot | None = None if leaf.parent_id is None else find_snapshot(table, leaf.parent_id)
    until, schema_id = find_snapshot(table, leaf.snapshot_id), schema_ids[leaf.schema_sha256]
    changes = with_schema(attested_changes(table, since, until, schema_id, leaf.changes_root), table, schema_id)
    if ERASURE_PROPERTY in table.properties and leaf.changes_root not in (None, changes.root.hex()):
        raise Conflict(
            f"rows were erased from the changes of leaf {leaf.sequence} of {leaf.table}, so that its feed cannot be "
            "shown completely: read the table as it is now, and its feed from there on (--since its last sequence)",
            subject=leaf.table,
        )
    commit = replace(changes.commit, table=leaf.table, committed_ms=leaf.committed_ms, sequence=leaf.sequence)
    return replace(changes, commit=commit)
