"""The part of a state map that some keys lead to: which of them have a row, which row, and which have none.

One path for one key; for several, the paths share what they have in common. From a root, the bits of a key lead to
exactly one place, so no key that was asked for can be passed over. Checked and made here, specified in
docs/spec/timeline.md. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeAlias

from catalog.changes.proof_bytes import HASH, MAX_PATH, ProofBytes, number, path, text
from catalog.merkle.prefix_map import MapProof
from catalog.merkle.verify import ProofError

_EMPTY = bytes(HASH)


@dataclass(frozen=True, slots=True)
class ShownRow:
    """The row of a key: `position` says of which of the keys that end here, by ascending digest.

    `digest`: of the row; `encoding`: the row, b"" if it is not shown. In a file the digest of a shown row is left out.
    """

    position: int
    salt: bytes
    digest: bytes
    encoding: bytes = b""

    @property
    def commitment(self) -> bytes:
        return sha256(self.salt + self.digest).digest()


@dataclass(frozen=True, slots=True)
class OtherLeaf:
    """The leaf of a key that was not asked for."""

    key: bytes
    commitment: bytes


@dataclass(frozen=True, slots=True)
class Fork:
    """A node with keys in both of its halves."""

    left: Place
    right: Place


End: TypeAlias = ShownRow | OtherLeaf | Fork | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where some keys lead: down beside `siblings` together, to an `end`. None: there is nothing."""

    siblings: tuple[bytes, ...]
    end: End

    def write(self) -> bytes:
        match self.end:
            case None:
                end = b"\0"
            case OtherLeaf(key, commitment):
                end = b"\1" + key + commitment
            case ShownRow(position, salt, digest, b""):
                end = b"\2" + number(position) + salt + digest
            case ShownRow(position, salt, _, encoding):
                end = b"\3" + number(position) + salt + text(encoding)
            case Fork(left, right):
                end = b"\4" + left.write() + right.write()
        return path(self.siblings) + end

    @classmethod
    def read(cls, data: ProofBytes, depth: int = 0) -> Place:
        siblings = data.path()
        depth += len(siblings)
        if depth > MAX_PATH:
            raise ValueError(f"a path has more than {MAX_PATH} hashes")
        match data.take(1)[0]:
            case 0:
                return cls(siblings, None)
            case 1:
                return cls(siblings, OtherLeaf(data.hash(), data.hash()))
            case 2:
                return cls(siblings, ShownRow(data.number(), data.hash(), data.hash()))
            case 3:
                position, salt, encoding = data.number(), data.hash(), data.text()
                if not encoding:
                    raise ValueError("it shows an empty row")
                return cls(siblings, ShownRow(position, salt, sha256(encoding).digest(), encoding))
            case 4:
                return cls(siblings, Fork(cls.read(data, depth + 1), cls.read(data, depth + 1)))
            case other:
                raise ValueError(f"a path ends in an unknown way ({other})")

    def verify(self, keys: Sequence[bytes]) -> tuple[bytes, dict[bytes, ShownRow | None]]:
        """The root that the paths of these keys lead to, with the row of each key, or None for one that has none.

        ProofError if a key does not lead here, or something is shown that none of them leads to. Whether the root is
        the right one is for the caller to see.
        """
        if not keys or len(set(keys)) != len(keys):
            raise ProofError("there is no key to look for, or one of them twice")
        rows = dict[bytes, ShownRow | None]()
        return self._hash(sorted(keys), 0, rows), rows

    def _hash(self, keys: Sequence[bytes], depth: int, rows: dict[bytes, ShownRow | None]) -> bytes:
        bottom = depth + len(self.siblings)
        if bottom > MAX_PATH:
            raise ProofError(f"a path in the state map has at most {MAX_PATH} hashes")
        if _prefix(keys[0], bottom) != _prefix(keys[-1], bottom):
            raise ProofError("two keys are not in one half of the state map, and only one half is shown")
        at = self._end_hash(keys, bottom, rows)
        for level in range(bottom - 1, depth - 1, -1):
            sibling = self.siblings[level - depth]
            at = _node(sibling, at) if _bit(keys[0], level) else _node(at, sibling)
        return at

    def _end_hash(self, keys: Sequence[bytes], depth: int, rows: dict[bytes, ShownRow | None]) -> bytes:
        match self.end:
            case Fork(left, right):
                middle = next((at for at, key in enumerate(keys) if depth < MAX_PATH and _bit(key, depth)), len(keys))
                if middle in (0, len(keys)):
                    raise ProofError("a path forks where no two keys part")
                halves = (left, keys[:middle]), (right, keys[middle:])
                return _node(*(half._hash(below, depth + 1, rows) for half, below in halves))
            case ShownRow(position):
                if position >= len(keys):
                    raise ProofError("it shows the row of a key that was not asked for")
                rows.update(dict.fromkeys(keys))
                rows[keys[position]] = self.end
                return _leaf(keys[position], self.end.commitment)
            case OtherLeaf(other, commitment):
                if other in keys or _prefix(other, depth) != _prefix(keys[0], depth):
                    raise ProofError(f"the leaf of key {other.hex()} does not show that a key is absent")
                rows.update(dict.fromkeys(keys))
                return _leaf(other, commitment)
        rows.update(dict.fromkeys(keys))
        return _EMPTY

    @property
    def count(self) -> int:
        """How many rows it shows."""
        if isinstance(self.end, Fork):
            return self.end.left.count + self.end.right.count
        return int(isinstance(self.end, ShownRow))

    def with_rows(self, encoding: Callable[[bytes], bytes]) -> Place:
        """The same, with rows shown. `encoding`: that of the row with a digest, b"" if it is not to be shown."""
        match self.end:
            case Fork(left, right):
                return replace(self, end=Fork(left.with_rows(encoding), right.with_rows(encoding)))
            case ShownRow(_, _, digest):
                return replace(self, end=replace(self.end, encoding=encoding(digest)))
        return self


def joined(proofs: Sequence[tuple[bytes, bytes | None, MapProof]], depth: int = 0) -> Place:
    """One proof from those of single keys under one root: (key, its salt and row digest or None, its path)."""
    proofs = sorted(proofs, key=lambda proof: proof[0])
    (first, _, shown), last, siblings = proofs[0], proofs[-1][0], list[bytes]()
    while depth < len(shown.siblings) and _bit(first, depth) == _bit(last, depth):
        siblings.append(shown.siblings[depth])
        depth += 1
    if depth < len(shown.siblings):
        middle = next(at for at, (key, _, _) in enumerate(proofs) if _bit(key, depth))
        return Place(tuple(siblings), Fork(joined(proofs[:middle], depth + 1), joined(proofs[middle:], depth + 1)))
    for position, (_, salted, _) in enumerate(proofs):
        if salted is not None:
            return Place(tuple(siblings), ShownRow(position, salted[:HASH], salted[HASH:]))
    return Place(tuple(siblings), None if shown.other is None else OtherLeaf(*shown.other))


def _leaf(key: bytes, commitment: bytes) -> bytes:
    return sha256(b"\x02" + key + commitment).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x03" + left + right).digest()


def _prefix(key: bytes, bits: int) -> int:
    return int.from_bytes(key, "big") >> (8 * HASH - bits)


def _bit(key: bytes, depth: int) -> int:
    return key[depth >> 3] >> (7 - (depth & 7)) & 1
