"""The sources that a timeline is read from: its database, or the published tiles alone. Neither writes.

Both implement the same protocol. The database has indexes. The tiles have none, so a lookup by table scans the entry
bundles, newest first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.merkle.prefix_map import MapProof, PrefixMap, read_proof
from catalog.merkle.tiles import ENTRIES, WIDTH, Tile, split_entries, tile_at
from catalog.merkle.verify import ProofError
from catalog.timeline.log import store_keys
from catalog.timeline.log.head import Head, stored_tile
from catalog.timeline.log.keyring import Keyring
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.publisher import KEYS_PATH, PublishedTiles, Publisher
from catalog.timeline.log.store import Store
from catalog.timeline.log.table_map import TableChanges, TableMap

IndexedLeaf = tuple[int, Leaf]
MAX_CACHED_NODES = 1 << 15
MAX_CACHED_MAPS = 16


class Source(Protocol):
    """Reads of one tree: `size` is the size of a checkpoint, and only leaves below it are returned."""

    def checkpoint(self, size: int | None = None) -> bytes:
        """The newest signed checkpoint, or the one of that size; NotFound if there is none."""
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

    def last_batch_end(self, index: int, size: int) -> int:
        """The last index, up to this one, whose leaf ends a batch and states the map of tables; -1 if there is none."""
        ...

    def map_proof(self, root: str, key: bytes, index: int, size: int) -> tuple[bytes | None, MapProof]:
        """The value of a key in the map of tables with this root, which the leaf at `index` states, and its proof."""
        ...

    def last_of(self, table: str, index: int, size: int) -> IndexedLeaf | None:
        """The newest leaf, at or before the index, of a table that had this name at the time."""
        ...

    def of_table(self, uuid: str, sequence: int, size: int) -> IndexedLeaf | None:
        """The table's leaf of that sequence."""
        ...

    def of_snapshot(self, snapshot_id: int, size: int) -> list[IndexedLeaf]:
        """The leaves that added a snapshot of this id: one, unless two tables have the same id."""
        ...


class StoredSource:
    """The timeline's database. Each call costs a few GETs, or none when the blocks are cached."""

    def __init__(self, db: Store) -> None:
        self._db = db
        self._node = lru_cache(MAX_CACHED_NODES)(self._load_node)  # a node is named by its hash: it never changes

    def checkpoint(self, size: int | None = None) -> bytes:
        if size is None:
            note = Head.decode(self._db.get(store_keys.HEAD)).checkpoint.encode()
        else:
            note = self._db.get(store_keys.checkpoint(size)) or b""
        if not note:
            missing = "no leaf yet" if size is None else f"no checkpoint of size {size}"
            raise NotFound(f"the timeline has {missing}")
        return note

    def keyring(self) -> Keyring:
        note = self._db.get(store_keys.KEYS)
        return Keyring() if note is None else Keyring.stored(note)

    def entry(self, index: int, size: int) -> bytes:
        entry = self._db.get(store_keys.leaf(index))
        if entry is None:
            raise NotFound(f"the timeline has no leaf {index}")
        return entry

    def read_tiles(self, paths: Sequence[str]) -> list[bytes]:
        return [stored_tile(self._db, Tile.parse(path)) for path in paths]

    def last_batch_end(self, index: int, size: int) -> int:
        start, end = b"checkpoint/", store_keys.checkpoint(min(index, size - 1) + 2)
        newest = next(self._db.scan(start, end, limit=1, descending=True), None)
        return -1 if newest is None else store_keys.number_at_end(newest[0]) - 1

    def map_proof(self, root: str, key: bytes, index: int, size: int) -> tuple[bytes | None, MapProof]:
        try:
            return read_proof(bytes.fromhex(root), key, lambda hashes: [self._node(value) for value in hashes])
        except (ProofError, ValueError) as error:
            self._node.cache_clear()
            raise Unverified(f"the timeline's map of tables does not verify: {error}", subject="map") from None

    def map_nodes(self, hashes: Sequence[bytes]) -> list[bytes]:
        """merkle.prefix_map.ReadNodes: nodes of the map of tables. Unverified if one is missing."""
        nodes = self._db.get_many([store_keys.map_node(node_hash) for node_hash in hashes])
        for node_hash, node in zip(hashes, nodes, strict=True):
            if node is None:
                raise Unverified(f"the timeline's database lacks the node {node_hash.hex()} of its map of tables")
        return [node for node in nodes if node is not None]

    def _load_node(self, node_hash: bytes) -> bytes:
        return self.map_nodes([node_hash])[0]

    def last_at(self, ms: int, size: int) -> int:
        for key, _ in self._db.scan(b"time/", store_keys.time(max(ms, -1) + 1), limit=None, descending=True):
            if (index := store_keys.number_at_end(key)) < size:
                return index
        return -1

    def last_of(self, table: str, index: int, size: int) -> IndexedLeaf | None:
        for uuid in reversed(store_keys.unpack_uuids(self._db.get(store_keys.uuids(table)) or b"")):
            # Sequence and index of a table's leaves ascend together: binary search.
            start, end = store_keys.table(uuid), store_keys.after(store_keys.table(uuid)[:-8])
            newest = next(self._db.scan(start, end, limit=1, descending=True), None)
            count = 0 if newest is None else store_keys.number_at_end(newest[0]) + 1
            sequence = bisect_right(range(count), index, key=partial(self._index, uuid)) - 1
            if sequence < 0:
                continue
            indexed = self.of_table(uuid, sequence, size)
            if indexed is not None and indexed[1].table == table:
                return indexed
        return None

    def of_table(self, uuid: str, sequence: int, size: int) -> IndexedLeaf | None:
        stored = self._db.get(store_keys.table(uuid, sequence))
        if stored is None or (index := store_keys.unpack(stored)[0]) >= size:
            return None
        return index, Leaf.decode(self.entry(index, size))

    def of_snapshot(self, snapshot_id: int, size: int) -> list[IndexedLeaf]:
        prefix = store_keys.snapshot(snapshot_id)
        indices = [store_keys.unpack(value)[0] for _, value in self._db.scan(prefix, store_keys.after(prefix))]
        return [(index, Leaf.decode(self.entry(index, size))) for index in indices if index < size]

    def named(self, name: str) -> int:
        """The index that has the name; NotFound if none has."""
        return self._number(store_keys.name(name), f"no index of the timeline has the name {name!r}")

    def watermark(self, consumer: str, table: str) -> bytes | None:
        """The consumer's watermark on the table, as the note that the sequencer signed."""
        return self._db.get(store_keys.watermark(consumer, table))

    def row_state(self, uuid: str) -> bytes | None:
        """The stored state of the table's rows (catalog.changes.row_state). It has the secret of its state map."""
        return self._db.get(store_keys.rows(uuid))

    def state_nodes(self, hashes: Sequence[bytes]) -> list[bytes]:
        """Pages of state maps; b"" for one that is not stored."""
        return [page or b"" for page in self._db.get_many([store_keys.state_node(value) for value in hashes])]

    def meta(self, space: str, identity: str) -> bytes | None:
        """A value stored with PutMeta, as JSON."""
        return self._db.get(store_keys.meta(space, identity))

    def _index(self, uuid: str, sequence: int) -> int:
        return self._number(store_keys.table(uuid, sequence), f"table {uuid} has no leaf {sequence}")

    def _number(self, key: bytes, if_missing: str) -> int:
        stored = self._db.get(key)
        if stored is None:
            raise NotFound(if_missing)
        return store_keys.unpack(stored)[0]


class PublishedSource:
    """The published tiles alone: all that the public can read, and what remains if the database is lost."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._publisher = Publisher(s3, bucket)
        self._tiles = lru_cache(maxsize=64)(PublishedTiles(s3, bucket).read)
        self._maps = dict[int, TableMap]()  # by the index of the leaf that states the root; the newest last

    def checkpoint(self, size: int | None = None) -> bytes:
        with translate_errors("the published checkpoint"):
            published = self._publisher.published()
        if not published.note or size not in (None, published.size):
            raise NotFound(f"no checkpoint{'' if size is None else f' of size {size}'} is published")
        return published.note

    def keyring(self) -> Keyring:
        with translate_errors("the published keys"):
            return Keyring.stored(self._s3.get_object(Bucket=self._bucket, Key=KEYS_PATH)["Body"].read())

    def entry(self, index: int, size: int) -> bytes:
        return self._bundle(index // WIDTH, size)[index % WIDTH]

    def read_tiles(self, paths: Sequence[str]) -> list[bytes]:
        with translate_errors("the published tiles"):
            return [self._tiles(path) for path in paths]

    def last_at(self, ms: int, size: int) -> int:
        # sequenced_ms never decreases: binary search reads log2(size) bundles at most.
        return bisect_right(range(size), ms, key=lambda index: self._leaf(index, size).sequenced_ms) - 1

    def last_batch_end(self, index: int, size: int) -> int:
        leaves = self._newest_first(index, size)
        return next((at for at, leaf in leaves if leaf.map_root is not None), -1)

    def map_proof(self, root: str, key: bytes, index: int, size: int) -> tuple[bytes | None, MapProof]:
        """The published log has no maps: they are computed from all leaves, once for each new checkpoint."""
        if index not in self._maps:
            self._replay(index, size)
        tables = self._maps[index]
        if tables.root != root:
            raise Unverified(f"leaf {index} of the timeline states a map of tables that its leaves do not give")
        return tables.map.get(key), tables.map.prove(key)

    def _replay(self, index: int, size: int) -> None:
        """Computes the map of tables after a leaf, from the nearest one before it that is known."""
        start = max((at for at in self._maps if at < index), default=-1)
        tables = self._maps[start] if start >= 0 else TableMap(PrefixMap(), {})
        changes = TableChanges(tables)
        for at in range(start + 1, index + 1):
            try:
                changes.add(at, self._leaf(at, size))
            except Invalid as error:
                raise Unverified(f"leaf {at} of the timeline does not follow: {error.message}") from None
        if len(self._maps) >= MAX_CACHED_MAPS:
            del self._maps[next(iter(self._maps))]
        self._maps[index] = tables.with_changes(changes)

    def last_of(self, table: str, index: int, size: int) -> IndexedLeaf | None:
        return next((indexed for indexed in self._newest_first(index, size) if indexed[1].table == table), None)

    def of_table(self, uuid: str, sequence: int, size: int) -> IndexedLeaf | None:
        leaves = self._newest_first(size - 1, size)
        return next(((i, leaf) for i, leaf in leaves if (leaf.table_uuid, leaf.sequence) == (uuid, sequence)), None)

    def of_snapshot(self, snapshot_id: int, size: int) -> list[IndexedLeaf]:
        leaves = self._newest_first(size - 1, size)
        return [(index, leaf) for index, leaf in leaves if leaf.is_snapshot and leaf.snapshot_id == snapshot_id]

    def _newest_first(self, index: int, size: int) -> Iterator[IndexedLeaf]:
        return ((at, self._leaf(at, size)) for at in range(min(index, size - 1), -1, -1))

    def _leaf(self, index: int, size: int) -> Leaf:
        return Leaf.decode(self.entry(index, size))

    def _bundle(self, number: int, size: int) -> list[bytes]:
        bundle = tile_at(ENTRIES, number, size)
        with translate_errors(bundle.path):
            data = self._tiles(bundle.path)
        try:
            return split_entries(bundle, data)
        except Exception:
            # The partial bundle was pruned: the full one, which begins with the same entries, was returned instead.
            return split_entries(Tile(ENTRIES, number), data)[: bundle.width]
