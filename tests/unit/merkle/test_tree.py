"""Worked examples: vectors that RFC 6962 implementations share, and the RFC's own seven leaves."""

from __future__ import annotations

from hashlib import sha256

import pytest

from catalog.merkle import CompactRange, leaf_hash, node_hash, tree, verify_inclusion, verify_range

# The inputs and roots of Certificate Transparency's reference implementation, which its successors repeat.
INPUTS = [
    bytes.fromhex(data)
    for data in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [leaf_hash(data) for data in INPUTS]

# RFC 6962, 2.1.3: the tree of seven leaves, with the RFC's names for its nodes, so that the proofs below read
# as the RFC's. Leaf hash `a` is 32 times the letter.
a, b, c, d, e, f, j = (letter.encode() * 32 for letter in "abcdefj")
NODES = {(0, i): leaf for i, leaf in enumerate([a, b, c, d, e, f, j])}


def H(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


g, h, i = H(a, b), H(c, d), H(e, f)
k = H(g, h)
l = H(i, j)  # noqa: E741
NODES |= {(1, 0): g, (1, 1): h, (1, 2): i, (2, 0): k}


def read(coordinates):
    return [NODES[coordinate] for coordinate in coordinates]


@pytest.mark.parametrize("size", range(9))
def test_shared_roots(size):
    assert tree.root(LEAVES[:size]).hex() == ROOTS[size]
    assert CompactRange().extend(LEAVES[:size])[0].root().hex() == ROOTS[size]


def test_a_leaf_and_a_node_are_hashed_apart():
    assert leaf_hash(b"") == sha256(b"\x00").digest()
    assert node_hash(a, b) == sha256(b"\x01" + a + b).digest()
    assert leaf_hash(a + b) != node_hash(a, b)


def test_the_rfcs_audit_paths():
    assert tree.inclusion_proof(0, 7, read) == [b, h, l]
    assert tree.inclusion_proof(3, 7, read) == [c, g, l]
    assert tree.inclusion_proof(4, 7, read) == [f, j, k]
    assert tree.inclusion_proof(6, 7, read) == [i, k]


def test_the_rfcs_consistency_proofs():
    assert tree.consistency_proof(3, 7, read) == [c, d, g, l]
    assert tree.consistency_proof(4, 7, read) == [l]
    assert tree.consistency_proof(6, 7, read) == [i, j, k]
    assert tree.consistency_proof(7, 7, read) == []


def test_a_batch_shares_what_single_proofs_repeat():
    assert tree.batch_proof([0, 1], 7, read) == [h, l]
    assert tree.batch_proof([0, 3], 7, read) == [b, c, l]
    assert tree.batch_proof([2, 6], 7, read) == [d, g, i]
    assert tree.batch_proof([4], 7, read) == tree.inclusion_proof(4, 7, read)
    assert tree.batch_proof(range(7), 7, read) == []
    assert tree.range_proof(1, 5, 7, read) == [a, f, j]


def test_a_page_of_a_feed_is_proven_and_checked():
    """How a change feed uses it: rows 2, 3 and 4 of eight, against a root that the reader trusts."""
    nodes = {(level, index): value for level, index, value in CompactRange().extend(LEAVES)[1]}
    proof = tree.range_proof(2, 5, 8, lambda coordinates: [nodes[c] for c in coordinates])
    verify_range([leaf_hash(row) for row in INPUTS[2:5]], 2, 8, proof, bytes.fromhex(ROOTS[8]))


def test_a_proof_is_one_read_of_complete_subtrees():
    calls = []

    def count(coordinates):
        calls.append(list(coordinates))
        return read(coordinates)

    tree.inclusion_proof(0, 7, count)
    assert calls == [[(0, 1), (1, 1), (1, 2), (0, 6)]]
    calls.clear()
    assert tree.inclusion_proof(0, 1, count) == [] and calls == []


def test_an_append_names_the_nodes_it_completed():
    compact, nodes = CompactRange(3, (g, c)).append(d)
    assert compact == CompactRange(4, (k,))
    assert nodes == [(0, 3, d), (1, 1, h), (2, 0, k)]
    assert compact.extend([]) == (compact, [])


def test_the_frontier_is_one_subtree_per_bit_of_the_size():
    assert tree.frontier(7) == [(2, 0), (1, 2), (0, 6)]
    assert tree.frontier(0) == []
    assert CompactRange.read(7, read).hashes == (k, i, j)


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("no leaf 7", lambda: tree.inclusion_proof(7, 7, read)),
        ("no leaf -1", lambda: tree.inclusion_proof(-1, 7, read)),
        ("no leaf 0", lambda: tree.inclusion_proof(0, 0, read)),
        ("no consistency proof", lambda: tree.consistency_proof(0, 7, read)),
        ("no consistency proof", lambda: tree.consistency_proof(7, 6, read)),
        ("at least one leaf", lambda: tree.batch_proof([], 7, read)),
        ("ascend", lambda: tree.batch_proof([1, 1], 7, read)),
        ("ascend", lambda: tree.batch_proof([2, 1], 7, read)),
        ("no leaf -1", lambda: tree.batch_proof([-1, 1], 7, read)),
        ("no leaf 7", lambda: tree.batch_proof([1, 7], 7, read)),
        ("at least one leaf", lambda: tree.range_proof(3, 3, 7, read)),
        ("-1 leaves", lambda: tree.frontier(-1)),
        ("32 bytes", lambda: tree.root([a, a[:31]])),
        ("returned 3", lambda: tree.inclusion_proof(0, 7, lambda coordinates: read(coordinates)[1:])),
        ("32 bytes", lambda: tree.inclusion_proof(0, 7, lambda cs: [*read(cs)[1:], b"short"])),
        ("frontier of 0", lambda: CompactRange(1, ())),
        ("frontier of 2", lambda: CompactRange(2, (a, b))),
        ("-1 leaves", lambda: CompactRange(-1, (a,))),
        ("32 bytes", lambda: CompactRange(1, (a[:31],))),
        ("32 bytes", lambda: CompactRange().append(b"short")),
    ],
)
def test_a_callers_mistake_is_a_value_error(what, call):
    with pytest.raises(ValueError, match=what):
        call()


def test_a_single_leaf_is_its_own_root():
    assert tree.root([a]) == a
    verify_inclusion(a, 0, 1, [], a)
