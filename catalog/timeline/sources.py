"""Where a reader of the timeline reads: its database, by a follow-latest reader, or the published tiles
alone.

Both answer the same questions; neither writes. The database has indexes; the tiles have none, so over them a
question about one table walks through bundles, as a stranger would.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol

from catalog.errors import NotFound
from catalog.merkle.tiles import ENTRIES, WIDTH, Tile, split_entries, tile_at
from catalog.timeline import keys
from catalog.timeline.away import explained
from catalog.timeline.head import Head, stored_tile
from catalog.timeline.keyring import Keyring
from catalog.timeline.leaf import Leaf
from catalog.timeline.publish import KEYS, PublishedTiles, Publisher
from catalog.timeline.store import Database

Found = tuple[int, Leaf]


class Source(Protocol):
    """Index and leaf are given together. `size` bounds what is looked at: the tree of a checkpoint."""

    def checkpoint(self, size: int | None = None) -> bytes:
        """The newest signed checkpoint, or the one of that size."""
        ...

    def keyring(self) -> Keyring: ...

    def entry(self, index: int, size: int) -> bytes:
        """The bytes of one leaf."""
        ...

    def read_tiles(self, paths: Sequence[str]) -> list[bytes]:
        """merkle.tiles.ReadTiles."""
        ...

    def last_at(self, ms: int, size: int) -> int:
        """The last index sequenced at or before the time; -1 if there is none."""
        ...

    def last_of(self, table: str, index: int, size: int) -> Found | None:
        """The newest leaf, at or before the index, of a table while it bore this name."""
        ...

    def of_table(self, uuid: str, sequence: int, size: int) -> Found | None:
        """The table's leaf of that number."""
        ...

    def of_snapshot(self, snapshot_id: int, size: int) -> list[Found]:
        """The leaves that added a snapshot of this id: one, unless two tables chose the same."""
        ...


class StoredSource:
    """The timeline's database. Every question costs a few reads, none when it is warm."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def checkpoint(self, size: int | None = None) -> bytes:
        if size is None:
            note = Head.decode(self._db.get(keys.HEAD)).checkpoint.encode()
        else:
            note = self._db.get(keys.checkpoint(size)) or b""
        if not note:
            which = "no leaf yet" if size is None else f"no checkpoint of size {size}"
            raise NotFound(f"the timeline has {which}")
        return note

    def keyring(self) -> Keyring:
        note = self._db.get(keys.KEYS)
        return Keyring() if note is None else Keyring.parse(note)

    def entry(self, index: int, size: int) -> bytes:
        found = self._db.get(keys.leaf(index))
        if found is None:
            raise NotFound(f"the timeline has no leaf {index}")
        return found

    def read_tiles(self, paths: Sequence[str]) -> list[bytes]:
        return [stored_tile(self._db, Tile.parse(path)) for path in paths]

    def last_at(self, ms: int, size: int) -> int:
        for key, _ in self._db.scan(b"time/", keys.time(max(ms, -1) + 1), limit=None, descending=True):
            if (index := keys.number_at_end(key)) < size:
                return index
        return -1

    def last_of(self, table: str, index: int, size: int) -> Found | None:
        for uuid in reversed(keys.unpack_uuids(self._db.get(keys.uuids(table)) or b"")):
            # A table's leaves ascend in number and index alike, so the last one in question is found by
            # halves.
            start, end = keys.table(uuid), keys.after(keys.table(uuid)[:-8])
            newest = next(self._db.scan(start, end, limit=1, descending=True), None)
            count = 0 if newest is None else keys.number_at_end(newest[0]) + 1
            number = bisect_right(range(count), index, key=partial(self._index, uuid)) - 1
            if number < 0:
                continue
            found = self.of_table(uuid, number, size)
            if found is not None and found[1].table == table:
                return found
        return None

    def of_table(self, uuid: str, sequence: int, size: int) -> Found | None:
        stored = self._db.get(keys.table(uuid, sequence))
        if stored is None or (index := keys.unpack(stored)[0]) >= size:
            return None
        return index, Leaf.decode(self.entry(index, size))

    def of_snapshot(self, snapshot_id: int, size: int) -> list[Found]:
        prefix = keys.snapshot(snapshot_id)
        indices = [keys.unpack(value)[0] for _, value in self._db.scan(prefix, keys.after(prefix))]
        return [(index, Leaf.decode(self.entry(index, size))) for index in indices if index < size]

    def named(self, name: str) -> int:
        """The index that bears the name."""
        return self._number(keys.name(name), f"nothing in the timeline has the name {name!r}")

    def mark(self, consumer: str, table: str) -> bytes | None:
        """How far the consumer has come with the table: its mark, as the note that the sequencer signed."""
        return self._db.get(keys.mark(consumer, table))

    def meta(self, space: str, identity: str) -> bytes | None:
        """A meta value, as JSON."""
        return self._db.get(keys.meta(space, identity))

    def _index(self, uuid: str, sequence: int) -> int:
        return self._number(keys.table(uuid, sequence), f"table {uuid} has no leaf {sequence}")

    def _number(self, key: bytes, otherwise: str) -> int:
        stored = self._db.get(key)
        if stored is None:
            raise NotFound(otherwise)
        return keys.unpack(stored)[0]


class PublishedSource:
    """The published tiles and nothing else: all a stranger has, and what is left if the database is lost."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._publisher = Publisher(s3, bucket)
        self._tiles = lru_cache(maxsize=64)(PublishedTiles(s3, bucket).read)

    def checkpoint(self, size: int | None = None) -> bytes:
        with explained("the published checkpoint"):
            stands = self._publisher.published()
        if not stands.note or size not in (None, stands.size):
            raise NotFound(f"no checkpoint{'' if size is None else f' of size {size}'} is published")
        return stands.note

    def keyring(self) -> Keyring:
        with explained("the published keys"):
            return Keyring.parse(self._s3.get_object(Bucket=self._bucket, Key=KEYS)["Body"].read())

    def entry(self, index: int, size: int) -> bytes:
        return self._bundle(index // WIDTH, size)[index % WIDTH]

    def read_tiles(self, paths: Sequence[str]) -> list[bytes]:
        with explained("the published tiles"):
            return [self._tiles(path) for path in paths]

    def last_at(self, ms: int, size: int) -> int:
        # sequenced_ms never goes back: halving finds the place in log2(size) bundles.
        return bisect_right(range(size), ms, key=lambda index: self._leaf(index, size).sequenced_ms) - 1

    def last_of(self, table: str, index: int, size: int) -> Found | None:
        return next((found for found in self._back(index, size) if found[1].table == table), None)

    def of_table(self, uuid: str, sequence: int, size: int) -> Found | None:
        wanted = (uuid, sequence)
        return next((f for f in self._back(size - 1, size) if (f[1].table_uuid, f[1].sequence) == wanted), None)

    def of_snapshot(self, snapshot_id: int, size: int) -> list[Found]:
        found = self._back(size - 1, size)
        return [(index, leaf) for index, leaf in found if leaf.is_snapshot and leaf.snapshot_id == snapshot_id]

    def _back(self, index: int, size: int) -> Iterator[Found]:
        return ((at, self._leaf(at, size)) for at in range(min(index, size - 1), -1, -1))

    def _leaf(self, index: int, size: int) -> Leaf:
        return Leaf.decode(self.entry(index, size))

    def _bundle(self, number: int, size: int) -> list[bytes]:
        bundle = tile_at(ENTRIES, number, size)
        with explained(bundle.path):
            data = self._tiles(bundle.path)
        try:
            return split_entries(bundle, data)
        except Exception:
            # A pruned partial bundle is answered by the full one, which begins with it.
            return split_entries(Tile(ENTRIES, number), data)[: bundle.width]
