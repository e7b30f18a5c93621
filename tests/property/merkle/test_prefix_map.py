"""The verifiable map: its root depends on contents alone, and each key has one answer that a proof can show."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from catalog.merkle.map_verify import verify_absence, verify_value
from catalog.merkle.prefix_map import EMPTY, MapProof, PrefixMap, read_map, read_proof
from catalog.merkle.verify import ProofError

# Keys that share long prefixes, as an adversary would choose them, beside ordinary ones.
NEAR = st.integers(0, 15).map(lambda low: bytes(31) + bytes([low]))
KEYS = NEAR | st.binary(min_size=32, max_size=32) | st.integers(0, 40).map(lambda n: sha256(b"%d" % n).digest())
VALUES = st.binary(max_size=8)
History = list[dict[bytes, bytes | None]]
ITEMS = st.dictionaries(KEYS, VALUES, max_size=30)


def reference_root(items: dict[bytes, bytes], depth: int = 0) -> bytes:
    """The definition, top down, with none of the code under test."""
    if not items:
        return bytes(32)
    if len(items) == 1:
        [(key, value)] = items.items()
        return sha256(b"\x02" + key + sha256(value).digest()).digest()
    sides: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
    for key, value in items.items():
        sides[int.from_bytes(key, "big") >> (255 - depth) & 1][key] = value
    left, right = (reference_root(side, depth + 1) for side in sides)
    return sha256(b"\x03" + left + right).digest()


def accepts(key: bytes, value: bytes | None, proof: MapProof, root: bytes) -> bool:
    try:
        if value is None:
            verify_absence(key, proof.siblings, proof.other, root)
        else:
            verify_value(key, value, proof.siblings, root)
    except ProofError:
        return False
    return True


@given(ITEMS)
def test_the_root_is_the_definition_s(items: dict[bytes, bytes]) -> None:
    made = PrefixMap(items)
    assert made.root == reference_root(items)
    assert list(made.items()) == sorted(items.items())


@given(ITEMS, st.lists(st.dictionaries(KEYS, st.none() | VALUES, max_size=6), max_size=6))
def test_the_root_does_not_depend_on_history(
    items: dict[bytes, bytes], history: list[dict[bytes, bytes | None]]
) -> None:
    made, expected = PrefixMap(items), dict(items)
    for changes in history:
        before = made.root
        made.updated(changes)
        assert made.root == before  # an update leaves the old map as it was
        made = made.updated(changes)
        expected |= {key: value for key, value in changes.items() if value is not None}
        for key in (key for key, value in changes.items() if value is None):
            expected.pop(key, None)
    assert made.root == reference_root(expected)
    assert dict(made.items()) == expected


@given(ITEMS, KEYS)
def test_every_key_has_an_answer_and_only_that_one_is_accepted(items: dict[bytes, bytes], key: bytes) -> None:
    made = PrefixMap(items)
    proof, value = made.prove(key), items.get(key)
    assert made.get(key) == value
    assert accepts(key, value, proof, made.root)
    assert not accepts(key, b"another value", proof, made.root)
    assert (value is None) or not accepts(key, None, proof, made.root)


@given(ITEMS.filter(lambda items: len(items) > 1), st.data())
def test_no_changed_proof_is_accepted(items: dict[bytes, bytes], data: st.DataObject) -> None:
    made = PrefixMap(items)
    key = data.draw(st.sampled_from(sorted(items)) | KEYS)
    proof, value = made.prove(key), items.get(key)
    siblings = list(proof.siblings)
    at = data.draw(st.integers(0, len(siblings) - 1))
    changed = data.draw(
        st.sampled_from(
            [
                siblings[:at] + siblings[at + 1 :],
                [*siblings[:at], EMPTY, *siblings[at:]],
                [*siblings[:at], sha256(siblings[at]).digest(), *siblings[at + 1 :]],
                siblings[::-1] if siblings[::-1] != siblings else [*siblings, EMPTY],
            ]
        )
    )
    for claim in (value, None, b"forged"):
        for other in (proof.other, None, (key, bytes(32)), *((k, sha256(v).digest()) for k, v in items.items())):
            assert not accepts(key, claim, MapProof(tuple(changed), other), made.root)


@given(ITEMS, KEYS)
def test_another_leaf_proves_no_absence_off_its_path(items: dict[bytes, bytes], key: bytes) -> None:
    made = PrefixMap(items)
    for other, value in items.items():
        proof = made.prove(other)
        if key != other and int.from_bytes(bytes(a ^ b for a, b in zip(key, other, strict=True)), "big") >> (
            256 - len(proof.siblings)
        ):
            assert not accepts(key, None, MapProof(proof.siblings, (other, sha256(value).digest())), made.root)


def test_keys_and_hashes_of_another_length_are_refused() -> None:
    made = PrefixMap({bytes(32): b"a"})
    with pytest.raises(ValueError, match="32 bytes"):
        PrefixMap({b"short": b"a"})
    for key, siblings in ((b"short", []), (bytes(32), [b"short"]), (bytes(32), [bytes(32)] * 257)):
        with pytest.raises(ProofError):
            verify_value(key, b"a", siblings, made.root)
        with pytest.raises(ProofError):
            verify_absence(key, siblings, None, made.root)


def test_a_leaf_that_its_signer_misplaced_proves_no_absence() -> None:
    key, other, value_hash = bytes(32), b"\xff" * 32, sha256(b"a").digest()
    leaf = sha256(b"\x02" + other + value_hash).digest()
    root = sha256(b"\x03" + leaf + EMPTY).digest()  # on the left, where keys begin with a 0
    with pytest.raises(ProofError, match="does not show"):
        verify_absence(key, [EMPTY], (other, value_hash), root)


@given(ITEMS, st.lists(st.dictionaries(KEYS, st.none() | VALUES, max_size=6), max_size=6), KEYS)
def test_every_map_is_read_back_from_the_nodes_that_were_new_in_its_time(
    items: dict[bytes, bytes], history: History, key: bytes
) -> None:
    store = dict[bytes, bytes]()
    maps = [PrefixMap()]
    for changes in (items, *history):
        maps.append(maps[-1].updated(changes))
        store |= dict(maps[-1].new_nodes(maps[-2]))

    def read(hashes: Sequence[bytes]) -> list[bytes]:
        return [store[hash_] for hash_ in hashes]

    for made in maps:
        assert read_proof(made.root, key, read) == (made.get(key), made.prove(key))
        assert list(read_map(made.root, read).items()) == list(made.items())


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=20), st.data())
def test_a_stored_node_that_was_changed_is_refused(items: dict[bytes, bytes], data: st.DataObject) -> None:
    made = PrefixMap(items)
    store = dict(made.new_nodes(PrefixMap()))
    hash_ = data.draw(st.sampled_from(sorted(store)))
    record = store[hash_]
    at = data.draw(st.integers(0, len(record) - 1))
    other = data.draw(st.sampled_from([b"", record[:-1], record + b"\0", record[:at] + b"\7" + record[at + 1 :]]))
    assume(other != record)
    store[hash_] = other
    with pytest.raises(ProofError):
        read_map(made.root, lambda hashes: [store[hash_] for hash_ in hashes])
