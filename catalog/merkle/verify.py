"""Verifies Merkle proofs. Short enough to be audited in one sitting, and usable on its own.

Needs Python's standard library and nothing else, not even the rest of this package: the code that makes
proofs (tree.py) is not used to check them. Each function returns None if the proof is right and raises
ProofError if not.

Hashes are 32 bytes. A leaf hash is SHA-256(0x00 || entry), a node is SHA-256(0x01 || left || right), so that
an entry can never pass for a node [RFC 6962, 2.1]. The caller hashes the entry itself, and takes size and
root together from one signed checkpoint (checkpoint.py): a path can have the same shape in trees of
neighbouring sizes, so it proves nothing about a size by itself. All else in a proof is untrusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import pairwise

__all__ = ["ProofError", "verify_batch", "verify_consistency", "verify_inclusion", "verify_range"]


class ProofError(Exception):
    """The evidence does not show what it claims. Nothing in it may be used."""


def verify_inclusion(leaf_hash: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Leaf `index` of the tree of `size` leaves with this root is `leaf_hash`.

    [RFC 9162, 2.1.3.2; the proof is the audit path of RFC 6962, 2.1.1.] At most log2(size) rounded up hashes.
    """
    _check_hashes([leaf_hash, *proof, root])
    if not 0 <= index < size:
        raise ProofError(f"a tree of {size} leaves has no leaf {index}")
    # fn is the number of our node in its row, sn the number of the last node of that row.
    fn, sn = index, size - 1
    computed = leaf_hash
    for sibling in proof:
        if sn == 0:
            raise _too_many_hashes(f"leaf {index} of {size}")
        if fn & 1 or fn == sn:
            computed = _node(sibling, computed)
            while fn and not fn & 1:  # the last node of its row, without a sibling: it moves up as it is
                fn, sn = fn >> 1, sn >> 1
        else:
            computed = _node(computed, sibling)
        fn, sn = fn >> 1, sn >> 1
    if sn != 0:
        raise _too_few_hashes(f"leaf {index} of {size}")
    _check_root(computed, root, f"leaf {index} of {size}")


def verify_consistency(size1: int, size2: int, proof: Sequence[bytes], root1: bytes, root2: bytes) -> None:
    """The tree (size2, root2) begins with exactly the leaves of (size1, root1).

    [RFC 9162, 2.1.4.2; the proof is that of RFC 6962, 2.1.2.] Two trees of one size need an empty proof and
    equal roots. An empty tree is refused: it is a prefix of every tree, so a proof about it would show
    nothing. At most 2 * log2(size2) hashes.
    """
    _check_hashes([*proof, root1, root2])
    subject = f"size {size1} to size {size2}"
    if not 0 < size1 <= size2:
        raise ProofError(f"there is no proof of consistency from {subject}")
    if size1 == size2:
        if proof:
            raise _too_many_hashes(subject)
        _check_root(root1, root2, subject)
        return
    if not proof:
        raise _too_few_hashes(subject)
    # The walk begins at the largest complete subtree that ends where the old tree ends. If that is the whole
    # old tree, the proof leaves it out: it is root1.
    path = list(proof) if size1 & (size1 - 1) else [root1, *proof]
    fn, sn = size1 - 1, size2 - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    computed1 = computed2 = path[0]
    for sibling in path[1:]:
        if sn == 0:
            raise _too_many_hashes(subject)
        if fn & 1 or fn == sn:
            computed1, computed2 = _node(sibling, computed1), _node(sibling, computed2)
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            computed2 = _node(computed2, sibling)
        fn, sn = fn >> 1, sn >> 1
    if sn != 0:
        raise _too_few_hashes(subject)
    _check_root(computed1, root1, f"{subject}, the old tree")
    _check_root(computed2, root2, f"{subject}, the new tree")


def verify_batch(
    leaf_hashes: Sequence[bytes], indices: Sequence[int], size: int, proof: Sequence[bytes], root: bytes
) -> None:
    """Each `leaf_hashes[i]` is leaf `indices[i]` of the tree of `size` leaves with this root.

    The indices ascend strictly. The proof holds each hash that the leaves do not give, row by row from the
    leaves up, left to right: for one leaf it is the audit path of RFC 6962. At most k * log2(size) hashes for
    k leaves, about k + 2 * log2(size) if they are neighbours.
    """
    _check_hashes([*leaf_hashes, *proof, root])
    if not indices or len(indices) != len(leaf_hashes):
        raise ProofError(f"a batch proof with {len(indices)} indices and {len(leaf_hashes)} leaf hashes")
    if any(a >= b for a, b in pairwise(indices)):
        raise ProofError("the indices of a batch proof do not ascend")
    if indices[0] < 0 or indices[-1] >= size:
        raise ProofError(f"a tree of {size} leaves has no leaves {indices[0]} to {indices[-1]}")
    subject = f"{len(indices)} leaves of {size}"
    row, hashes, width = list(zip(indices, leaf_hashes, strict=True)), iter(proof), size
    while width > 1:
        row = list(_row_above(row, width, hashes, subject))
        width = (width + 1) >> 1
    if next(hashes, None) is not None:
        raise _too_many_hashes(subject)
    _check_root(row[0][1], root, subject)


def verify_range(leaf_hashes: Sequence[bytes], start: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """The leaves from `start` on, as many as there are `leaf_hashes`, are exactly these, none left out.

    A batch proof over neighbours. The whole tree (start 0, `size` leaf hashes) has an empty proof.
    """
    verify_batch(leaf_hashes, range(start, start + len(leaf_hashes)), size, proof, root)


def _row_above(
    row: Sequence[tuple[int, bytes]], width: int, hashes: Iterator[bytes], subject: str
) -> Iterator[tuple[int, bytes]]:
    """The parents of the known nodes of a row `width` wide, with absent siblings taken from the proof."""
    at = 0
    while at < len(row):
        index, computed = row[at]
        at += 1
        if index & 1:
            computed = _node(_next(hashes, subject), computed)
        elif at < len(row) and row[at][0] == index + 1:
            computed = _node(computed, row[at][1])
            at += 1
        elif index + 1 < width:
            computed = _node(computed, _next(hashes, subject))
        # else it is the last node of its row, without a sibling, and moves up as it is
        yield index >> 1, computed


def _next(hashes: Iterator[bytes], subject: str) -> bytes:
    sibling = next(hashes, None)
    if sibling is None:
        raise _too_few_hashes(subject)
    return sibling


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def _check_hashes(hashes: Sequence[bytes]) -> None:
    for value in hashes:
        if not isinstance(value, bytes) or len(value) != 32:
            raise ProofError(f"not a SHA-256 hash of 32 bytes: {value!r:.80}")


def _check_root(computed: bytes, root: bytes, subject: str) -> None:
    if computed != root:
        raise ProofError(f"{subject}: the proof leads to root {computed.hex()}, not to {root.hex()}")


def _too_many_hashes(subject: str) -> ProofError:
    return ProofError(f"{subject}: the proof has more hashes than it needs")


def _too_few_hashes(subject: str) -> ProofError:
    return ProofError(f"{subject}: the proof has fewer hashes than it needs")
