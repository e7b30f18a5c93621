"""A verifiable map: 32-byte keys to values, under one root that depends on the contents alone, not on their history.

A binary tree over the bits of the keys. A subtree with one key is that key's leaf, and one with none is the empty hash,
so a proof in a map of n keys has about log2 n hashes. Proofs are *made* here and *checked* in map_verify.py, which
shares no code with this file.

    leaf   SHA-256(0x02 || key || SHA-256(value))      node   SHA-256(0x03 || left || right)      empty   32 zero bytes

The prefixes differ from those of the RFC 6962 tree, so that a hash of one structure never passes for one of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from catalog.merkle.verify import ProofError

ReadNodes: TypeAlias = Callable[[Sequence[bytes]], Sequence[bytes]]
"""Returns the stored record of each node, by its hash (see `PrefixMap.new_nodes`)."""

KEY_SIZE = 32
EMPTY = bytes(32)


@dataclass(frozen=True, slots=True)
class _Leaf:
    key: bytes
    value: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class _Node:
    left: _Tree
    right: _Tree
    hash: bytes


_Tree: TypeAlias = _Leaf | _Node | None


@dataclass(frozen=True, slots=True)
class MapProof:
    """What one key's value is, or that it has none, under a root.

    `siblings` are the hashes beside the path, from the root down. `other` is the leaf at the path's end if it is of
    another key, as (key, SHA-256 of its value): a key that would be below it is absent.
    """

    siblings: tuple[bytes, ...]
    other: tuple[bytes, bytes] | None = None


class PrefixMap:
    """The map in memory, immutable: an update gives a new map that shares all it can with the old one.

    Holds about 300 bytes a key besides the values.
    """

    __slots__ = ("_tree",)

    def __init__(self, items: Mapping[bytes, bytes] | None = None) -> None:
        for key in items or ():
            _check_key(key)
        self._tree: _Tree = _change(None, 0, sorted((items or {}).items()))

    @property
    def root(self) -> bytes:
        return _hash(self._tree)

    def get(self, key: bytes) -> bytes | None:
        tree, depth = self._tree, 0
        while isinstance(tree, _Node):
            tree, depth = (tree.right if _bit(key, depth) else tree.left), depth + 1
        return tree.value if tree is not None and tree.key == key else None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values, by ascending key."""
        stack = [self._tree]
        while stack:
            tree = stack.pop()
            if isinstance(tree, _Node):
                stack += [tree.right, tree.left]
            elif tree is not None:
                yield tree.key, tree.value

    def updated(self, changes: Mapping[bytes, bytes | None]) -> PrefixMap:
        """The map with these values; None removes a key. Costs about log2 n hashes a changed key, less for many."""
        for key in changes:
            _check_key(key)
        changed = PrefixMap()
        changed._tree = _change(self._tree, 0, sorted(changes.items()))
        return changed

    def prove(self, key: bytes) -> MapProof:
        """The proof of a key's value, or of its absence."""
        _check_key(key)
        tree, siblings = self._tree, list[bytes]()
        while isinstance(tree, _Node):
            near, far = (tree.right, tree.left) if _bit(key, len(siblings)) else (tree.left, tree.right)
            siblings.append(_hash(far))
            tree = near
        if tree is None or tree.key == key:
            return MapProof(tuple(siblings))
        return MapProof(tuple(siblings), (tree.key, sha256(tree.value).digest()))

    def new_nodes(self, before: PrefixMap) -> Iterator[tuple[bytes, bytes]]:
        """Hash and record of each node that `before` has not, so that every map can be read back from its root.

        The record is what is hashed, with the value itself: `02 key value` or `03 left right`. A store that keeps the
        records of all maps by their hashes has every past map. Walks only what changed since `before`.
        """
        stack: list[tuple[_Tree, _Tree]] = [(self._tree, before._tree)]
        while stack:
            tree, old = stack.pop()
            if tree is None or tree is old:
                continue
            if isinstance(tree, _Leaf):
                yield tree.hash, b"\x02" + tree.key + tree.value
                continue
            yield tree.hash, b"\x03" + _hash(tree.left) + _hash(tree.right)
            sides = (old.left, old.right) if isinstance(old, _Node) else (None, None)
            stack += [(tree.left, sides[0]), (tree.right, sides[1])]


def read_proof(root: bytes, key: bytes, read_nodes: ReadNodes) -> tuple[bytes | None, MapProof]:
    """The value of a key, None if it has none, with its proof, from stored records. Reads about log2 n of them.

    ProofError if a record is not the one of its hash.
    """
    _check_key(key)
    siblings, at = list[bytes](), root
    while at != EMPTY:
        record = _checked_record(at, *read_nodes([at]))
        if record[:1] == b"\x02":
            stored_key, value = record[1:33], record[33:]
            if stored_key == key:
                return value, MapProof(tuple(siblings))
            return None, MapProof(tuple(siblings), (stored_key, sha256(value).digest()))
        if len(siblings) == 8 * KEY_SIZE:
            raise ProofError(f"the map with root {root.hex()} has a path of more than {8 * KEY_SIZE} nodes")
        right = _bit(key, len(siblings))
        children = (record[1:33], record[33:])
        siblings.append(children[1 - right])
        at = children[right]
    return None, MapProof(tuple(siblings))


def read_map(root: bytes, read_nodes: ReadNodes) -> PrefixMap:
    """The whole map, from stored records: one call of `read_nodes` for each level. ProofError as in `read_proof`."""
    items, level = dict[bytes, bytes](), [root] if root != EMPTY else []
    while level:
        records = [_checked_record(hash_, record) for hash_, record in zip(level, read_nodes(level), strict=True)]
        items |= {record[1:33]: record[33:] for record in records if record[:1] == b"\x02"}
        nodes = [record for record in records if record[:1] == b"\x03"]
        level = [child for record in nodes for child in (record[1:33], record[33:]) if child != EMPTY]
    restored = PrefixMap(items)
    if restored.root != root:
        raise ProofError(f"the stored nodes of the map with root {root.hex()} are not a map")
    return restored


def _checked_record(hash_: bytes, record: bytes) -> bytes:
    """The record, if it is the one of this hash."""
    kind, rest = record[:1], record[1:]
    hashed = kind + rest[:32] + sha256(rest[32:]).digest() if kind == b"\x02" else record
    well_formed = len(rest) >= 32 if kind == b"\x02" else kind == b"\x03" and len(rest) == 64
    if not well_formed or sha256(hashed).digest() != hash_:
        raise ProofError(f"the stored node {hash_.hex()} of the map is not the one of this hash")
    return record


def _change(tree: _Tree, depth: int, changes: list[tuple[bytes, bytes | None]]) -> _Tree:
    """The subtree at `depth` with changes to keys that all lie below it, sorted."""
    if not changes:
        return tree
    if not isinstance(tree, _Node):
        items = {tree.key: tree.value} if tree is not None else {}
        for key, value in changes:
            if value is None:
                items.pop(key, None)
            else:
                items[key] = value
        return _build(sorted(items.items()), depth)
    middle = next((at for at, (key, _) in enumerate(changes) if _bit(key, depth)), len(changes))
    left = _change(tree.left, depth + 1, changes[:middle])
    right = _change(tree.right, depth + 1, changes[middle:])
    return tree if left is tree.left and right is tree.right else _join(left, right)


def _build(items: list[tuple[bytes, bytes]], depth: int) -> _Tree:
    if not items:
        return None
    if len(items) == 1:
        key, value = items[0]
        return _Leaf(key, value, sha256(b"\x02" + key + sha256(value).digest()).digest())
    middle = next((at for at, (key, _) in enumerate(items) if _bit(key, depth)), len(items))
    return _join(_build(items[:middle], depth + 1), _build(items[middle:], depth + 1))


def _join(left: _Tree, right: _Tree) -> _Tree:
    """The subtree over two halves. One leaf alone moves up: where it stands depends on the contents alone."""
    if left is None and not isinstance(right, _Node):
        return right
    if right is None and not isinstance(left, _Node):
        return left
    return _Node(left, right, sha256(b"\x03" + _hash(left) + _hash(right)).digest())


def _hash(tree: _Tree) -> bytes:
    return EMPTY if tree is None else tree.hash


def _bit(key: bytes, depth: int) -> int:
    return key[depth >> 3] >> (7 - (depth & 7)) & 1


def _check_key(key: bytes) -> None:
    if len(key) != KEY_SIZE:
        raise ValueError(f"a key of the map has {KEY_SIZE} bytes, not {len(key)}")
