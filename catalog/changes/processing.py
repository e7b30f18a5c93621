"""Incremental processing: runs a function over a table's change sets and advances the consumer's watermark.

The flow is one loop: read the watermark, take and verify the next change set, run the function, advance the watermark.
To advance it, the loop sends a request to the sequencer's queue and waits until it sees the new watermark, signed. A
crash anywhere is recovered by running again: a change set is processed again only if its watermark was not advanced.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table

from catalog.changes.change_set import ChangeSet
from catalog.changes.commit_leaf import Demand
from catalog.changes.feed_verifier import FeedVerifier
from catalog.changes.timeline_feed import feed
from catalog.core.errors import Conflict, Unavailable
from catalog.core.events import AdvanceWatermark
from catalog.merkle.note import VerifierKey
from catalog.timeline import Timeline, Watermark

PATIENCE_S = 30.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Processing:
    """`timeline` has a reader that follows the database; `request` sends a message to the sequencer's queue."""

    timeline: Timeline
    request: Callable[[AdvanceWatermark], None]
    patience_s: float = PATIENCE_S
    """How long to wait until the advanced watermark is visible."""

    keys: Sequence[VerifierKey] | None = None
    """The timeline's verifier keys; None: those of its own key list, which its operator wrote."""
    verify: bool = True
    """Whether each change set is verified before the function runs on it."""
    demand: Demand = "lake"
    """Who must have computed each changes_root; see FeedVerifier."""

    def run(
        self,
        table: Table,
        consumer: str,
        fn: Callable[[ChangeSet], object],
        *,
        reset: Callable[[Watermark], object] | None = None,
        seen: Watermark | None = None,
    ) -> int:
        """Runs `fn` on every change set after the consumer's watermark, oldest first; returns how many.

        `fn` runs at least once per change set, and each advance of the watermark follows exactly one run that
        returned. If `fn` must take effect once, let it store `changes.commit.sequence` with its result. An exception
        of `fn` propagates, and the watermark stays. Of two concurrent runs of a consumer, one gets a Conflict and may
        stop. Unavailable when the requested advance is not visible in time: run again, it may be visible then.
        Unverified for a change set that does not verify, before `fn` sees it, and for a watermark behind `seen`, the
        last one that the caller knows.

        If the table was dropped and made anew, what the consumer holds is of another table: `reset` is called with the
        watermark on that one, and the new table is processed from its beginning. Without `reset` that is a Conflict.
        """
        name, uuid, holder = ".".join(table.name()), str(table.metadata.table_uuid), secrets.token_hex(16)
        watermark = self.timeline.watermark(consumer, name, seen)
        if watermark is not None and watermark.table_uuid != uuid:
            self._reset(watermark, uuid, reset)
            watermark = None
        since = -1 if watermark is None else watermark.sequence
        verifier = self._verifier(uuid, since)
        processed = 0
        for changes in feed(self.timeline, table, since):
            if verifier is not None:
                verifier.add(changes)
            fn(changes)
            # After a crash here, the next run calls fn again for this change set: the watermark has not advanced.
            sequence = changes.commit.sequence
            assert sequence is not None
            expected = None if watermark is None else watermark.sequence
            self.request(
                AdvanceWatermark(
                    consumer=consumer,
                    table=name,
                    table_uuid=table.metadata.table_uuid,
                    sequence=sequence,
                    expected=expected,
                    holder=holder,
                )
            )
            moves = 1 if watermark is None else watermark.moves + 1
            advanced = Watermark(consumer, name, uuid, sequence, moves, holder)
            watermark = self._wait_for(advanced, watermark, table)
            processed += 1
        return processed

    def _reset(self, watermark: Watermark, uuid: str, reset: Callable[[Watermark], object] | None) -> None:
        if reset is None:
            raise Conflict(
                f"{watermark.table} was dropped and made anew: {watermark.consumer} has processed the table with uuid "
                f"{watermark.table_uuid}, and the name now means {uuid}. Discard what it holds of the old table and "
                "run with reset=, or use another consumer",
                subject=watermark.table,
            )
        reset(watermark)

    def _verifier(self, uuid: str, since: int) -> FeedVerifier | None:
        if not self.verify:
            return None
        keys = self.keys
        if keys is None:
            keys = list(dict.fromkeys(key for _, key in self.timeline.source.keyring().keys))
        return FeedVerifier(keys, table_uuid=uuid, reached=since, demand=self.demand)

    def _wait_for(self, advanced: Watermark, previous: Watermark | None, table: Table) -> Watermark:
        """Polls until the watermark is the advanced one; Conflict if it becomes neither that nor the previous one."""
        deadline = time.monotonic() + self.patience_s
        while (current := self._read(advanced.consumer, table, previous)) != advanced:
            if current != previous:
                raise Conflict(
                    f"another run of {advanced.consumer} advanced its watermark on {advanced.table} first: "
                    "this run may stop",
                    subject=advanced.table,
                )
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the watermark of {advanced.consumer} on {advanced.table} did not reach leaf {advanced.sequence} "
                    f"within {self.patience_s:g} s: run again, and check that the sequencer is running",
                    subject=advanced.table,
                )
            time.sleep(_POLL_S)
        return current

    def _read(self, consumer: str, table: Table, seen: Watermark | None) -> Watermark | None:
        watermark = self.timeline.watermark(consumer, ".".join(table.name()), seen)
        # A watermark with another uuid is of an earlier table with the same name.
        return watermark if watermark is not None and watermark.table_uuid == str(table.metadata.table_uuid) else None
