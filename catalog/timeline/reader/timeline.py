"""Reading the timeline with proof: checkpoints, commits, the state of a table at a point in time, and the evidence.

Never writes. Every result is checked against a signed checkpoint before it is returned, so that a wrong byte in the
store raises Unverified here instead of reaching the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.merkle import proof as proof_file
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.note import VerifierKey
from catalog.merkle.prefix_map import MapProof
from catalog.merkle.tiles import hash_reader
from catalog.merkle.tree import (
    Coordinate,
    ReadHashes,
    batch_proof,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
)
from catalog.merkle.verify import ProofError, verify_consistency, verify_inclusion
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.table_map import TableEntry, entry_after, table_key
from catalog.timeline.log.watermarks import Watermark, open_watermark
from catalog.timeline.reader.evidence import MAX_LEAVES_IN_BATCH, AsOf, Evidence, MapEvidence
from catalog.timeline.reader.public_log import PublicLog
from catalog.timeline.reader.sources import IndexedLeaf, Source, StoredSource

MAX_CACHED_HASHES = 1 << 16
MAX_CACHED_ENTRIES = 1 << 12


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A checkpoint whose signature was verified, and its signed note."""

    checkpoint: Checkpoint
    note: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """The snapshot of each of several tables at one index of the timeline.

    `snapshots` has every requested table; None: it did not exist, or had no snapshot yet. `proven` has the evidence
    for each table that existed.
    """

    index: int
    snapshots: dict[str, int | None]
    proven: dict[str, AsOf]


@dataclass(frozen=True, slots=True)
class Consistency:
    """A consistency proof: the tree of `new` begins with the leaves of the tree of `old`."""

    old: SignedHead
    new: SignedHead
    hashes: tuple[bytes, ...]


class Timeline:
    """Reads a timeline. `trusted`: the keys to accept; by default those of the timeline's own key list.

    `public`: the published log, whose checkpoint has the witnesses' cosignatures. Proofs are then against it.
    """

    def __init__(
        self,
        source: Source,
        origin: str,
        trusted: Sequence[VerifierKey] | None = None,
        public: PublicLog | None = None,
    ) -> None:
        self.source = source
        self._origin = origin
        self._trusted = trusted
        self._vouched: tuple[VerifierKey, ...] = ()  # later keys, for which a trusted one vouches
        self._public = public
        self._last_head: SignedHead | None = None
        self._last_public_head: SignedHead | None = None
        self._stored_size = 0  # the largest that the source has shown
        self._hashes = dict[Coordinate, bytes]()
        self._proven = dict[int, bytes]()  # entries whose inclusion was proven: a leaf never changes

    def head(self, size: int | None = None) -> SignedHead:
        """The newest signed checkpoint, or that of an earlier size."""
        note = self.source.checkpoint(size)
        if self._last_head is None or self._last_head.note != note:
            self._last_head = self._open(note)
            self._stored_size = max(self._stored_size, self._last_head.checkpoint.size)
        return self._last_head

    def public_head(self) -> SignedHead:
        """The published checkpoint with its cosignatures; the newest one while none is published."""
        head = self.head()
        note = None if self._public is None else self._public.checkpoint(head.note)
        if note is None:
            return head
        if self._last_public_head is None or self._last_public_head.note != note:
            self._last_public_head = self._open(note)
        return self._last_public_head

    def published_head(self) -> SignedHead:
        """What to prove a table as of now against: the published checkpoint, or the newest that can be read here."""
        newest, public = self.head(), self.public_head()
        return public if public.checkpoint.size <= newest.checkpoint.size else newest

    def _open(self, note: bytes) -> SignedHead:
        if self._trusted is None:
            return SignedHead(self.source.keyring().open(note, self._origin), note)
        try:
            return SignedHead(open_checkpoint(note, self._trusted, self._origin), note)
        except ProofError as error:
            if (head := self._open_by_vouched_key(note)) is not None:
                return head
            raise Unverified(f"the timeline's checkpoint does not verify: {error}", subject="checkpoint") from None

    def _open_by_vouched_key(self, note: bytes) -> SignedHead | None:
        """The checkpoint, if a key signed it for which a trusted key vouches in the timeline's key list."""
        try:
            keyring = self.source.keyring().trusting(self._trusted or ())
            head = SignedHead(keyring.open(note, self._origin), note)
        except (NotFound, Unverified, Invalid):
            return None
        self._vouched = tuple(keyring.trusted or ())
        return head

    def commit(self, index: int) -> Leaf:
        """One leaf, proven."""
        head = self.head()
        return self._checked(self._evidence([index], head))[index]

    def find(self, snapshot_id: int, table: str | None = None) -> IndexedLeaf:
        """The leaf that added the snapshot. `table` is required if several tables have a snapshot of this id."""
        size = self.head().checkpoint.size
        matches = [(i, leaf) for i, leaf in self.source.of_snapshot(snapshot_id, size) if table in (None, leaf.table)]
        if not matches:
            raise NotFound(f"snapshot {snapshot_id} is not in the timeline", subject=str(snapshot_id))
        if len(matches) > 1:
            names = ", ".join(leaf.table for _, leaf in matches)
            raise Invalid(f"several tables have a snapshot {snapshot_id} ({names}): name one of them")
        return matches[0]

    def commits_since(self, table: str, since: int = -1) -> Iterator[IndexedLeaf]:
        """The table's leaves whose sequence is greater than `since`, in order and without a gap."""
        size = self.head().checkpoint.size
        newest = self.source.last_of(table, size - 1, size)
        if newest is None:
            raise NotFound(f"the timeline has no table {table}", subject=table)
        uuid, last = newest[1].table_uuid, newest[1].sequence
        for sequence in range(since + 1, last + 1):
            indexed = self.source.of_table(uuid, sequence, size)
            if indexed is None or indexed[1].sequence != sequence or indexed[1].table_uuid != uuid:
                raise Unverified(
                    f"the timeline's index does not lead to leaf {sequence} of {table}: verify the timeline",
                    subject=table,
                )
            yield indexed

    def as_of(self, table: str, *, time_ms: int | None = None, index: int | None = None) -> AsOf:
        """The snapshot of the table's main at a time (of sequencing) or at an index, with the evidence.

        NotFound if the table did not exist then, which `prove_as_of` proves.
        """
        as_of = self.prove_as_of(table, time_ms=time_ms, index=index)
        if as_of.table_uuid is None:
            raise NotFound(f"there was no table {table} at that point of the timeline", subject=table)
        return as_of

    def prove_as_of(
        self, table: str, *, time_ms: int | None = None, index: int | None = None, head: SignedHead | None = None
    ) -> AsOf:
        """What the timeline says of a table's name at a time or an index: a table, or that there was none. Proven.

        `head`: the checkpoint that the proof is against, by default the newest. Costs a scan, a few leaves, and about
        log2 n nodes of the map of n tables. Invalid for an index in the middle of a batch of very many leaves.
        """
        if (time_ms is None) == (index is None):
            raise Invalid("give either a time or an index to read the table as of")
        head = head or self.head()
        size = head.checkpoint.size
        cut = self.source.last_at(time_ms, size) if time_ms is not None else (index if index is not None else -1)
        if not cut < size:
            raise NotFound(f"the timeline has {size} leaves: there is no index {cut} yet")
        if cut < 0 and index is not None:
            raise NotFound(f"there is no index {index}: the first is 0")
        return self._as_of(table, cut, time_ms, head, self._map_index(cut, size))

    def cut(
        self,
        tables: Sequence[str],
        *,
        index: int | None = None,
        time_ms: int | None = None,
        name: str | None = None,
    ) -> Cut:
        """The snapshot of each table's main at an index, a time or a named index; by default at the newest index.

        A transaction is in the cut with all of its tables or with none. Each leaf that the result depends on is
        proven to be in the signed timeline. NotFound when the timeline has no such index or name.
        """
        if sum(point is not None for point in (index, time_ms, name)) > 1:
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
        map_index = self._map_index(at, size) if tables else -1
        proofs = {table: self._as_of(table, at, time_ms, head, map_index) for table in dict.fromkeys(tables)}
        snapshots = {table: proofs[table].snapshot_id for table in tables}
        return Cut(at, snapshots, {table: as_of for table, as_of in proofs.items() if as_of.table_uuid is not None})

    def watermark(self, consumer: str, table: str, seen: Watermark | None = None) -> Watermark | None:
        """The consumer's watermark on the table; Unverified if the timeline's key did not sign it.

        Also if it is behind `seen`, the last one that the caller knows, or is gone.
        """
        if not isinstance(self.source, StoredSource):
            raise Invalid("the published timeline has no watermarks: read them from its database")
        note = self.source.watermark(consumer, table)
        if note is None:
            if seen is not None:
                raise Unverified(f"the watermark of {consumer} on {table} is gone", subject=table)
            return None
        return open_watermark(note, self.keys(), consumer, table, seen=seen)

    def named(self, name: str) -> int:
        """The index that has the name; NotFound if none has."""
        if not isinstance(self.source, StoredSource):
            raise Invalid(f"the published timeline has no names, such as {name!r}: give an index or a time")
        return self.source.named(name)

    def _map_index(self, cut: int, size: int) -> int:
        """The leaf whose map of tables a cut is proven by: the last one up to it that ends a batch; -1 if none does."""
        index = self.source.last_batch_end(cut, size)
        if cut - index > MAX_LEAVES_IN_BATCH:
            before = f"index {index}, or " if index >= 0 else ""
            raise Invalid(
                f"index {cut} is in the middle of a batch of more than {MAX_LEAVES_IN_BATCH} leaves, which were "
                f"sequenced at one time: ask for {before}that time"
            )
        return index

    def _as_of(self, table: str, cut: int, time_ms: int | None, head: SignedHead, map_index: int) -> AsOf:
        size = head.checkpoint.size
        key, value, proof = table_key(table), None, MapProof(())
        if map_index >= 0:
            root = Leaf.decode(self.source.entry(map_index, size)).map_root
            if root is None:
                raise Unverified(f"leaf {map_index} of the timeline ends a batch, but has no map of tables")
            value, proof = self.source.map_proof(root, key, map_index, size)
        between = [(index, Leaf.decode(self.source.entry(index, size))) for index in range(map_index + 1, cut + 1)]
        entry = entry_after(table, None if value is None else TableEntry.decode(value), between)
        indexes = {max(map_index, 0), *(index for index, _ in between)}
        if time_ms is not None:
            indexes |= {max(cut, 0), min(cut + 1, size - 1)}
        if entry is not None:
            indexes |= {entry.index, entry.index if entry.main_index is None else entry.main_index}
        as_of = AsOf(
            table,
            None if entry is None else entry.table_uuid,
            None if entry is None else entry.snapshot_id,
            cut,
            None if entry is None else entry.main_index,
            time_ms,
            MapEvidence(map_index, value, proof),
            self._evidence(sorted(indexes), head),
        )
        index = cut if time_ms is None else None
        with self._dropping_cache():
            as_of.verify(
                self.keys(), self._origin, table=table, time_ms=time_ms, index=index, checkpoint=head.checkpoint
            )
        return as_of

    def head_for(self, index: int) -> SignedHead:
        """What to prove the leaf against: the published checkpoint, or the newest one if it is not published yet."""
        newest = self.head()
        if not 0 <= index < newest.checkpoint.size:
            raise NotFound(f"the timeline has {newest.checkpoint.size} leaves: there is no index {index} yet")
        public = self.public_head()
        return public if index < public.checkpoint.size else newest

    def proof(self, index: int, head: SignedHead | None = None) -> bytes:
        """An inclusion proof of the leaf, as a c2sp.org/tlog-proof@v1 file. The entry itself: `source.entry`.

        `head`: the checkpoint that it is against, by default `head_for` the leaf. Proofs that belong together are all
        against one: the timeline may grow between two calls.
        """
        if head is None:
            head = self.head_for(index)
        size = head.checkpoint.size
        if not 0 <= index < size:
            raise NotFound(f"the checkpoint has {size} leaves: there is no index {index}")
        entry = self._proven.get(index) or self.source.entry(index, size)
        hashes = inclusion_proof(index, size, self._reader(size))
        try:
            verify_inclusion(leaf_hash(entry), index, size, hashes, head.checkpoint.root)
        except ProofError as error:
            self._hashes = {}
            raise Unverified(f"leaf {index} of the timeline does not verify: {error}") from None
        if len(self._proven) == MAX_CACHED_ENTRIES:
            self._proven = {}
        self._proven[index] = entry
        return proof_file.write(proof_file.ProofFile(index, tuple(hashes), head.note))

    def consistency(self, old: int, new: int | None = None) -> Consistency:
        """Proves that the timeline of size `new` (by default the newest) extends that of `old`; both are signed."""
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
        """Reads the tree's hashes through a cache: the hash of a complete subtree never changes.

        Every result is checked against a signed checkpoint, so a wrong hash in the cache can only make a proof fail.
        The cache is then dropped.
        """
        tiles = self.source.read_tiles
        if self._public is not None and self._stored_size < size:
            tiles = self._public.read_tiles  # the database's reader is behind the published log
        read = hash_reader(size, tiles)

        def read_cached(coordinates: Sequence[Coordinate]) -> list[bytes]:
            cached = self._hashes  # replaced, never cleared: another thread may be reading it
            missing = [coordinate for coordinate in coordinates if coordinate not in cached]
            new = dict(zip(missing, read(missing), strict=True)) if missing else {}
            if len(cached) + len(new) > MAX_CACHED_HASHES:
                self._hashes = new
            else:
                cached.update(new)
            return [new.get(coordinate) or cached[coordinate] for coordinate in coordinates]

        return read_cached

    def _evidence(self, indices: Sequence[int], head: SignedHead) -> Evidence:
        size = head.checkpoint.size
        if not 0 <= indices[0] <= indices[-1] < size:
            raise NotFound(f"the timeline has {size} leaves: there is no index {indices[-1]}")
        leaves = tuple((index, self.source.entry(index, size)) for index in indices)
        hashes = tuple(batch_proof(indices, size, self._reader(size)))
        return Evidence(leaves, hashes, head.note)

    def _checked(self, evidence: Evidence) -> dict[int, Leaf]:
        with self._dropping_cache():
            return evidence.verify(self.keys(), self._origin)

    @contextmanager
    def _dropping_cache(self) -> Iterator[None]:
        """Drops the cached hashes if the block raises Unverified: one of them may be the cause."""
        try:
            yield
        except Unverified:
            self._hashes = {}
            raise

    def keys(self) -> Sequence[VerifierKey]:
        """The keys whose checkpoints are accepted."""
        if self._trusted is not None:
            return list(dict.fromkeys((*self._trusted, *self._vouched)))
        return list(dict.fromkeys(key for _, key in self.source.keyring().keys))
