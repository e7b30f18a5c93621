"""A proof changed in any way is refused: hashes dropped, added, swapped, altered, or of another tree."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.merkle import (
    CompactRange,
    ProofError,
    tree,
    verify_batch,
    verify_consistency,
    verify_inclusion,
    verify_range,
)

LEAVES = [sha256(str(i).encode()).digest() for i in range(600)]
STORE = {(level, index): value for level, index, value in CompactRange().extend(LEAVES)[1]}

sizes = st.integers(1, len(LEAVES))


def read_hashes(coordinates):
    return [STORE[coordinate] for coordinate in coordinates]


def root(size: int) -> bytes:
    return CompactRange.read(size, read_hashes).root()


def flip(draw, value: bytes) -> bytes:
    bit = draw(st.integers(0, len(value) * 8 - 1))
    changed = bytearray(value)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@st.composite
def changed(draw, proof: list[bytes]) -> list[bytes]:
    """The proof with one change: always a different list of hashes."""
    out = list(proof)
    kinds = ["add"] + ["drop", "flip", "shorten", "lengthen"] * bool(out) + ["swap"] * (len(out) > 1)
    kind = draw(st.sampled_from(kinds))
    at = draw(st.integers(0, max(len(out) - 1, 0)))
    match kind:
        case "add":
            known = st.sampled_from(out) if out else st.nothing()
            out.insert(draw(st.integers(0, len(out))), draw(known | st.binary(min_size=32, max_size=32)))
        case "drop":
            del out[at]
        case "flip":
            out[at] = flip(draw, out[at])
        case "shorten":
            out[at] = out[at][:-1]
        case "lengthen":
            out[at] += b"\x00"
        case "swap":
            other = draw(st.integers(0, len(out) - 1).filter(lambda i: i != at))
            out[at], out[other] = out[other], out[at]
    assert out != proof
    return out


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_changed_inclusion_proof_is_refused(data):
    size = data.draw(sizes)
    index = data.draw(st.integers(0, size - 1))
    proof = tree.inclusion_proof(index, size, read_hashes)
    verify_inclusion(LEAVES[index], index, size, proof, root(size))
    with pytest.raises(ProofError):
        verify_inclusion(LEAVES[index], index, size, data.draw(changed(proof)), root(size))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_an_inclusion_proof_is_of_one_leaf_and_one_tree(data):
    size = data.draw(sizes)
    index = data.draw(st.integers(0, size - 1))
    proof = tree.inclusion_proof(index, size, read_hashes)
    other_index = data.draw(st.integers(-1, size + 1).filter(lambda i: i != index))
    other_size = data.draw(sizes.filter(lambda n: n != size))
    for leaf, at, of, to in [
        (LEAVES[index], other_index, size, root(size)),
        (LEAVES[index], index, other_size, root(other_size)),
        (LEAVES[index], index, size, root(other_size)),
        (LEAVES[index], index, size, flip(data.draw, root(size))),
        (flip(data.draw, LEAVES[index]), index, size, root(size)),
        (LEAVES[index], index, -size, root(size)),
    ]:
        with pytest.raises(ProofError):
            verify_inclusion(leaf, at, of, proof, to)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_changed_consistency_proof_is_refused(data):
    new = data.draw(sizes)
    old = data.draw(st.integers(1, new))
    proof = tree.consistency_proof(old, new, read_hashes)
    verify_consistency(old, new, proof, root(old), root(new))
    with pytest.raises(ProofError):
        verify_consistency(old, new, data.draw(changed(proof)), root(old), root(new))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_consistency_proof_is_of_two_trees(data):
    new = data.draw(st.integers(2, len(LEAVES)))
    old = data.draw(st.integers(1, new - 1))
    proof = tree.consistency_proof(old, new, read_hashes)
    other_old = data.draw(sizes.filter(lambda n: n != old))
    other_new = data.draw(sizes.filter(lambda n: n != new))
    for size1, size2, root1, root2 in [
        (other_old, new, root(other_old), root(new)),
        (old, other_new, root(old), root(other_new)),
        (old, new, flip(data.draw, root(old)), root(new)),
        (old, new, root(old), flip(data.draw, root(new))),
        (old, new, root(new), root(old)),
        (new, old, root(new), root(old)),
    ]:
        with pytest.raises(ProofError):
            verify_consistency(size1, size2, proof, root1, root2)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_rewritten_history_has_no_consistency_proof(data):
    """Whoever changes a leaf under an old checkpoint cannot prove the step from it, with either tree."""
    new = data.draw(st.integers(2, 120))
    old = data.draw(st.integers(1, new))
    victim = data.draw(st.integers(0, old - 1))
    forged = [*LEAVES[:victim], sha256(b"forged").digest(), *LEAVES[victim + 1 : new]]
    forged_tree, nodes = CompactRange().extend(forged)
    forged_store = {(level, index): value for level, index, value in nodes}
    for store in (STORE, forged_store):
        proof = tree.consistency_proof(old, new, lambda cs, store=store: [store[c] for c in cs])
        with pytest.raises(ProofError):
            verify_consistency(old, new, proof, root(old), forged_tree.root())


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_changed_batch_is_refused(data):
    size = data.draw(sizes)
    indices = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=12)))
    leaves = [LEAVES[i] for i in indices]
    proof = tree.batch_proof(indices, size, read_hashes)
    verify_batch(leaves, indices, size, proof, root(size))
    at = data.draw(st.integers(0, len(indices) - 1))
    other = data.draw(st.integers(-1, size).filter(lambda i: i not in indices))
    other_size = data.draw(sizes.filter(lambda n: n != size))
    for hashes, where, of, steps, to in [
        (leaves, indices, size, data.draw(changed(proof)), root(size)),
        ([*leaves[:at], flip(data.draw, leaves[at]), *leaves[at + 1 :]], indices, size, proof, root(size)),
        (leaves[:at] + leaves[at + 1 :], indices[:at] + indices[at + 1 :], size, proof, root(size)),
        (leaves[:at] + leaves[at + 1 :], indices, size, proof, root(size)),
        (leaves, [*indices[:at], other, *indices[at + 1 :]], size, proof, root(size)),
        (leaves, sorted([*indices[:at], other, *indices[at + 1 :]]), size, proof, root(size)),
        (leaves + leaves[:1], indices + indices[:1], size, proof, root(size)),
        (leaves, indices, other_size, proof, root(other_size)),
        (leaves, indices, size, proof, flip(data.draw, root(size))),
    ]:
        with pytest.raises(ProofError):
            verify_batch(hashes, where, of, steps, to)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_range_with_a_leaf_left_out_moved_or_added_is_refused(data):
    size = data.draw(st.integers(2, len(LEAVES)))
    start = data.draw(st.integers(0, size - 2))
    end = data.draw(st.integers(start + 2, size))
    leaves = LEAVES[start:end]
    proof = tree.range_proof(start, end, size, read_hashes)
    verify_range(leaves, start, size, proof, root(size))
    at = data.draw(st.integers(0, len(leaves) - 2))
    swapped = [*leaves[:at], leaves[at + 1], leaves[at], *leaves[at + 2 :]]
    for hashes, first in [
        (leaves[:at] + leaves[at + 1 :], start),
        (leaves[1:], start + 1),
        (leaves[:-1], start),
        (swapped, start),
        ([*leaves, leaves[-1]], start),
        (leaves, start + 1),
        (leaves, start - 1),
        ([], start),
    ]:
        with pytest.raises(ProofError):
            verify_range(hashes, first, size, proof, root(size))
