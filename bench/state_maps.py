"""Figures of state maps: how fast one is built and kept, and how large its proofs are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bench.harness import Figure
from catalog.changes.state_map import StateMap, StateMaps
from catalog.timeline import StoreLocation
from catalog.timeline.log import store_keys
from catalog.timeline.log.store import StoreWriter

CHANGED = 10_000
"""Keys of one commit."""


def state_maps(rows: int) -> Iterator[Figure]:
    """A map of so many rows in an in-memory database, and commits that update random keys of it."""
    store, random = _Pages(), np.random.default_rng(18)
    block = random.integers(0, 256, (rows, 64), dtype=np.uint8)
    started = time.process_time()
    maps = store.maps()
    state = maps.build(block[:, :32].copy(), block[:, 32:].copy())
    store.write(maps)
    detail: dict[str, Any] = {"pages": len(maps.nodes), "MB": sum(map(len, maps.nodes.values())) / 1e6}
    yield Figure(
        f"state map of {rows:,} rows made", rows / (time.process_time() - started), "keys/s", 20_000, "higher", detail
    )
    seconds = 0.0
    for _ in range(3):
        records = _updates(random, block)
        started = time.process_time()
        maps = store.maps()
        state = maps.updated(state, records)
        store.write(maps)
        seconds += time.process_time() - started
    detail = {"pages": len(maps.nodes), "changed keys of a commit": CHANGED}
    name = f"state map kept, {CHANGED:,} keys of {rows:,}"
    yield Figure(name, 3 * CHANGED / seconds, "changed keys/s", 20_000, "higher", detail)
    yield _proof(store, state, block)


def _proof(store: _Pages, state: StateMap, block: Any) -> Figure:
    started, store.reads = time.process_time(), 0
    for at in range(100):
        _, proof = store.maps().prove(state, block[at, :32].tobytes())
    detail = {"reads": store.reads / 100, "siblings": len(proof.siblings)}
    milliseconds = (time.process_time() - started) * 10
    return Figure(f"path in a state map of {len(block):,} rows", milliseconds, "ms of CPU", 20, detail=detail)


def _updates(random: Any, block: Any) -> Any:
    at = random.choice(len(block), CHANGED, replace=False)
    records = np.zeros((CHANGED, 97), np.uint8)
    records[:, 0], records[:, 1:65] = ord("U"), block[at]
    records[:, 65:] = block[at, 32:] = random.integers(0, 256, (CHANGED, 32), dtype=np.uint8)
    return records


class _Pages:
    def __init__(self) -> None:
        self._db = StoreWriter.open(StoreLocation.in_memory())
        self.reads = 0

    def maps(self) -> StateMaps:
        return StateMaps(bytes(32), self._read)

    def write(self, maps: StateMaps) -> None:
        self._db.write([(store_keys.state_node(address), page) for address, page in maps.nodes.items()])

    def _read(self, hashes: Sequence[bytes]) -> list[bytes]:
        self.reads += len(hashes)
        return [page or b"" for page in self._db.get_many([store_keys.state_node(value) for value in hashes])]
