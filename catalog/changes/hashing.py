"""SHA-256 over whole columns, and the levels of an RFC 6962 tree over its leaf hashes.

DataFusion hashes a column several times quicker than a loop can; where it is not installed, hashlib gives the
same bytes. Proofs are made by catalog.merkle.tree, which reads the levels kept here.
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

from catalog.changes.buffers import Binary, fixed_width
from catalog.merkle.tree import EMPTY_ROOT, HASH_SIZE, CompactRange, Coordinate

Hashes: TypeAlias = npt.NDArray[np.uint8]
"""SHA-256 values as an array of shape (n, 32)."""

PART = 1 << 16
_LOOP_BELOW = 1500  # values: handing a column to the engine costs about a millisecond


def sha256_each(values: Binary) -> Hashes:
    """The SHA-256 of each value, none of which is NULL."""
    return sha256_all([values], len(values))


def sha256_all(parts: Iterable[Binary], size: int) -> Hashes:
    """The same for a column that comes in parts, of `size` values together: no part outlives its turn."""
    hashes, at = np.empty((size, HASH_SIZE), np.uint8), 0
    for values in parts:
        for part in _hashed(values):
            hashes[at : at + len(part)] = part
            at += len(part)
    return hashes


def _hashed(values: Binary) -> Iterator[Hashes]:
    engine = _engine() if len(values) >= _LOOP_BELOW else None
    if engine is not None:
        yield from map(_fixed, engine(values))
    elif len(values):
        yield from_bytes([sha256(value).digest() for value in values.to_pylist()])


class Levels:
    """A tree's complete subtrees, row by row: 64 bytes per leaf. Made once, then it gives the root and any proof."""

    def __init__(self, leaves: Hashes) -> None:
        self.size = len(leaves)
        self._rows = [leaves]
        while len(self._rows[-1]) > 1:
            self._rows.append(_row_above(self._rows[-1]))

    def read_hashes(self, coordinates: Sequence[Coordinate]) -> list[bytes]:
        """What catalog.merkle.tree reads proofs from."""
        return [self._rows[level][index].tobytes() for level, index in coordinates]

    @property
    def root(self) -> bytes:
        return CompactRange.read(self.size, self.read_hashes).root() if self.size else EMPTY_ROOT


def root(leaves: Hashes) -> bytes:
    """The RFC 6962 root over leaf hashes, EMPTY_ROOT over none. Holds two rows of the tree at a time."""
    level, frontier, row = 0, list[bytes](), leaves
    while len(row):
        if len(row) & 1:
            frontier.append(row[-1].tobytes())
        row, level = _row_above(row), level + 1
    return CompactRange(len(leaves), tuple(reversed(frontier))).root()


def from_bytes(hashes: Sequence[bytes]) -> Hashes:
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(len(hashes), HASH_SIZE)


def as_column(hashes: Hashes) -> Any:
    """The hashes as an Arrow column of 32-byte values, without a copy where they lie side by side."""
    flat: Any = np.ascontiguousarray(hashes)
    return pa.Array.from_buffers(pa.binary(HASH_SIZE), len(hashes), [None, pa.py_buffer(flat)])


def _row_above(row: Hashes) -> Hashes:
    pairs = row[: len(row) // 2 * 2].reshape(-1, 2 * HASH_SIZE)
    return sha256_all((prefixed(1, part) for part in parts(pairs)), len(pairs))


def parts(rows: Hashes) -> Iterator[Hashes]:
    """Neighbouring rows, PART at a time: what is made of them is made in memory that is in use already."""
    return (rows[start : start + PART] for start in range(0, len(rows), PART))


def prefixed(prefix: int, rows: Hashes) -> Binary:
    """Rows of bytes as values, each behind one byte: what RFC 6962 hashes."""
    block = np.empty((len(rows), 1 + rows.shape[1]), dtype=np.uint8)
    block[:, 0], block[:, 1:] = prefix, rows
    return fixed_width(block)


def _fixed(chunk: Binary) -> Hashes:
    """The engine's answer as an array. It has no NULLs, so its values lie side by side."""
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
    # One partition: with more, DataFusion answers in whatever order they finish.
    context = SessionContext(SessionConfig().with_target_partitions(1))
    expression = functions.sha256(col("v")).alias("v")

    numbers = count()

    def engine(values: Binary) -> list[Any]:
        name = f"v{next(numbers)}"  # one's own: several threads hash at a time
        frame = context.from_arrow(pa.record_batch([values], names=["v"]), name)
        try:
            return [batch.column(0) for batch in frame.select(expression).collect()]
        finally:
            context.deregister_table(name)  # it would be kept as long as the process lives

    return engine
