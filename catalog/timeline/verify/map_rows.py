"""Compares the database's rows of the map of tables with the map that the leaves give. Reads only.

Memory: 16 bytes for each node that the map ever had.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from secrets import token_bytes

import numpy as np

from catalog.timeline.log import store_keys
from catalog.timeline.log.store import Store
from catalog.timeline.log.table_map import TableMap
from catalog.timeline.verify.faults import Fault, FaultCollector
from catalog.timeline.verify.indexes import row_name

NODES = b"mapnode/"
ENTRIES = b"map/"


class MapRows:
    """`expect` gets the nodes that each batch adds, `finish` compares. From the first leaf on, with one scan."""

    def __init__(self, db: Store, start: int, faults: FaultCollector) -> None:
        self._db = db
        self._start = start
        self._faults = faults
        self._secret = token_bytes(16)  # prevents prepared collisions of the tags
        self._tags = array("Q")
        self._indexes = array("Q")

    def expect(self, nodes: Sequence[tuple[bytes, bytes]], index: int) -> None:
        """The nodes that the batch that ends at `index` adds, as hash and record."""
        if not self._start:
            self._tags.extend(self._tag(*node) for node in nodes)
            self._indexes.extend([index] * len(nodes))
            return
        stored = self._db.get_many([store_keys.map_node(node_hash) for node_hash, _ in nodes])
        for (node_hash, record), value in zip(nodes, stored, strict=True):
            if value != record:
                self._add(store_keys.map_node(node_hash), "it is not the map's node of this hash", index)

    def finish(self, tables: TableMap | None) -> None:
        """Compares the rows. `tables`: the map now; None if the database has later leaves."""
        if not self._start:
            self._compare_nodes()
        if tables is None:
            return
        expected = {store_keys.table_entry(key): value for key, value in tables.map.items()}
        for key, value in self._db.scan(ENTRIES, store_keys.after(ENTRIES)):
            if expected.pop(key, None) != value:
                self._add(key, "it is not the map's entry of this key", None)
        for key in expected:
            self._add(key, "it is missing, but the map has an entry of this key", None)

    def _compare_nodes(self) -> None:
        rows = self._db.scan(NODES, store_keys.after(NODES))
        stored = array("Q", (self._tag(key.removeprefix(NODES), record) for key, record in rows))
        present = np.isin(np.frombuffer(self._tags, np.uint64), np.frombuffer(stored, np.uint64))
        for at in np.flatnonzero(~present):
            self._add(NODES, "the map after this leaf has a node that is not stored", self._indexes[at])

    def _tag(self, node_hash: bytes, record: bytes) -> int:
        return hash(self._secret + node_hash + record) & 0xFFFF_FFFF_FFFF_FFFF

    def _add(self, key: bytes, what: str, index: int | None) -> None:
        self._faults.add(Fault(row_name(key), what, index))
