"""Arrow columns and numpy arrays over the same memory, for encoding and hashing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes: TypeAlias = npt.NDArray[np.uint8]
Slots: TypeAlias = npt.NDArray[np.uint64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Offsets: TypeAlias = npt.NDArray[np.int32]
Binary: TypeAlias = Any  # a pa.BinaryArray; pyarrow's stubs type it differently from call to call


def binary(offsets: Offsets, data: Any) -> Binary:
    """A binary column from its data and offsets: where each value starts, and where the last one ends."""
    untyped: Any = offsets
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(untyped), buffer])


def fixed_width(raw: Bytes) -> Binary:
    """Rows of bytes of equal width, as a column."""
    rows, width = raw.shape
    return binary(np.arange(rows + 1, dtype=np.int32) * np.int32(width), raw)


def joined(parts: Sequence[Binary]) -> Binary:
    """The columns' values concatenated, row by row. No value may be NULL."""
    join: Any = pc.binary_join_element_wise
    return parts[0] if len(parts) == 1 else join(*parts, b"")


def offsets(lengths: npt.NDArray[Any]) -> Offsets:
    """Offsets of consecutive values with these lengths."""
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    return ends


def offsets_of(column: Binary) -> Offsets:
    """Where each value of a column starts in its data, and where the last one ends."""
    return _memory(column, np.int32, 1, len(column) + 1) if len(column) else np.zeros(1, dtype=np.int32)


def values_of(column: Any) -> npt.NDArray[Any]:
    """The numbers of a column of a fixed-width type; arbitrary where it is NULL."""
    return _memory(column, column.type.to_pandas_dtype(), 1, len(column))


def words_of(column: Any, words: int) -> npt.NDArray[np.int64]:
    """Each value of a type of `words` times 8 bytes as 8-byte integers, the least significant first."""
    return _memory(column, np.int64, words, words * len(column)).reshape(len(column), words)


def _memory(column: Any, kind: Any, per_value: int, count: int) -> npt.NDArray[Any]:
    """`count` numbers from the column's first value on. An empty column's buffer may have any size, or be None."""
    if not len(column):
        return np.empty(0, dtype=kind)
    start = column.offset * per_value * np.dtype(kind).itemsize
    return np.frombuffer(column.buffers()[1], dtype=kind, count=count, offset=start)


def write_big_endian(raw: Bytes, at: int, slots: Slots) -> None:
    """Writes each slot into its row at byte `at`: four times faster than numpy's conversion."""
    if len(raw):
        target: Slots = np.ndarray(len(raw), np.uint64, buffer=raw.data, offset=at, strides=raw.strides[:1])
        target[:] = slots.byteswap()
