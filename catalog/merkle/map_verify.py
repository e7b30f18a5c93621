"""Checks proofs of a verifiable map: what a key's value is, or that the map has no such key.

Needs Python's standard library and nothing else; the code that makes proofs (prefix_map.py) is not used to check them.

From a root, the bits of a key lead to exactly one place: a leaf, or nothing. So under one root a key cannot have two
values, nor a value and none, unless SHA-256 has a collision. The caller vouches for the root: a signed leaf states it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from catalog.merkle.verify import ProofError

__all__ = ["root_of", "verify_absence", "verify_value"]

_EMPTY = bytes(32)


def verify_value(key: bytes, value: bytes, siblings: Sequence[bytes], root: bytes) -> None:
    """The map with this root has `value` under `key`. `siblings`: the hashes beside the path, from the root down."""
    _check(key, siblings, root)
    _climb(key, _leaf(key, sha256(value).digest()), siblings, root)


def root_of(key: bytes, value: bytes, siblings: Sequence[bytes]) -> bytes:
    """The root of the one map that has `value` under `key` beside these hashes: for who compares it himself."""
    _check(key, siblings, _EMPTY)
    return _climbed(key, _leaf(key, sha256(value).digest()), siblings)


def verify_absence(key: bytes, siblings: Sequence[bytes], other: tuple[bytes, bytes] | None, root: bytes) -> None:
    """The map with this root has no `key`: its path ends at nothing, or at the leaf of another key.

    `other`: that leaf's key and the SHA-256 of its value.
    """
    _check(key, siblings, root)
    if other is None:
        _climb(key, _EMPTY, siblings, root)
        return
    other_key, value_hash = other
    _check(other_key, [value_hash], root)
    depth = len(siblings)
    if other_key == key or _bits(other_key) >> (256 - depth) != _bits(key) >> (256 - depth):
        raise ProofError(f"the leaf of key {other_key.hex()} does not show that key {key.hex()} is absent")
    _climb(key, _leaf(other_key, value_hash), siblings, root)


def _climb(key: bytes, computed: bytes, siblings: Sequence[bytes], root: bytes) -> None:
    computed = _climbed(key, computed, siblings)
    if computed != root:
        raise ProofError(f"key {key.hex()}: the proof leads to map root {computed.hex()}, not to {root.hex()}")


def _climbed(key: bytes, computed: bytes, siblings: Sequence[bytes]) -> bytes:
    path = _bits(key)
    for depth in range(len(siblings) - 1, -1, -1):
        pair = (siblings[depth], computed) if path >> (255 - depth) & 1 else (computed, siblings[depth])
        computed = sha256(b"\x03" + pair[0] + pair[1]).digest()
    return computed


def _leaf(key: bytes, value_hash: bytes) -> bytes:
    return sha256(b"\x02" + key + value_hash).digest()


def _bits(key: bytes) -> int:
    return int.from_bytes(key, "big")


def _check(key: bytes, siblings: Sequence[bytes], root: bytes) -> None:
    if len(siblings) > 256:
        raise ProofError(f"a path in the map has at most 256 hashes, not {len(siblings)}")
    for value in (key, *siblings, root):
        if not isinstance(value, bytes) or len(value) != 32:
            raise ProofError(f"not a hash or key of 32 bytes: {value!r:.80}")
