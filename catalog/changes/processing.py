"""Incremental processing: a function runs over a table's changes, and a watermark remembers how far it came.

The flow is one loop: read the watermark, compute the next change set, run the function, move the watermark. A
crash anywhere is recovered by running it again: before the move the change set is processed once more, after
it never.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from pyiceberg.table import Table

from catalog.changes import watermark
from catalog.changes.comparison import between
from catalog.changes.feed import ChangeSet
from catalog.changes.history import steps
from catalog.changes.watermark import Marks, Watermark
from catalog.merkle.note import Signer, VerifierKey


def process(
    table: Table,
    consumer: str,
    fn: Callable[[ChangeSet], object],
    *,
    marks: Marks,
    signer: Signer,
    keys: Iterable[VerifierKey],
) -> int:
    """Runs `fn` on every change set after the consumer's watermark, oldest first; how many it was.

    `fn` runs at least once per change set, and each move of the watermark follows exactly one run that
    returned. If it must act once, let it keep `changes.commit.snapshot_id` with its result. What it raises
    comes through, and the watermark stays. Two runs of one consumer at a time: one of them gets a Conflict
    and may simply stop.
    """
    known, holder = list(keys), secrets.token_hex(16)
    name, table_uuid = ".".join(table.name()), str(table.metadata.table_uuid)
    mark, note = watermark.read(marks, consumer, name, table_uuid, known)
    table.refresh()
    done = 0
    for step in steps(table, None if mark is None else mark.snapshot_id):
        fn(between(table, step.since, step.until))
        # A crash here runs fn again on the same change set: its watermark has not moved.
        moves = 1 if mark is None else mark.moves + 1
        mark = Watermark(consumer, name, table_uuid, step.until.snapshot_id, moves, holder)
        note = watermark.move(marks, mark, note, signer, known)
        done += 1
    return done
