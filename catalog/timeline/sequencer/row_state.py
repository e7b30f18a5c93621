"""What the timeline keeps of the rows of each table's main: the state_digest and state_root that its next leaf states.

The sequencer stores it without knowing its form: catalog.changes computes it, which is a layer above this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.merkle.prefix_map import ReadNodes
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.sequencer.attestation import ChangesDigest

NOT_COMPUTED = "off"
"""`state_missing` of a lake that computes no states."""


@dataclass(frozen=True, slots=True)
class RowState:
    """Main's rows after a leaf. `missing`: why `digest`, or `root` in a table with a key, is None.

    `stored` is what the next leaf is computed from, and `nodes` are the new nodes of the state map, by hash.
    """

    digest: str | None
    root: str | None
    missing: str | None
    stored: bytes
    nodes: dict[bytes, bytes] = field(default_factory=dict)


class ComputeState(Protocol):
    """Computes the state after a leaf: catalog.changes.StateComputer.

    `until`: the leaf's snapshot; None if the table has none, or it has expired. `stored`: the state before; None if
    none is stored. `changes`: those of the leaf, if they were computed from the files. `read_nodes` reads nodes of
    the state map.
    """

    def __call__(
        self,
        table: Table,
        leaf: Leaf,
        until: Snapshot | None,
        schema_id: int | None,
        stored: bytes | None,
        changes: ChangesDigest | None,
        read_nodes: ReadNodes,
        /,
    ) -> RowState: ...

    def pages_with(
        self, state_roots: Sequence[str], keys: Sequence[bytes], read_nodes: ReadNodes, /
    ) -> frozenset[bytes]:
        """The addresses of the state maps' pages that have one of the keys (key digests)."""
        ...

    def digest_with(self, stored: bytes, rows: Sequence[bytes], /) -> str | None:
        """The digest of a stored state's rows and of these (row digests); None if it is not known."""
        ...

    def forget(self, stored: bytes | None, /) -> bytes | None:
        """What to compute the next state from, if the one before is not to be believed."""
        ...
