"""The order in which new leaves of many tables enter the timeline: a transaction becomes visible at one index.

Pure. Events of one table keep their order. The commits of one transaction are adjacent, and each leaf states how many
of them follow. A transaction that has not committed to all of its tables is held back, with all later events of those
tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import rfc8785

from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.sequencer.table_state import TableEvent


@dataclass(frozen=True, slots=True)
class Segment:
    """The events start..end of a table. `group`: the tables of the transaction that the segment belongs to."""

    table: str
    start: int
    end: int
    group: tuple[str, ...] = ()


def arrange(events: Mapping[str, Sequence[TableEvent]], incomplete: Collection[str]) -> tuple[list[Segment], set[str]]:
    """The segments in their order, and the ids of the transactions at which tables are held back.

    `events`: by table. `incomplete`: the transactions that have not committed to all of their tables.

    >>> arrange({}, ())
    ([], set())
    """
    done, order = dict.fromkeys(events, 0), list[Segment]()
    members = dict[str, list[str]]()
    for table, of_table in events.items():
        for event in of_table:
            if event.transaction is not None:
                members.setdefault(event.transaction.id, []).append(table)
    progress = True
    while progress:
        progress = False
        for table, of_table in events.items():
            start = done[table]
            end = next(
                (at for at in range(start, len(of_table)) if of_table[at].transaction is not None), len(of_table)
            )
            if end > start:
                order.append(Segment(table, start, end))
                done[table], progress = end, True
        for identity, tables in members.items():
            # If two transactions share two tables, they committed to both in the same order: the later one staged its
            # branch after the earlier one had removed its own. So one of them always has all of its tables ready.
            ready = all(_next_transaction(events[table], done[table]) == identity for table in tables)
            if identity not in incomplete and ready:
                group = tuple(tables)
                order += [Segment(table, done[table], done[table] + 1, group) for table in tables]
                done |= {table: done[table] + 1 for table in tables}
                progress = True
    held = {_next_transaction(of_table, done[table]) for table, of_table in events.items()}
    return order, {identity for identity in held if identity is not None}


def link_transaction(leaves: Sequence[Leaf]) -> list[Leaf]:
    """The leaves of one transaction, each with the count and the root of those that follow it.

    The root is RFC 6962 over `[table, table_uuid, snapshot_id]` of each in canonical JSON.
    """
    records = [rfc8785.dumps([leaf.table, leaf.table_uuid, str(leaf.snapshot_id)]) for leaf in leaves]
    return [
        replace(leaf, content_count=len(records) - at, content_root=root(map(leaf_hash, records[at:])).hex())
        for at, leaf in enumerate(leaves, 1)
    ]


def _next_transaction(events: Sequence[TableEvent], at: int) -> str | None:
    """The id of the transaction that the event at this position commits, if it commits one."""
    transaction = events[at].transaction if at < len(events) else None
    return None if transaction is None else transaction.id
