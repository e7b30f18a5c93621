"""The state map of a table with a key: key digest -> salted commitment to the row, as pages in the timeline's store.

The tree is that of docs/spec/timeline.md: its root depends on the rows and the table's secret alone, not on history.
Its storage is cut into *buckets*, the subtrees at one depth with 32 to 128 rows each, and *directories* of the
hashes above them. Pages are stored by hash and never change, so every past state can be read and proven: a proof takes
the pages on one path, four for a million rows.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from catalog.changes.hashing import Hashes
from catalog.changes.prefix_hashing import (
    EMPTY,
    NODE,
    Subtrees,
    bits_at,
    hash_rows,
    joined_pairs,
    leaf_hashes,
    prefixes,
    roots_at,
)
from catalog.core.errors import Invalid, Unverified
from catalog.merkle.prefix_map import MapProof, ReadNodes

Numbers: TypeAlias = npt.NDArray[np.int64]

FEWEST, MOST = 8, 128
"""The rows of a bucket, on average, outside of which the map is cut again."""
DIRECTORY_BITS = 7
"""A directory has at most 128 hashes."""
_ENTRY = 96
_HEADER = struct.Struct(">BQ32s")
RECORD_SIZE = _HEADER.size


class DuplicateKey(Invalid):
    """Two rows have one key, so the key does not identify a row."""


class OtherRows(Invalid):
    """A change is of a row that the map does not have: the map is not of the rows before the change."""


@dataclass(frozen=True)
class StateMap:
    """One state of a table's map: how many keys, the depth of its buckets, and its root."""

    count: int = 0
    depth: int = 0
    root: bytes = bytes(32)

    def encode(self) -> bytes:
        return _HEADER.pack(self.depth, self.count, self.root)

    @classmethod
    def decode(cls, data: bytes) -> StateMap:
        """From the first bytes of a record; RECORD_SIZE of them."""
        depth, count, root = _HEADER.unpack_from(data)
        return cls(count, depth, root)


@dataclass(frozen=True)
class Entries:
    """Keys, ascending, with the digest of each one's row and the hash of its leaf."""

    keys: Hashes
    rows: Hashes
    leaves: Hashes

    @classmethod
    def parse(cls, page: bytes) -> Entries:
        block = np.frombuffer(page, np.uint8).reshape(-1, _ENTRY)
        return cls(block[:, :32], block[:, 32:64], block[:, 64:])

    @property
    def block(self) -> Hashes:
        return np.concatenate([self.keys, self.rows, self.leaves], axis=1)

    def take(self, selected: Any) -> Entries:
        return Entries(self.keys[selected], self.rows[selected], self.leaves[selected])


@dataclass
class StateMaps:
    """Makes and reads the maps of one table. `secret`: 32 bytes that salt its commitments.

    `nodes` collects the pages that are new, by address; `read_nodes` reads those that are stored.
    """

    secret: bytes
    read_nodes: ReadNodes
    nodes: dict[bytes, bytes] = field(default_factory=dict)

    def build(self, keys: Hashes, rows: Hashes) -> StateMap:
        """The map of these keys and row digests, in any order. DuplicateKey if two keys are equal."""
        order = np.argsort(_sortable(keys), kind="stable")
        keys, rows = keys[order], rows[order]
        return self._cut(self._entries(keys, rows))

    def updated(self, before: StateMap, records: Hashes) -> StateMap:
        """The map after changes, given as change records (docs/row-digest.md): op, key, row before, row after.

        Reads and writes the pages that the changed keys are in. DuplicateKey for the insert of a key that is there;
        OtherRows for the change of a row that is not.
        """
        if not len(records):
            return before
        records = records[np.argsort(_sortable(np.ascontiguousarray(records[:, 1:33])), kind="stable")]
        keys = np.ascontiguousarray(records[:, 1:33])
        if (keys[1:] == keys[:-1]).all(axis=1).any():
            raise DuplicateKey("a commit changes two rows of one key")
        path = self._read_path(before, np.unique(prefixes(keys, before.depth)))
        entries = self._applied(path.entries, records, keys)
        inserted = int((records[:, 0] == ord("I")).sum()) - int((records[:, 0] == ord("D")).sum())
        count = before.count + inserted
        if count > MOST << before.depth or (before.depth and count < FEWEST << before.depth):
            return self._cut(self._merged(self._all(before), path.buckets, before.depth, entries))
        return self._written(before, count, path, entries)

    def prove(self, state: StateMap, key: bytes) -> tuple[bytes | None, MapProof]:
        """The value of a key (salt and row digest), None if it has none, with its proof."""
        at = np.frombuffer(key, np.uint8).reshape(1, 32)
        path = self._read_path(state, prefixes(at, state.depth))
        if len(path.entries.keys):
            siblings = [hash_ for level in path.levels for hash_ in level.siblings(at)]
            row, inner, other = _bucket_proof(path.entries, key, state.depth)
        else:  # the path ends above the bucket, at nothing or at a leaf that moved up: rare, so all rows are read
            siblings = []
            row, inner, other = _bucket_proof(self._all(state), key, 0)
        siblings += inner
        if len(path.entries.keys) == 1:  # a leaf stands at the top of the subtree that has no other
            while siblings and not any(siblings[-1]):
                siblings.pop()
        shown = None if other is None else (other[0], sha256(self._value(*other)).digest())
        return None if row is None else self._value(key, row), MapProof(tuple(siblings), shown)

    def bucket_with(self, state: StateMap, key: bytes) -> bytes | None:
        """The address of the bucket that has the key; None if the map has no such key, or the bucket is not stored."""
        at = np.frombuffer(key, np.uint8).reshape(1, 32)
        try:
            entries = self._read_path(state, prefixes(at, state.depth)).entries
        except Unverified:
            return None
        if not len(entries.keys) or not (entries.keys == at).all(axis=1).any():
            return None
        return _address(
            state.depth, state.depth, roots_at(entries.keys, entries.leaves, state.depth)[1].hashes[0].tobytes()
        )

    def rows(self, state: StateMap) -> Entries:
        """All of the map's entries."""
        return self._all(state)

    def _value(self, key: bytes, row: bytes) -> bytes:
        return sha256(self.secret + key + row).digest() + row

    def _entries(self, keys: Hashes, rows: Hashes) -> Entries:
        if not len(keys):
            return Entries.parse(b"")
        secret = np.broadcast_to(np.frombuffer(self.secret, np.uint8), (len(keys), 32))
        salts = hash_rows(secret, keys, rows)
        return Entries(keys, rows, leaf_hashes(keys, hash_rows(salts, rows)))

    def _applied(self, entries: Entries, records: Hashes, keys: Hashes) -> Entries:
        """The entries of some buckets after the changes of keys in them."""
        ops = records[:, 0]
        at = (
            np.searchsorted(_sortable(entries.keys), _sortable(keys)) if len(entries.keys) else np.zeros(len(keys), int)
        )
        inside = at < len(entries.keys)
        exists = np.zeros(len(keys), np.bool_)
        exists[inside] = (entries.keys[at[inside]] == keys[inside]).all(axis=1)
        if (exists & (ops == ord("I"))).any():
            raise DuplicateKey("a commit inserts a row whose key another row has")
        old = at[ops != ord("I")]
        if not exists[ops != ord("I")].all() or (entries.rows[old] != records[ops != ord("I"), 33:65]).any():
            raise OtherRows("a commit changes a row that the state map does not have")
        kept = np.ones(len(entries.keys), np.bool_)
        kept[old] = False
        present = ops != ord("D")
        new = self._entries(keys[present], np.ascontiguousarray(records[present, 65:97]))
        return _sorted(_concatenated([entries.take(kept), new]))

    def _cut(self, entries: Entries) -> StateMap:
        """The map of all entries, cut into buckets of 32 to 64 rows."""
        count = len(entries.keys)
        depth = max(0, (count // 32).bit_length() - 1) if count > MOST else 0
        whole = StateMap(0, depth)
        return self._written(whole, count, _Path.empty(whole), entries)

    def _written(self, before: StateMap, count: int, path: _Path, entries: Entries) -> StateMap:
        """The map with these entries in the path's buckets (all, if it is new). Adds its new pages to `nodes`."""
        depth = before.depth
        if len(entries.keys) > 1 and (entries.keys[1:] == entries.keys[:-1]).all(axis=1).any():
            raise DuplicateKey("two rows have one key")
        numbers = np.union1d(path.buckets, np.unique(prefixes(entries.keys, depth)))
        trees = Subtrees.empty(len(numbers))
        if len(entries.keys):
            first, subtrees = roots_at(entries.keys, entries.leaves, depth)
            filled = prefixes(entries.keys[first], depth)
            at = np.searchsorted(numbers, filled)
            trees.hashes[at], trees.kinds[at] = subtrees.hashes, subtrees.kinds
            self._add_buckets(depth, entries, filled, subtrees)
        for level in reversed(path.levels):
            numbers, trees = level.replaced(numbers, trees)
            self._add_directories(depth, level, numbers, trees)
        return StateMap(count, depth, trees.hashes[0].tobytes() if len(trees.hashes) else bytes(32))

    def _add_buckets(self, depth: int, entries: Entries, numbers: Numbers, trees: Subtrees) -> None:
        block, of = entries.block, prefixes(entries.keys, depth)
        starts, ends = np.searchsorted(of, numbers), np.searchsorted(of, numbers, side="right")
        for start, end, hash_ in zip(starts, ends, trees.hashes, strict=True):
            self.nodes[_address(depth, depth, hash_.tobytes())] = block[start:end].tobytes()

    def _add_directories(self, depth: int, level: _Level, numbers: Numbers, trees: Subtrees) -> None:
        for number, hash_, kind in zip(numbers, trees.hashes, trees.kinds, strict=True):
            if kind != EMPTY:
                page = level.pages[int(number)]
                self.nodes[_address(depth, level.top, hash_.tobytes())] = page.kinds.tobytes() + page.hashes.tobytes()

    def _read_path(self, state: StateMap, buckets: Numbers) -> _Path:
        """The directories above some buckets, and the buckets' entries, level by level."""
        path = _Path.empty(state, buckets)
        kind = NODE if state.count > 1 else min(state.count, 1)
        at = Subtrees(np.frombuffer(state.root, np.uint8).reshape(1, 32), np.array([kind], np.uint8))
        numbers = np.zeros(1, np.int64)
        for level in path.levels:
            wanted = np.unique(buckets >> (state.depth - level.top))
            at = Subtrees(*(array[np.searchsorted(numbers, wanted)] for array in (at.hashes, at.kinds)))
            pages = self._pages(state.depth, level.top, at)
            level.pages = {
                int(number): _directory(page, level.width) for number, page in zip(wanted, pages, strict=True)
            }
            numbers = (wanted[:, None] << level.width | np.arange(1 << level.width)).ravel()
            at = Subtrees(
                np.concatenate([level.pages[int(number)].hashes for number in wanted]),
                np.concatenate([level.pages[int(number)].kinds for number in wanted]),
            )
        at = Subtrees(*(array[np.searchsorted(numbers, buckets)] for array in (at.hashes, at.kinds)))
        pages = self._pages(state.depth, state.depth, at)
        return replace(path, entries=Entries.parse(b"".join(pages)))

    def _all(self, state: StateMap) -> Entries:
        return self._read_path(state, np.arange(1 << state.depth)).entries

    def _pages(self, depth: int, top: int, at: Subtrees) -> list[bytes]:
        """The pages of subtrees; b"" for an empty one."""
        addresses = [
            None if kind == EMPTY else _address(depth, top, hash_.tobytes())
            for hash_, kind in zip(at.hashes, at.kinds, strict=True)
        ]
        unknown = [address for address in addresses if address is not None and address not in self.nodes]
        read = dict(zip(unknown, self.read_nodes(unknown), strict=True)) if unknown else {}
        if missing := [address for address, page in read.items() if not page]:
            raise Unverified(f"the timeline's store lacks the page {missing[0].hex()} of a state map")
        return [b"" if address is None else self.nodes.get(address) or read[address] for address in addresses]

    def _merged(self, everything: Entries, buckets: Numbers, depth: int, entries: Entries) -> Entries:
        untouched = everything.take(~np.isin(prefixes(everything.keys, depth), buckets))
        return _sorted(_concatenated([untouched, entries]))


@dataclass
class _Level:
    """The directories from depth `top` to `top + width` that lie on a path, by their prefix."""

    top: int
    width: int
    pages: dict[int, Subtrees] = field(default_factory=dict)

    def replaced(self, numbers: Numbers, trees: Subtrees) -> tuple[Numbers, Subtrees]:
        """Replaces children by these; returns the prefixes and subtrees of the directories that have them."""
        owners = np.unique(numbers >> self.width)
        for owner in owners:
            old = self.pages.get(int(owner)) or Subtrees.empty(1 << self.width)
            self.pages[int(owner)] = Subtrees(old.hashes.copy(), old.kinds.copy())
        for number, hash_, kind in zip(numbers, trees.hashes, trees.kinds, strict=True):
            page, child = self.pages[int(number) >> self.width], int(number) & (1 << self.width) - 1
            page.hashes[child], page.kinds[child] = hash_, kind
        at = Subtrees(
            np.concatenate([self.pages[int(owner)].hashes for owner in owners]),
            np.concatenate([self.pages[int(owner)].kinds for owner in owners]),
        )
        for _ in range(self.width):
            at = joined_pairs(at)
        return owners, at

    def siblings(self, key: Hashes) -> list[bytes]:
        """The hashes beside the key's path through its directory, from the top down."""
        at = self.pages[int(prefixes(key, self.top)[0])]
        child = int(prefixes(key, self.top + self.width)[0]) & (1 << self.width) - 1
        beside = list[bytes]()
        for _ in range(self.width):
            beside.append(at.hashes[child ^ 1].tobytes())
            at, child = joined_pairs(at), child >> 1
        return beside[::-1]


@dataclass(frozen=True)
class _Path:
    """Some buckets of a map, their entries, and the directories above them from the root down."""

    buckets: Numbers
    levels: list[_Level]
    entries: Entries

    @classmethod
    def empty(cls, state: StateMap, buckets: Numbers | None = None) -> _Path:
        count = -(-state.depth // DIRECTORY_BITS)
        edges = [state.depth * at // count for at in range(count + 1)] if count else [0]
        levels = [_Level(top, bottom - top) for top, bottom in itertools.pairwise(edges)]
        none = np.empty(0, np.int64)
        return cls(none if buckets is None else buckets, levels, Entries.parse(b""))


def root_address(state_root: bytes) -> bytes:
    """The address of the record of a state: its map and its description."""
    return sha256(b"strandline/state-root\n" + state_root).digest()


def _address(depth: int, top: int, hash_: bytes) -> bytes:
    """The address of the page of a subtree at depth `top`, in a map whose buckets are at `depth`."""
    return sha256(b"strandline/state-page\n" + bytes((depth, top)) + hash_).digest()


def _directory(page: bytes, width: int) -> Subtrees:
    size = 1 << width
    if not page:
        return Subtrees.empty(size)
    block = np.frombuffer(page, np.uint8)
    return Subtrees(block[size:].reshape(size, 32), block[:size])


def _bucket_proof(
    entries: Entries, key: bytes, depth: int
) -> tuple[bytes | None, list[bytes], tuple[bytes, bytes] | None]:
    """The key's row digest, if it has one; the siblings below `depth`; and the other leaf that its path ends at."""
    bits, inner, level = int.from_bytes(key, "big"), list[bytes](), depth
    while len(entries.keys) > 1:
        mine = bits_at(entries.keys, level) == bool(bits >> (255 - level) & 1)
        far = entries.take(~mine)
        inner.append(roots_at(far.keys, far.leaves, level + 1)[1].hashes[0].tobytes() if len(far.keys) else bytes(32))
        entries, level = entries.take(mine), level + 1
    if not len(entries.keys):
        return None, inner, None
    only, row = entries.keys[0].tobytes(), entries.rows[0].tobytes()
    return (row, inner, None) if only == key else (None, inner, (only, row))


def _sortable(keys: Hashes) -> Any:
    return np.ascontiguousarray(keys).view("S32").ravel()


def _sorted(entries: Entries) -> Entries:
    return entries.take(np.argsort(_sortable(entries.keys), kind="stable"))


def _concatenated(several: list[Entries]) -> Entries:
    return Entries(*(np.concatenate([getattr(each, name) for each in several]) for name in ("keys", "rows", "leaves")))
