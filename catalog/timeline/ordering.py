"""In which order the next leaves of many tables go into the timeline, so that transactions become visible whole.

Pure. A table's own moves keep their order. Those of one transaction stand side by side, each saying how many of it
follow; a transaction that has not landed on all of its tables is held back, and with it all that comes after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import rfc8785

from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.leaf import Leaf
from catalog.timeline.moves import Move


@dataclass(frozen=True, slots=True)
class Piece:
    """The moves start..end of a table; `group` has the tables of the transaction that it is a part of."""

    table: str
    start: int
    end: int
    group: tuple[str, ...] = ()


def arrange(moves: Mapping[str, Sequence[Move]], waiting: Collection[str]) -> tuple[list[Piece], set[str]]:
    """The pieces in their order, and the transactions that are held back. `waiting`: those not yet complete.

    >>> arrange({}, ())
    ([], set())
    """
    done, order = dict.fromkeys(moves, 0), list[Piece]()
    members = dict[str, list[str]]()
    for table, line in moves.items():
        for move in line:
            if move.transaction is not None:
                members.setdefault(move.transaction.id, []).append(table)
    moved = True
    while moved:
        moved = False
        for table, line in moves.items():
            start = done[table]
            end = next((at for at in range(start, len(line)) if line[at].transaction is not None), len(line))
            if end > start:
                order.append(Piece(table, start, end))
                done[table], moved = end, True
        for identity, tables in members.items():
            # Two transactions that meet in two tables met in one order in both: the later one staged its
            # branch after the earlier had left. So one of them always has all of its tables ready.
            if identity not in waiting and all(_next(moves[table], done[table]) == identity for table in tables):
                group = tuple(tables)
                order += [Piece(table, done[table], done[table] + 1, group) for table in tables]
                done |= {table: done[table] + 1 for table in tables}
                moved = True
    held = {_next(line, done[table]) for table, line in moves.items()}
    return order, {identity for identity in held if identity is not None}


def joined(leaves: Sequence[Leaf]) -> list[Leaf]:
    """The leaves of one transaction, each with the count and the root of those that follow it.

    The root is RFC 6962 over `[table, table_uuid, snapshot_id]` of each in canonical JSON.
    """
    lines = [rfc8785.dumps([leaf.table, leaf.table_uuid, str(leaf.snapshot_id)]) for leaf in leaves]
    return [
        replace(leaf, content_count=len(lines) - at, content_root=root(map(leaf_hash, lines[at:])).hex())
        for at, leaf in enumerate(leaves, 1)
    ]


def _next(line: Sequence[Move], at: int) -> str | None:
    """The transaction that comes next in a line."""
    found = line[at].transaction if at < len(line) else None
    return None if found is None else found.id
