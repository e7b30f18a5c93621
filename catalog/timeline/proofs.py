"""Reading the timeline, with proof: heads, commits, what a table was at a time, and evidence for each.

Never writes. What is answered is checked against a signed checkpoint before it is given, so that a wrong byte
in the store raises Unverified here rather than becoming somebody's number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from catalog.errors import Invalid, NotFound, Unverified
from catalog.merkle import proof as proof_file
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.note import VerifierKey
from catalog.merkle.tiles import hash_reader
from catalog.merkle.tree import (
    Coordinate,
    ReadHashes,
    batch_proof,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
)
from catalog.merkle.verify import ProofError, verify_batch, verify_consistency, verify_inclusion
from catalog.timeline.leaf import MAIN, Leaf
from catalog.timeline.marks import Mark, open_mark
from catalog.timeline.sources import Found, Source, StoredSource

HASHES_HELD = 1 << 16
ENTRIES_HELD = 1 << 12


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A checkpoint whose signature holds, and the note it came in."""

    checkpoint: Checkpoint
    note: bytes


@dataclass(frozen=True, slots=True)
class Evidence:
    """Leaves, with one proof that all of them are in the tree of a signed checkpoint."""

    leaves: tuple[tuple[int, bytes], ...]
    hashes: tuple[bytes, ...]
    note: bytes

    def verify(self, verifier_keys: Iterable[VerifierKey], origin: str | None = None) -> dict[int, Leaf]:
        """The leaves by index, if the evidence holds; Unverified otherwise. Needs nothing but the keys."""
        try:
            checkpoint = open_checkpoint(self.note, verifier_keys, origin)
            indices = [index for index, _ in self.leaves]
            hashed = [leaf_hash(data) for _, data in self.leaves]
            verify_batch(hashed, indices, checkpoint.size, self.hashes, checkpoint.root)
        except ProofError as error:
            raise Unverified(f"the evidence does not hold: {error}") from None
        return {index: Leaf.decode(data) for index, data in self.leaves}


@dataclass(frozen=True, slots=True)
class AsOf:
    """A table as it was at a cut of the timeline, and the evidence for it.

    `index` is the cut: the last leaf that counts. `stated_at` is the leaf that says where main stood. The
    evidence has that leaf; the table's later ones up to the cut, which move other references, or are of a
    transaction that is complete only behind it; the table's next one, behind the cut, if there is one by now
    (numbers without a gap: nothing is left out); and for a time, the leaves on both sides of it.
    """

    table: str
    table_uuid: str
    snapshot_id: int | None
    index: int
    stated_at: int
    time_ms: int | None
    evidence: Evidence

    def verify(self, verifier_keys: Iterable[VerifierKey], origin: str | None = None) -> None:
        """Checks all that it claims, from itself and the keys alone; Unverified if anything does not hold.

        When the table has no leaf behind the cut, the last numbers are the operator's word until it has one.
        """
        leaves = self.evidence.verify(verifier_keys, origin)
        size = open_checkpoint(self.evidence.note, verifier_keys, origin).size
        of_table = [(i, leaf) for i, leaf in sorted(leaves.items()) if leaf.table_uuid == self.table_uuid]
        numbers = [leaf.sequence for _, leaf in of_table]
        stated = leaves.get(self.stated_at)
        holds = (
            stated is not None
            and (stated.table, stated.table_uuid, stated.ref) == (self.table, self.table_uuid, MAIN)
            and stated.snapshot_id == self.snapshot_id
            and self.stated_at + stated.following <= self.index < size
            and of_table[0][0] == self.stated_at
            and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            and all(leaf.ref != MAIN or i + leaf.following > self.index for i, leaf in of_table[1:] if i <= self.index)
        )
        if self.time_ms is not None:
            before, after = leaves.get(self.index), leaves.get(self.index + 1)
            holds = holds and before is not None and before.sequenced_ms <= self.time_ms
            last = self.index + 1 == size
            holds = holds and (last or (after is not None and after.sequenced_ms > self.time_ms))
        if not holds:
            raise Unverified(f"the evidence is not about {self.table} at index {self.index}", subject=self.table)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the main of several tables stood at one index: all of them at the same moment of the timeline.

    `snapshots` has every table asked for; None: it was not there, or had no snapshot yet. `proven`: what each
    that was there was proven by.
    """

    index: int
    snapshots: dict[str, int | None]
    proven: dict[str, AsOf]


@dataclass(frozen=True, slots=True)
class Consistency:
    """That the tree of `new` begins with the leaves of the tree of `old`."""

    old: SignedHead
    new: SignedHead
    hashes: tuple[bytes, ...]


class Timeline:
    """The reader's side. `trusted`: the keys to believe; without them, those of the timeline's own list."""

    def __init__(self, source: Source, origin: str, trusted: Sequence[VerifierKey] | None = None) -> None:
        self.source = source
        self._origin = origin
        self._trusted = trusted
        self._opened: SignedHead | None = None
        self._hashes = dict[Coordinate, bytes]()
        self._proven = dict[int, bytes]()  # entries that proved: a leaf never changes

    def head(self, size: int | None = None) -> SignedHead:
        """The newest signed checkpoint, or that of an earlier size."""
        note = self.source.checkpoint(size)
        if self._opened is not None and self._opened.note == note:
            return self._opened
        if self._trusted is None:
            opened = self.source.keyring().open(note, self._origin)
        else:
            try:
                opened = open_checkpoint(note, self._trusted, self._origin)
            except ProofError as error:
                raise Unverified(f"the timeline's checkpoint does not hold: {error}", subject="checkpoint") from None
        self._opened = SignedHead(opened, note)
        return self._opened

    def commit(self, index: int) -> Leaf:
        """One leaf, proven."""
        head = self.head()
        return self._checked(self._evidence([index], head))[index]

    def find(self, snapshot_id: int, table: str | None = None) -> Found:
        """The leaf that added the snapshot. Conflicting tables are told apart by name."""
        size = self.head().checkpoint.size
        found = [f for f in self.source.of_snapshot(snapshot_id, size) if table in (None, f[1].table)]
        if not found:
            raise NotFound(f"snapshot {snapshot_id} is not in the timeline", subject=str(snapshot_id))
        if len(found) > 1:
            names = ", ".join(leaf.table for _, leaf in found)
            raise Invalid(f"snapshot {snapshot_id} is in several tables ({names}): say which")
        return found[0]

    def commits_since(self, table: str, since: int = -1) -> Iterator[Found]:
        """The table's leaves whose sequence is greater than `since`, in order and without a gap."""
        size = self.head().checkpoint.size
        newest = self.source.last_of(table, size - 1, size)
        if newest is None:
            raise NotFound(f"the timeline knows no table {table}", subject=table)
        uuid, last = newest[1].table_uuid, newest[1].sequence
        for sequence in range(since + 1, last + 1):
            found = self.source.of_table(uuid, sequence, size)
            if found is None or found[1].sequence != sequence or found[1].table_uuid != uuid:
                raise Unverified(f"leaf {sequence} of {table} is not where the index says", subject=table)
            yield found

    def as_of(self, table: str, *, time_ms: int | None = None, index: int | None = None) -> AsOf:
        """Where the table's main stood at a time (when it was sequenced) or at an index, with the evidence.

        NotFound if the table was not there then.
        """
        if (time_ms is None) == (index is None):
            raise Invalid("as of what: a time or an index, and not both")
        head = self.head()
        size = head.checkpoint.size
        cut = self.source.last_at(time_ms, size) if time_ms is not None else (index if index is not None else -1)
        if not cut < size:
            raise NotFound(f"the timeline has {size} leaves: there is no index {cut} yet")
        return self._at(table, cut, time_ms, head)

    def cut(
        self,
        tables: Sequence[str],
        *,
        index: int | None = None,
        time_ms: int | None = None,
        name: str | None = None,
    ) -> Cut:
        """Where each table's main stood at one index, at a time or at a named index; by default, at the newest.

        One cut across all tables: a transaction is in it with all of its tables or with none. Each answer is
        proven as by `as_of`. NotFound when the timeline has no such index or name.
        """
        if sum(given is not None for given in (index, time_ms, name)) > 1:
            raise Invalid("a cut is at an index, at a time or at a name: give one of them")
        head = self.head()
        size = head.checkpoint.size
        if name is not None:
            index = self.named(name)
        at = size - 1 if index is None else index
        if time_ms is not None:
            at = self.source.last_at(time_ms, size)
        if not at < size:
            raise NotFound(f"the timeline has {size} leaves: there is no index {at} yet")
        proven = dict[str, AsOf]()
        for table in dict.fromkeys(tables):
            with suppress(NotFound):
                proven[table] = self._at(table, at, time_ms, head)
        return Cut(at, {table: proven[table].snapshot_id if table in proven else None for table in tables}, proven)

    def mark(self, consumer: str, table: str) -> Mark | None:
        """How far the consumer has come with the table, if the timeline's key vouches for it."""
        if not isinstance(self.source, StoredSource):
            raise Invalid("the published timeline has no watermarks: read them from its database")
        note = self.source.mark(consumer, table)
        return None if note is None else open_mark(note, self._keys(), consumer, table)

    def named(self, name: str) -> int:
        """The index that bears the name."""
        if not isinstance(self.source, StoredSource):
            raise Invalid(f"the published timeline has no names, so none is {name!r}: ask for an index or a time")
        return self.source.named(name)

    def _at(self, table: str, cut: int, time_ms: int | None, head: SignedHead) -> AsOf:
        size = head.checkpoint.size
        found = self.source.last_of(table, cut, size) if cut >= 0 else None
        if found is None or found[1].operation == "drop":
            raise NotFound(f"there was no table {table} at that point of the timeline", subject=table)
        uuid = found[1].table_uuid
        wanted = {found[0]}
        following = self.source.of_table(uuid, found[1].sequence + 1, size)
        if following is not None:
            wanted.add(following[0])
        if time_ms is not None:
            wanted |= {cut, min(cut + 1, size - 1)}
        # Tags and branches say nothing of main, nor does a transaction before its last leaf: look before them.
        while found is not None and (found[1].ref != MAIN or found[0] + found[1].following > cut):
            found = self.source.of_table(uuid, found[1].sequence - 1, size)
            if found is not None:
                wanted.add(found[0])
        if found is None:
            raise Unverified(f"no leaf of {table} says where its main is", subject=table)
        evidence = self._evidence(sorted(wanted), head)
        answer = AsOf(table, uuid, found[1].snapshot_id, cut, found[0], time_ms, evidence)
        with self._or_forget():
            answer.verify(self._keys(), self._origin)
        return answer

    def proof(self, index: int) -> bytes:
        """That the leaf is in the timeline, as a c2sp.org/tlog-proof@v1 file. Its entry: `source.entry`."""
        head = self.head()
        size = head.checkpoint.size
        if not 0 <= index < size:
            raise NotFound(f"the timeline has {size} leaves: there is no index {index} yet")
        entry = self._proven.get(index) or self.source.entry(index, size)
        hashes = inclusion_proof(index, size, self._reader(size))
        try:
            verify_inclusion(leaf_hash(entry), index, size, hashes, head.checkpoint.root)
        except ProofError as error:
            self._hashes = {}
            raise Unverified(f"leaf {index} of the timeline does not prove: {error}") from None
        if len(self._proven) == ENTRIES_HELD:
            self._proven = {}
        self._proven[index] = entry
        return proof_file.write(proof_file.ProofFile(index, tuple(hashes), head.note))

    def consistency(self, old: int, new: int | None = None) -> Consistency:
        """That the timeline of size `new` (now, if not given) only added to that of `old`; both signed."""
        before, after = self.head(old), self.head(new)
        size = after.checkpoint.size
        if not 0 < old <= size:
            raise Invalid(f"a timeline of {size} leaves cannot extend one of {old}")
        hashes = tuple(consistency_proof(old, size, self._reader(size)))
        try:
            verify_consistency(old, size, hashes, before.checkpoint.root, after.checkpoint.root)
        except ProofError as error:
            self._hashes = {}
            raise Unverified(f"the timeline's history was changed: {error}", subject="checkpoint") from None
        return Consistency(before, after, hashes)

    def _reader(self, size: int) -> ReadHashes:
        """The tree's hashes, those read before from memory: the hash of a complete subtree never changes.

        Nothing is given that was not checked against a signed checkpoint, so a wrong hash in memory can only
        make a proof fail; then all are forgotten.
        """
        read = hash_reader(size, self.source.read_tiles)

        def remembered(coordinates: Sequence[Coordinate]) -> list[bytes]:
            held = self._hashes  # replaced, never emptied: another thread may be at it
            wanted = [coordinate for coordinate in coordinates if coordinate not in held]
            fresh = dict(zip(wanted, read(wanted), strict=True)) if wanted else {}
            if len(held) + len(fresh) > HASHES_HELD:
                self._hashes = fresh
            else:
                held.update(fresh)
            return [fresh.get(coordinate) or held[coordinate] for coordinate in coordinates]

        return remembered

    def _evidence(self, indices: Sequence[int], head: SignedHead) -> Evidence:
        size = head.checkpoint.size
        if not 0 <= indices[0] <= indices[-1] < size:
            raise NotFound(f"the timeline has {size} leaves: there is no index {indices[-1]}")
        leaves = tuple((index, self.source.entry(index, size)) for index in indices)
        hashes = tuple(batch_proof(indices, size, self._reader(size)))
        return Evidence(leaves, hashes, head.note)

    def _checked(self, evidence: Evidence) -> dict[int, Leaf]:
        with self._or_forget():
            return evidence.verify(self._keys(), self._origin)

    @contextmanager
    def _or_forget(self) -> Iterator[None]:
        try:
            yield
        except Unverified:
            self._hashes = {}
            raise

    def _keys(self) -> Sequence[VerifierKey]:
        if self._trusted is not None:
            return self._trusted
        return list(dict.fromkeys(key for _, key in self.source.keyring().keys))
