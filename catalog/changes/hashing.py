"""SHA-256 over whole columns, and the levels of an RFC 6962 tree over its leaf hashes.

DataFusion hashes a column several times faster than a loop; where it is not installed, hashlib gives the same bytes.
catalog.merkle.tree makes proofs from the levels stored here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.changes.arrow_buffers import Binary, fixed_width
from catalog.merkle.tree import EMPTY_ROOT, HASH_SIZE, CompactRange, Coordinate

Hashes: TypeAlias = npt.NDArray[np.uint8]
"""SHA-256 values as an array of shape (n, 32)."""

PART = 1 << 16
_LOOP_BELOW = 1500  # values: a call of the engine costs about a millisecond


def sha256_all(parts: Iterable[Binary], size: int) -> Hashes:
    """The SHA-256 of each value of a column without NULLs that comes in parts, with `size` values in total.

    Memory: the hashes and one part.
    """
    hashes, start = np.empty((size, HASH_SIZE), np.uint8), 0
    for values in parts:
        for chunk in _hashed(values):
            hashes[start : start + len(chunk)] = chunk
            start += len(chunk)
    return hashes


def _hashed(values: Binary) -> Iterator[Hashes]:
    engine = _engine() if len(values) >= _LOOP_BELOW else None
    if engine is not None:
        yield from map(_fixed, engine(values))
    elif len(values):
        yield from_bytes([sha256(value).digest() for value in values.to_pylist()])


class Levels:
    """The hashes of a tree's complete subtrees, level by level: 64 bytes per leaf. Gives the root and any proof."""

    def __init__(self, leaves: Hashes) -> None:
        self.size = len(leaves)
        self._levels = [leaves]
        while len(self._levels[-1]) > 1:
            self._levels.append(_level_above(self._levels[-1]))

    def read_hashes(self, coordinates: Sequence[Coordinate]) -> list[bytes]:
        """The reader that catalog.merkle.tree makes proofs with."""
        return [self._levels[level][index].tobytes() for level, index in coordinates]

    @property
    def root(self) -> bytes:
        return CompactRange.read(self.size, self.read_hashes).root() if self.size else EMPTY_ROOT


def root(leaves: Hashes) -> bytes:
    """The RFC 6962 root over leaf hashes, EMPTY_ROOT over none. Memory: two levels of the tree."""
    frontier, level = list[bytes](), leaves
    while len(level):
        if len(level) & 1:
            frontier.append(level[-1].tobytes())
        level = _level_above(level)
    return CompactRange(len(leaves), tuple(reversed(frontier))).root()


def from_bytes(hashes: Sequence[bytes]) -> Hashes:
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(len(hashes), HASH_SIZE)


def as_column(hashes: Hashes) -> Any:
    """The hashes as an Arrow column of 32-byte values, without a copy if they are contiguous."""
    contiguous: Any = np.ascontiguousarray(hashes)
    return pa.Array.from_buffers(pa.binary(HASH_SIZE), len(hashes), [None, pa.py_buffer(contiguous)])


def _level_above(level: Hashes) -> Hashes:
    pairs = level[: len(level) // 2 * 2].reshape(-1, 2 * HASH_SIZE)
    return sha256_all((prefixed(1, part) for part in parts(pairs)), len(pairs))


def parts(rows: Hashes) -> Iterator[Hashes]:
    """Consecutive rows, PART at a time, so that intermediate arrays stay small and their memory is reused."""
    return (rows[start : start + PART] for start in range(0, len(rows), PART))


def prefixed(prefix: int, rows: Hashes) -> Binary:
    """Rows of bytes as values with a prefix byte: the input of RFC 6962 hashes (0 for a leaf, 1 for a node)."""
    block = np.empty((len(rows), 1 + rows.shape[1]), dtype=np.uint8)
    block[:, 0], block[:, 1:] = prefix, rows
    return fixed_width(block)


def _fixed(chunk: Binary) -> Hashes:
    """A chunk of the engine's result as an array. It has no NULLs, so its values are contiguous."""
    start = chunk.offset * HASH_SIZE
    data: Hashes = np.frombuffer(chunk.buffers()[2], dtype=np.uint8)
    return data[start : start + len(chunk) * HASH_SIZE].reshape(len(chunk), HASH_SIZE)


@cache
def _engine() -> Any:
    """A function from a column to the chunks of its SHA-256, in order; None without DataFusion."""
    try:
        from datafusion import SessionConfig, SessionContext, col, functions
    except ImportError:
        return None
    # One partition: with more, DataFusion returns batches in the order in which partitions finish.
    context = SessionContext(SessionConfig().with_target_partitions(1))
    expression = functions.sha256(col("v")).alias("v")

    numbers = count()

    def engine(values: Binary) -> list[Any]:
        name = f"v{next(numbers)}"  # a name per call: several threads hash concurrently
        frame = context.from_arrow(pa.record_batch([values], names=["v"]), name)
        try:
            return [batch.column(0) for batch in frame.select(expression).collect()]
        finally:
            context.deregister_table(name)  # otherwise the column stays in memory until the process ends

    return engine
