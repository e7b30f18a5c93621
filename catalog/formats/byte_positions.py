"""Positions and counts of bytes in a block of text, by numpy: several times as fast as `re` and `bytes.count`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_STEP = 128 << 10
"""Searched piece by piece, so that a piece and its mask stay in the processor's cache."""


def find_bytes(block: bytes, matches: Callable[[Bytes], Any]) -> np.ndarray[Any, Any]:
    """Where `matches`, which maps bytes to booleans, is true. Memory: the positions and one piece's mask."""
    codes = np.frombuffer(block, np.uint8)
    positions = [matches(codes[at : at + _STEP]).nonzero()[0] + at for at in range(0, len(codes), _STEP)]
    return np.concatenate([np.empty(0, np.int64), *positions])


def count_byte(block: bytes, byte: int) -> int:
    """How often one byte occurs that occurs often; `bytes.count` is faster for a rare one."""
    codes = np.frombuffer(block, np.uint8)
    return sum(int(np.count_nonzero(codes[at : at + _STEP] == byte)) for at in range(0, len(codes), _STEP))
