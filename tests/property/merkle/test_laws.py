"""Laws of the Merkle tree, against a plain transcription of RFC 6962 that shares no code with ours."""

from __future__ import annotations

from functools import cache
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.merkle import (
    CompactRange,
    tree,
    verify_batch,
    verify_consistency,
    verify_inclusion,
    verify_range,
)

LEAVES = [sha256(b"\x00" + str(i).encode()).digest() for i in range(261)]


# RFC 6962, 2.1, 2.1.1 and 2.1.2, word for word, with ranges of leaves in place of hashes. A range's level is
# that of the split that made it: the row in which it stands as somebody's sibling.


def split(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


@cache
def mth(start: int, end: int) -> bytes:
    if end - start == 1:
        return LEAVES[start]
    k = split(end - start)
    return sha256(b"\x01" + mth(start, start + k) + mth(start + k, end)).digest()


def path(m: int, start: int, end: int) -> list[tuple[int, int, int]]:
    n = end - start
    if n == 1:
        return []
    k = split(n)
    level = k.bit_length() - 1
    if m < k:
        return [*path(m, start, start + k), (level, start + k, end)]
    return [*path(m - k, start + k, end), (level, start, start + k)]


def subproof(m: int, start: int, end: int, b: bool) -> list[tuple[int, int]]:
    n = end - start
    if m == n:
        return [] if b else [(start, end)]
    k = split(n)
    if m <= k:
        return [*subproof(m, start, start + k, b), (start + k, end)]
    return [*subproof(m - k, start + k, end, False), (start, start + k)]


class Reads:
    """A read_hashes over the reference tree that counts."""

    def __init__(self, size: int) -> None:
        self.size, self.calls, self.hashes = size, 0, 0

    def __call__(self, coordinates):
        self.calls += 1
        self.hashes += len(coordinates)
        assert all((index + 1) << level <= self.size for level, index in coordinates), "not a complete subtree"
        return [mth(index << level, (index + 1) << level) for level, index in coordinates]


@pytest.mark.parametrize("sizes", [range(first, first + 20) for first in range(1, 261, 20)], ids=str)
def test_every_inclusion_proof_is_the_rfcs_and_verifies(sizes):
    for size in sizes:
        root = mth(0, size)
        assert tree.root(LEAVES[:size]) == root
        for index in range(size):
            reads = Reads(size)
            proof = tree.inclusion_proof(index, size, reads)
            assert proof == [mth(start, end) for _, start, end in path(index, 0, size)]
            assert reads.calls <= 1 and reads.hashes <= 2 * (size - 1).bit_length()
            verify_inclusion(LEAVES[index], index, size, proof, root)


@pytest.mark.parametrize("sizes", [range(first, first + 20) for first in range(1, 261, 20)], ids=str)
def test_every_consistency_proof_is_the_rfcs_and_verifies(sizes):
    for new in sizes:
        for old in range(1, new + 1):
            reads = Reads(new)
            proof = tree.consistency_proof(old, new, reads)
            assert proof == [mth(*leaves) for leaves in subproof(old, 0, new, True)]
            assert reads.calls <= 1 and reads.hashes <= 2 * (new - 1).bit_length()
            verify_consistency(old, new, proof, mth(0, old), mth(0, new))


@settings(deadline=None)
@given(st.data())
def test_a_batch_proof_is_what_the_single_proofs_do_not_share(data):
    size = data.draw(st.integers(1, len(LEAVES)))
    indices = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=40)))
    reads = Reads(size)
    proof = tree.batch_proof(indices, size, reads)
    siblings = {leaves for index in indices for leaves in path(index, 0, size)}
    expected = [s for s in sorted(siblings) if not any(s[1] <= index < s[2] for index in indices)]
    assert proof == [mth(start, end) for _, start, end in expected]
    assert reads.calls <= 1
    verify_batch([LEAVES[i] for i in indices], indices, size, proof, mth(0, size))


@settings(deadline=None)
@given(st.data())
def test_a_range_is_proven_with_two_hashes_per_level(data):
    size = data.draw(st.integers(1, len(LEAVES)))
    start = data.draw(st.integers(0, size - 1))
    end = data.draw(st.integers(start + 1, size))
    proof = tree.range_proof(start, end, size, Reads(size))
    assert len(proof) <= 2 * (size - 1).bit_length()
    verify_range(LEAVES[start:end], start, size, proof, mth(0, size))


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=8))
def test_how_appends_are_split_does_not_matter(counts):
    total = min(sum(counts), len(LEAVES))
    in_parts, nodes, at = CompactRange(), [], 0
    for n in counts:
        before = in_parts
        in_parts, new = before.extend(LEAVES[at : at + n])
        assert before == CompactRange.read(min(at, total), Reads(total))  # a value: extending did not change it
        nodes += new
        at += n
    at_once, all_nodes = CompactRange().extend(LEAVES[:total])
    one_by_one, single_nodes = CompactRange(), []
    for leaf in LEAVES[:total]:
        one_by_one, new = one_by_one.append(leaf)
        single_nodes += new
    assert in_parts == at_once == one_by_one == CompactRange.read(total, Reads(total))
    assert sorted(nodes) == sorted(all_nodes) == sorted(single_nodes)
    # Each complete subtree exactly once, with its hash; and the root that the RFC defines.
    complete = [(level, i) for level in range(9) for i in range(total >> level)]
    assert sorted(nodes) == [(level, i, mth(i << level, (i + 1) << level)) for level, i in complete]
    assert in_parts.root() == (mth(0, total) if total else sha256(b"").digest())
    assert CompactRange(in_parts.size, in_parts.hashes) == in_parts


# Trees of up to 2**40 leaves that fit in memory: all leaves are equal but one, so that a node's hash depends
# on its level and on whether the odd leaf is below it.


class HugeTree:
    def __init__(self, odd: int) -> None:
        self.odd, self.reads = odd, 0
        self.plain, self.special = [b"\xaa" * 32], [b"\xbb" * 32]
        for level in range(41):
            plain, special = self.plain[level], self.special[level]
            pair = (plain, special) if odd >> level & 1 else (special, plain)
            self.plain.append(sha256(b"\x01" + plain + plain).digest())
            self.special.append(sha256(b"\x01" + pair[0] + pair[1]).digest())

    def read_hashes(self, coordinates):
        self.reads += 1
        return [self.node(level, index) for level, index in coordinates]

    def node(self, level: int, index: int) -> bytes:
        return self.special[level] if self.odd >> level == index else self.plain[level]

    def root(self, size: int) -> bytes:
        """The RFC's split, from the top down: the left part is complete and known by its level."""
        start, lefts = 0, []
        while True:
            left = size - start
            if left & (left - 1) == 0:
                level = left.bit_length() - 1
                folded = self.node(level, start >> level)
                break
            level = (left - 1).bit_length() - 1
            lefts.append(self.node(level, start >> level))
            start += 1 << level
        for hash_ in reversed(lefts):
            folded = sha256(b"\x01" + hash_ + folded).digest()
        return folded


sizes_to_2_40 = st.integers(0, 40).flatmap(lambda bits: st.integers(1, 1 << bits))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_proofs_verify_in_trees_of_up_to_2_40_leaves(data):
    size = data.draw(sizes_to_2_40)
    index = data.draw(st.integers(0, size - 1))
    old = data.draw(st.integers(1, size))
    end = data.draw(st.integers(index + 1, min(size, index + 50)))
    huge = HugeTree(index)
    proof = tree.inclusion_proof(index, size, huge.read_hashes)
    assert len(proof) <= (size - 1).bit_length()
    verify_inclusion(b"\xbb" * 32, index, size, proof, huge.root(size))
    steps = tree.consistency_proof(old, size, huge.read_hashes)
    verify_consistency(old, size, steps, huge.root(old), huge.root(size))
    assert CompactRange.read(size, huge.read_hashes).root() == huge.root(size)
    assert huge.reads <= 3
    leaves = [b"\xbb" * 32] + [b"\xaa" * 32] * (end - index - 1)
    span = tree.range_proof(index, end, size, huge.read_hashes)
    verify_range(leaves, index, size, span, huge.root(size))
