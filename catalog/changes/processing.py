"""Incremental processing over the timeline: a function runs over a table's change sets, its mark follows it.

The flow is one loop: read the mark, take the next change set, run the function, have the mark moved. The move is a
request on the sequencer's queue, and the loop goes on when the mark is seen to stand there, durable and signed. A
crash anywhere is recovered by running again: before the move the change set is processed once more, after it never.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table import Table

from catalog.changes.feed import ChangeSet
from catalog.changes.sequenced import feed
from catalog.errors import Conflict, Unavailable
from catalog.events import MoveMark
from catalog.timeline.marks import Mark
from catalog.timeline.proofs import Timeline

PATIENCE_S = 30.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Processing:
    """`timeline` is over a reader that follows its database, `request` puts a message on the sequencer's queue."""

    timeline: Timeline
    request: Callable[[MoveMark], None]
    patience_s: float = PATIENCE_S
    """How long a move may take to be seen."""

    def run(self, table: Table, consumer: str, fn: Callable[[ChangeSet], object]) -> int:
        """Runs `fn` on every change set after the consumer's mark, oldest first; how many it was.

        `fn` runs at least once per change set, and each move of the mark follows exactly one run that returned. If
        it must act once, let it keep `changes.commit.sequence` with its result. What it raises comes through, and
        the mark stays. Of two runs of a consumer at a time, one gets a Conflict and may simply stop. Unavailable
        when a move was asked for and is not seen in time: run again, it may have been made by then.
        """
        uuid, holder = str(table.metadata.table_uuid), secrets.token_hex(16)
        mark = self._read(consumer, table)
        done = 0
        for changes in feed(self.timeline, table, -1 if mark is None else mark.sequence):
            fn(changes)
            # A crash here runs fn again on the same change set: its mark has not moved.
            sequence = changes.commit.sequence
            assert sequence is not None
            before = None if mark is None else mark.sequence
            name = ".".join(table.name())
            self.request(
                MoveMark(
                    consumer=consumer,
                    table=name,
                    table_uuid=table.metadata.table_uuid,
                    sequence=sequence,
                    expected=before,
                    holder=holder,
                )
            )
            moved = Mark(consumer, name, uuid, sequence, 1 if mark is None else mark.moves + 1, holder)
            mark = self._seen(moved, mark, table)
            done += 1
        return done

    def _seen(self, wanted: Mark, before: Mark | None, table: Table) -> Mark:
        """Waits for the mark to stand where it was asked to go."""
        until = time.monotonic() + self.patience_s
        while (found := self._read(wanted.consumer, table)) != wanted:
            if found != before:
                raise Conflict(
                    f"another run of {wanted.consumer} moved its mark on {wanted.table} first: this one may stop",
                    subject=wanted.table,
                )
            if time.monotonic() > until:
                raise Unavailable(
                    f"{wanted.consumer} asked for its mark on {wanted.table} to move to leaf {wanted.sequence}, which "
                    f"was not seen within {self.patience_s:g} s: run again, and look whether the sequencer runs",
                    subject=wanted.table,
                )
            time.sleep(_POLL_S)
        return found

    def _read(self, consumer: str, table: Table) -> Mark | None:
        found = self.timeline.mark(consumer, ".".join(table.name()))
        # A mark on another table that bore the name says nothing of this one.
        return found if found is not None and found.table_uuid == str(table.metadata.table_uuid) else None
