"""The RFC 6962 Merkle tree: its hashes, its proofs, and the compact range that appending needs.

Pure arithmetic over SHA-256: nothing here stores, fetches or trusts anything. Proofs are *made* here and
*checked* in verify.py, which shares no code with this file.

A stored hash has a coordinate (level, index): it covers the 2**level leaves from index << level on, and level
0 holds the leaf hashes. Only complete subtrees are stored, so a hash once written never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count, pairwise, repeat
from typing import TypeAlias

HASH_SIZE = 32

EMPTY_ROOT = sha256().digest()
"""The hash of a tree with no leaves: MTH({}) = SHA-256(). [RFC 6962, 2.1]"""

Coordinate: TypeAlias = tuple[int, int]
ReadHashes: TypeAlias = Callable[[Sequence[Coordinate]], Sequence[bytes]]
"""Returns the hashes at the coordinates, in their order. Every proof costs exactly one call of it."""

Node: TypeAlias = tuple[int, int, bytes]
"""(level, index, hash) of a new complete subtree, to be stored."""

_Range: TypeAlias = tuple[int, int]  # leaves [start, end); the start is a multiple of the next power of two


def leaf_hash(data: bytes) -> bytes:
    """The hash of one entry: SHA-256(0x00 || data). [RFC 6962, 2.1]"""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node: SHA-256(0x01 || left || right). [RFC 6962, 2.1]"""
    return sha256(b"\x01" + left + right).digest()


def root(leaf_hashes: Iterable[bytes]) -> bytes:
    """The Merkle Tree Hash over leaf hashes, EMPTY_ROOT over none. [RFC 6962, 2.1]

    Costs one hash per leaf and holds one row of the tree in memory. Works row by row: an odd node at the end
    of a row moves up as it is, which gives the same tree as the RFC's split at the largest power of two.
    """
    row = _checked(leaf_hashes)
    while len(row) > 1:
        odd = row[len(row) & ~1 :]
        row = _pair_up(row) + odd
    return row[0] if row else EMPTY_ROOT


def frontier(size: int) -> list[Coordinate]:
    """The complete subtrees that make up a tree of `size` leaves, largest first: one per set bit of it."""
    if size < 0:
        raise ValueError(f"a tree cannot have {size} leaves")
    return _cover((0, size))


@dataclass(frozen=True, slots=True)
class CompactRange:
    """What appending needs of a tree: its size and the hashes of its frontier, largest subtree first.

    A value: extending gives a new one, so a batch that fails to be stored leaves the old one as it was.
    Stored as `size` and `hashes`, and rebuilt by CompactRange(size, hashes).
    """

    size: int = 0
    hashes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "hashes", tuple(_checked(self.hashes)))
        if self.size < 0 or len(self.hashes) != self.size.bit_count():
            raise ValueError(f"no tree of {self.size} leaves has a frontier of {len(self.hashes)} hashes")

    @classmethod
    def read(cls, size: int, read_hashes: ReadHashes) -> CompactRange:
        """The compact range of the first `size` leaves: one read of at most log2(size) + 1 hashes."""
        return cls(size, tuple(_read(frontier(size), read_hashes)))

    def append(self, leaf_hash: bytes) -> tuple[CompactRange, list[Node]]:
        """The range with one leaf more, and the nodes it completed (the leaf itself first)."""
        return self.extend((leaf_hash,))

    def extend(self, leaf_hashes: Iterable[bytes]) -> tuple[CompactRange, list[Node]]:
        """The range with the leaves appended, and every node they completed: leaves first, then row by row.

        Appending in one call or in many gives the same range and the same nodes. n leaves cost n + O(log
        size) hashes and give at most 2n + O(log size) nodes.
        """
        row = _checked(leaf_hashes)
        size = self.size + len(row)
        old_hashes, new_hashes = list(self.hashes), list[bytes]()
        nodes = list[Node]()
        level, first = 0, self.size  # row holds the new nodes of this level, from index `first` on
        while row:
            nodes += zip(repeat(level), count(first), row, strict=False)
            if first & 1:  # the first new node completes a pair with the frontier's hash of this level
                row.insert(0, old_hashes.pop())
            if len(row) & 1:
                new_hashes.append(row[-1])
            row = _pair_up(row)
            level, first = level + 1, first >> 1
        return CompactRange(size, (*old_hashes, *reversed(new_hashes))), nodes

    def root(self) -> bytes:
        """The root of the tree, EMPTY_ROOT if it has no leaves. At most log2(size) hashes, no reads."""
        return _fold(self.hashes) if self.hashes else EMPTY_ROOT


def inclusion_proof(index: int, size: int, read_hashes: ReadHashes) -> list[bytes]:
    """The audit path of leaf `index` in the tree of the first `size` leaves, leaf to root. [RFC 6962, 2.1.1]

    One read of at most 2 * log2(size) hashes; the proof has at most log2(size) rounded up.
    """
    _check_index(index, size)
    return _read_ranges(_path(index, (0, size)), read_hashes)


def consistency_proof(old_size: int, new_size: int, read_hashes: ReadHashes) -> list[bytes]:
    """Shows that the first `old_size` leaves of both trees are the same. [RFC 6962, 2.1.2]

    One read of at most 2 * log2(new_size) hashes, rounded up; the proof has at most log2(new_size) + 1, and
    none for equal sizes. Raises ValueError for an empty tree: as a prefix of every tree it proves nothing.
    """
    if not 0 < old_size <= new_size:
        raise ValueError(f"no consistency proof from size {old_size} to size {new_size}")
    return _read_ranges(_subproof(old_size, (0, new_size), True), read_hashes)


def batch_proof(indices: Sequence[int], size: int, read_hashes: ReadHashes) -> list[bytes]:
    """One proof for many leaves of the tree of the first `size`: each hash that the leaves do not give.

    `indices` strictly ascending, at least one. The hashes stand row by row from the leaves up, left to right
    within a row, so that the proof of a single leaf is its audit path. k leaves need at most k * log2(size)
    hashes, and a contiguous range at most 2 * log2(size), however long; one read of log2(size) more.
    """
    if not indices:
        raise ValueError("a batch proof is about at least one leaf")
    if any(a >= b for a, b in pairwise(indices)):
        raise ValueError("the indices of a batch proof ascend, without repeats")
    _check_index(indices[0], size)
    _check_index(indices[-1], size)

    ranges = list[_Range]()
    row, width, level = list(indices), size, 0  # row: the nodes known at this level, of the `width` there are
    while width > 1:
        known = set(row)
        for sibling in (index ^ 1 for index in row):
            if sibling < width and sibling not in known:
                ranges.append((sibling << level, min((sibling + 1) << level, size)))
        row = list(dict.fromkeys(index >> 1 for index in row))
        width, level = (width + 1) >> 1, level + 1
    return _read_ranges(ranges, read_hashes)


def range_proof(start: int, end: int, size: int, read_hashes: ReadHashes) -> list[bytes]:
    """The batch proof of the leaves [start, end): at most 2 * log2(size) hashes, none for the whole tree."""
    return batch_proof(range(start, end), size, read_hashes)


def _path(index: int, leaves: _Range) -> list[_Range]:
    """PATH(m, D[n]), as the ranges whose hashes are the path. [RFC 6962, 2.1.1]"""
    start, end = leaves
    if end - start == 1:
        return []
    middle = start + _split(end - start)
    if index < middle:
        return [*_path(index, (start, middle)), (middle, end)]
    return [*_path(index, (middle, end)), (start, middle)]


def _subproof(old_size: int, leaves: _Range, known: bool) -> list[_Range]:
    """SUBPROOF(m, D[n], b), as the ranges whose hashes are the proof. [RFC 6962, 2.1.2]

    `known`: the old tree is exactly the first `old_size` of these leaves, so the verifier has its root.
    """
    start, end = leaves
    if old_size == end - start:
        return [] if known else [leaves]
    k = _split(end - start)
    if old_size <= k:
        return [*_subproof(old_size, (start, start + k), known), (start + k, end)]
    return [*_subproof(old_size - k, (start + k, end), False), (start, start + k)]


def _split(n: int) -> int:
    """The largest power of two smaller than n, for n > 1: k in the RFC."""
    return 1 << ((n - 1).bit_length() - 1)


def _cover(leaves: _Range) -> list[Coordinate]:
    """The complete subtrees that make up the range, left to right, each smaller than the one before."""
    start, end = leaves
    coordinates = list[Coordinate]()
    while start < end:
        level = (end - start).bit_length() - 1
        coordinates.append((level, start >> level))
        start += 1 << level
    return coordinates


def _read_ranges(ranges: Sequence[_Range], read_hashes: ReadHashes) -> list[bytes]:
    """The hash of each range, by one read. Only a range that ends with the tree may need several hashes."""
    covers = [_cover(leaves) for leaves in ranges]
    hashes = iter(_read([coordinate for cover in covers for coordinate in cover], read_hashes))
    return [_fold([next(hashes) for _ in cover]) for cover in covers]


def _read(coordinates: Sequence[Coordinate], read_hashes: ReadHashes) -> list[bytes]:
    if not coordinates:
        return []
    hashes = _checked(read_hashes(coordinates))
    if len(hashes) != len(coordinates):
        raise ValueError(f"read_hashes returned {len(hashes)} hashes for {len(coordinates)} coordinates")
    return hashes


def _fold(hashes: Sequence[bytes]) -> bytes:
    """The hash over neighbouring complete subtrees, largest first: joined from the right."""
    folded = hashes[-1]
    for left in hashes[-2::-1]:
        folded = node_hash(left, folded)
    return folded


def _pair_up(row: Sequence[bytes]) -> list[bytes]:
    """The row above, without an odd node at the end."""
    # Half the work of building a tree is done on this line, hence no call of node_hash.
    return [sha256(b"\x01" + left + right).digest() for left, right in zip(row[::2], row[1::2], strict=False)]


def _checked(hashes: Iterable[bytes]) -> list[bytes]:
    """The hashes as a new list. A hash of another length would let a leaf pass for a node."""
    checked = list(hashes)
    if any(len(value) != HASH_SIZE for value in checked):
        raise ValueError(f"a hash is not {HASH_SIZE} bytes long")
    return checked


def _check_index(index: int, size: int) -> None:
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
