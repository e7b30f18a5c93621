"""The changes of a table as the timeline has them: one change set per leaf that may change rows, with its evidence.

What `lake.changes` gives. It is led by the leaves, not by Iceberg's history: so a rollback, a branch that became main
and a transaction each are the change set that their leaf says, and together they lead from one state to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.comparison import find_snapshot, with_schema
from catalog.changes.feed import ChangeSet
from catalog.changes.roots import attested
from catalog.errors import Invalid, NotFound
from catalog.timeline.leaf import MAIN, Leaf
from catalog.timeline.moves import MetadataFile
from catalog.timeline.proofs import Timeline

At = int | str | datetime
"""A point in a table's history, by whatever one has of it:

- a snapshot's id: where main first stood at it
- a number below a billion: the table's sequence, the number of one of its leaves (`Commit.sequence`, a watermark)
- any other number, or a datetime: the time, in ms since 1970, by the timeline's clock (`sequenced_ms`)
- text: the name of a tag or branch of the table, or else `@` and an index of the timeline, or else an index's name
"""

SEQUENCES = 10**9
_INDEX = re.compile(r"@(0|[1-9][0-9]{0,17})")


def sequenced(
    timeline: Timeline, table: Table, since: At | None = None, until: At | None = None
) -> Iterator[ChangeSet]:
    """The change sets after `since` (None: from the first leaf) up to and including `until` (None: the newest).

    Computed as they are asked for, one in memory. A commit that the timeline has not seen yet is not among them.
    NotFound when a snapshot that is needed has expired; Invalid for a commit without exact changes (equality
    deletes). A leaf without a root (see catalog.changes.roots.LIMIT) gives changes that `verify` will not vouch for.
    """
    first = -1 if since is None else position(timeline, table, since)
    last = None if until is None else position(timeline, table, until)
    return feed(timeline, table, first, last)


def feed(timeline: Timeline, table: Table, since: int, until: int | None = None) -> Iterator[ChangeSet]:
    """The same by the table's sequence: its leaves with since < number <= until. None yet of one not yet sequenced."""
    name, size = ".".join(table.name()), timeline.head().checkpoint.size
    if timeline.source.last_of(name, size - 1, size) is None:
        return
    schemas = MetadataFile.read(table.metadata_location, table.io).schemas
    ids = {digest: schema_id for schema_id, digest in schemas.items()}
    passed = list[tuple[bytes, bytes]]()
    for index, leaf in timeline.commits_since(name, since):
        if until is not None and leaf.sequence > until:
            return
        shown = (timeline.source.entry(index, timeline.head().checkpoint.size), timeline.proof(index))
        if not leaf.moves_rows:
            passed.append(shown)
            continue
        yield _change_set(table, leaf, ids).with_evidence(*shown, index, passed)
        passed = []


def position(timeline: Timeline, table: Table, at: At) -> int:
    """The number of the table's last leaf at that point; -1 before its first."""
    name, uuid = ".".join(table.name()), str(table.metadata.table_uuid)
    size = timeline.head().checkpoint.size
    if isinstance(at, datetime):
        return _last_at(timeline, name, timeline.source.last_at(int(at.timestamp() * 1000), size))
    if isinstance(at, str):
        ref = table.metadata.refs.get(at)
        if ref is None:
            cut = timeline.cut((), index=int(at[1:])) if _INDEX.fullmatch(at) else timeline.cut((), name=at)
            return _last_at(timeline, name, cut.index)
        at = ref.snapshot_id
    own = [leaf for _, leaf in timeline.source.of_snapshot(at, size) if leaf.table_uuid == uuid]
    if own:
        return _reached(timeline, own[0], size)
    if at < 0 or at >= 2**53:
        raise NotFound(f"snapshot {at} of {name} is not in the timeline", subject=name)
    return at if at < SEQUENCES else _last_at(timeline, name, timeline.source.last_at(at, size))


def _last_at(timeline: Timeline, name: str, index: int) -> int:
    size = timeline.head().checkpoint.size
    found = timeline.source.last_of(name, index, size) if index >= 0 else None
    while found is not None and found[0] + found[1].following > index:  # its transaction is not complete there
        found = timeline.source.of_table(found[1].table_uuid, found[1].sequence - 1, size)
    return -1 if found is None else found[1].sequence


def _reached(timeline: Timeline, added: Leaf, size: int) -> int:
    """The first leaf that says main stood at the snapshot, which may have been added on a branch."""
    sequence = added.sequence
    while (found := timeline.source.of_table(added.table_uuid, sequence, size)) is not None:
        if found[1].ref == MAIN and found[1].snapshot_id == added.snapshot_id:
            return sequence
        sequence += 1
    raise Invalid(f"snapshot {added.snapshot_id} of {added.table} was never main's", subject=added.table)


def _change_set(table: Table, leaf: Leaf, schema_ids: dict[str, int]) -> ChangeSet:
    """What the leaf says has changed, from the files."""
    if leaf.snapshot_id is None or leaf.schema_sha256 not in schema_ids:
        raise NotFound(f"leaf {leaf.sequence} of {leaf.table} speaks of a schema that its metadata no longer has")
    since: Snapshot | None = None if leaf.parent_id is None else find_snapshot(table, leaf.parent_id)
    until, schema_id = find_snapshot(table, leaf.snapshot_id), schema_ids[leaf.schema_sha256]
    found = with_schema(attested(table, since, until, schema_id, leaf.changes_root), table, schema_id)
    return replace(found, commit=replace(found.commit, committed_ms=leaf.committed_ms, sequence=leaf.sequence))
