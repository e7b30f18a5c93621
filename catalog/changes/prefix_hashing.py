"""The hashes of the verifiable map of docs/spec/timeline.md (catalog.merkle.prefix_map), computed in whole columns.

A state map has a key for every row of a table, so its tree is hashed a level at a time, for all subtrees together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from catalog.changes.arrow_buffers import fixed_width
from catalog.changes.hashing import Hashes, parts, sha256_all

EMPTY, LEAF, NODE = 0, 1, 2
Kinds: TypeAlias = npt.NDArray[np.uint8]
"""What each subtree is: EMPTY, the LEAF of its only key, or a NODE."""

_LEADING_ZEROS = np.array([8 - value.bit_length() for value in range(256)], np.int16)


@dataclass(frozen=True)
class Subtrees:
    """The hash and kind of subtrees that stand side by side."""

    hashes: Hashes
    kinds: Kinds

    @classmethod
    def empty(cls, count: int) -> Subtrees:
        return cls(np.zeros((count, 32), np.uint8), np.zeros(count, np.uint8))


def hash_rows(*columns: Any) -> Hashes:
    """SHA-256 over each row of the columns side by side: arrays of bytes, or one byte for all rows."""
    count = max(len(column) for column in columns if not isinstance(column, int))
    wide = [np.full((count, 1), column, np.uint8) if isinstance(column, int) else column for column in columns]
    block = np.concatenate(wide, axis=1)
    return sha256_all((fixed_width(part) for part in parts(block)), count)


def leaf_hashes(keys: Hashes, commitments: Hashes) -> Hashes:
    """The hash of each key's leaf; `commitments`: the SHA-256 of each value."""
    return hash_rows(2, keys, commitments)


def common_bits(keys: Hashes) -> npt.NDArray[np.int16]:
    """How many leading bits each key, of ascending ones, has in common with the next; 256 for equal keys."""
    different = keys[:-1] ^ keys[1:]
    byte = np.argmax(different != 0, axis=1)
    value = different[np.arange(len(different)), byte]
    return np.where(value == 0, 256, byte * 8 + _LEADING_ZEROS[value]).astype(np.int16)


def prefixes(keys: Hashes, depth: int) -> npt.NDArray[np.int64]:
    """The first `depth` bits of each key, as a number; at most 56."""
    words = np.ascontiguousarray(keys[:, :8]).view(">u8").ravel().astype(np.uint64)
    return (words >> np.uint64(64 - depth)).astype(np.int64) if depth else np.zeros(len(keys), np.int64)


def roots_at(keys: Hashes, leaves: Hashes, depth: int) -> tuple[npt.NDArray[np.int64], Subtrees]:
    """The subtrees at `depth` that the keys lie in: the position of each one's first key, and the subtrees.

    `keys` ascend and differ; `leaves` are their leaf hashes. Costs one hash a node.
    """
    shared = common_bits(keys)
    hashes, is_node = leaves.copy(), np.zeros(len(keys), np.bool_)
    live = np.arange(len(keys))  # each subtree is kept at its first key: only positions move, not hashes
    for level in range(int(shared.max(initial=-1)), depth - 1, -1):
        # Every node stands at level + 1 here. It joins its neighbour, if they part at this bit, or nothing.
        pairs = np.flatnonzero(shared == level)
        left, right = live[pairs], live[pairs + 1]
        is_node[left] = is_node[right] = False
        lifted = live[is_node[live]]
        if not len(left) and not len(lifted):
            continue
        lifted_right = bits_at(keys[lifted], level)[:, None]
        nothing = np.zeros((len(lifted), 32), np.uint8)
        lefts = np.concatenate([hashes[left], np.where(lifted_right, nothing, hashes[lifted])])
        rights = np.concatenate([hashes[right], np.where(lifted_right, hashes[lifted], nothing)])
        joined = hash_rows(3, lefts, rights)
        hashes[left], hashes[lifted] = joined[: len(left)], joined[len(left) :]
        is_node[left] = True
        live, shared = np.delete(live, pairs + 1), np.delete(shared, pairs)
    kinds = np.where(is_node[live], NODE, LEAF).astype(np.uint8)
    return live, Subtrees(hashes[live], kinds)


def joined_pairs(below: Subtrees) -> Subtrees:
    """The subtrees one level up, over each pair. A leaf beside nothing moves up."""
    left, right = below.hashes[0::2], below.hashes[1::2]
    kinds = below.kinds.reshape(-1, 2)
    is_leaf = kinds.sum(axis=1) == LEAF  # one leaf and nothing
    is_node = (kinds != EMPTY).any(axis=1) & ~is_leaf
    hashes = np.where(is_leaf[:, None], left | right, np.uint8(0))
    if is_node.any():
        hashes[is_node] = hash_rows(3, left[is_node], right[is_node])
    return Subtrees(hashes, np.select([is_leaf, is_node], [LEAF, NODE], EMPTY).astype(np.uint8))


def bits_at(keys: Hashes, level: int) -> npt.NDArray[np.bool_]:
    """One bit of each key, the most significant one first."""
    return (keys[:, level >> 3] >> np.uint8(7 - (level & 7)) & np.uint8(1)).astype(np.bool_)
