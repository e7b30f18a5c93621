"""Computes the rows of a table's main after each of its leaves again, and compares them with what the leaves state.

The first state is computed from all rows in the files, each later one from the recounted changes, and the last one
from all rows again. Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.core.aws_errors import translate_errors
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.sequencer.attestation import ChangesDigest, RecomputedChanges
from catalog.timeline.sequencer.row_state import ComputeState, RowState


@dataclass
class RowStates:
    """One table. `add` gets its leaves that state rows, in order; each returns what is wrong with the leaf, or None."""

    table: Table
    compute: ComputeState
    initial: bytes | None
    """The stored state, without the rows."""
    erased_rows: Callable[[int], Sequence[bytes]] = lambda sequence: ()
    """The digests of the rows after a leaf, by its sequence, that an erasure took away."""
    verified: set[int] = field(default_factory=set)
    """The sequences of the leaves whose state_digest is that of the rows."""
    states: int = 0
    uncounted: int = 0
    _stored: bytes | None = field(init=False)
    _nodes: dict[bytes, bytes] = field(default_factory=dict)
    _last: tuple[Leaf, Snapshot | None, int | None] | None = None

    def __post_init__(self) -> None:
        self._stored = self.initial

    def add(
        self, leaf: Leaf, until: Snapshot | None, schema_id: int | None, recounted: RecomputedChanges | None
    ) -> str | None:
        """`recounted`: the changes of a leaf that moves rows, computed from the files."""
        changes = None if recounted is None else ChangesDigest(recounted.root, recounted.shown, recounted.records)
        state = self._computed(leaf, until, schema_id, self._stored, changes)
        self._stored, self._last = state.stored, (leaf, until, schema_id)
        self.states += leaf.state_digest is not None and state.digest is not None
        self.uncounted += leaf.state_digest is not None and state.digest is None
        difference = self._difference(leaf, state)
        if difference is not None:
            self._last = None
        elif leaf.state_digest is not None and state.digest is not None:
            self.verified.add(leaf.sequence)
        return difference

    def skip(self) -> None:
        """Passes over a leaf whose snapshot has expired: the next state is computed from all rows."""
        self._stored, self._last = self.initial, None

    def finish(self) -> str | None:
        """What is wrong with the last leaf, by all rows in its files; None if it was wrong already."""
        if self._last is None or self._last[1] is None:
            return None
        leaf, until, schema_id = self._last
        return self._difference(leaf, self._computed(leaf, until, schema_id, self.initial, None))

    def _difference(self, leaf: Leaf, state: RowState) -> str | None:
        """What the leaf states and the rows do not give. Rows that were erased count with the digests in the record.

        A state root with an erased row is not compared: the record does not say where the row was in the map.
        """
        erased = self.erased_rows(leaf.sequence)
        if not erased:
            return _difference(leaf, state)
        digest = self.compute.digest_with(state.stored, erased)
        if leaf.state_digest and digest and leaf.state_digest != digest:
            return "its state_digest is not that of the table's rows and of those that were erased"
        return None

    def _computed(
        self,
        leaf: Leaf,
        until: Snapshot | None,
        schema_id: int | None,
        stored: bytes | None,
        changes: ChangesDigest | None,
    ) -> RowState:
        with translate_errors(leaf.table):
            state = self.compute(self.table, leaf, until, schema_id, stored, changes, self._read_nodes)
        self._nodes |= state.nodes
        return state

    def _read_nodes(self, hashes: Sequence[bytes]) -> list[bytes]:
        return [self._nodes.get(hash_, b"") for hash_ in hashes]


def _difference(leaf: Leaf, state: RowState) -> str | None:
    pairs = {"state_digest": (leaf.state_digest, state.digest), "state_root": (leaf.state_root, state.root)}
    wrong = [name for name, (stated, computed) in pairs.items() if stated and computed and stated != computed]
    return f"its {wrong[0]} is not that of the table's rows" if wrong else None
