"""The tree, recomputed from its leaves and compared with its stored and published forms. Reads only.

One pass over the leaves: their hashes determine every stored and published tile, and the root of every signed
checkpoint. Holds a few thousand leaves in memory at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter

from catalog.core.errors import Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.tiles import ENTRIES, HEIGHT, WIDTH, Tile, join_entries, tile_at
from catalog.merkle.tree import HASH_SIZE, CompactRange, leaf_hash
from catalog.timeline.log import store_keys
from catalog.timeline.log.frontier import Frontier
from catalog.timeline.log.head import Head, stored_tile
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.store import Store
from catalog.timeline.verify.faults import Fault, FaultCollector
from catalog.timeline.verify.indexes import Indexes, row_name
from catalog.timeline.verify.published import PublishedCopy
from catalog.timeline.verify.replay import Replay

CHUNK = 32 * WIDTH


@dataclass
class TreeVerification:
    """One pass from `since` (a checkpoint that was verified before), or from the first leaf, up to `head`."""

    db: Store
    published: PublishedCopy
    open: Callable[[bytes], Checkpoint]
    """Returns the checkpoint in a signed note; Unverified if no trusted key signed it."""
    faults: FaultCollector
    leaves: int = 0
    checkpoints: int = 0
    _tree: CompactRange = field(default_factory=CompactRange)
    _partial_tiles: dict[int, bytes] = field(default_factory=dict)
    """Level -> the hashes of its partial tile."""
    _bundle: list[bytes] = field(default_factory=list)

    def run(self, since: Checkpoint | None, head: Checkpoint) -> None:
        start = since.size if since else 0
        if since and not self._begin_at(since):
            return
        if start and start == self.published.size:
            self._check_published_frontier()
        indexes = Indexes(self.db, start, head.size, self.faults)
        replay = Replay(self.db, start, self.faults)
        if since and head.size > start and not replay.begin_at(since):
            return
        notes = self._notes(start, head.size)
        note = next(notes, None)
        signed = array("Q")
        for first, entries in self._chunks(start, head.size):
            hashes = [leaf_hash(entry) for entry in entries]
            self._compare_with_tiles(first, hashes)
            done, end = first, first + len(entries)
            while done < end:
                cut = end if note is None else min(end, note[0])
                self._grow(entries[done - first : cut - first], hashes[done - first : cut - first])
                done = cut
                if cut == self.published.size:
                    self._check_published_frontier()
                if note is not None and note[0] == cut:
                    self._check_note(*note)
                    signed.append(cut)
                    note = next(notes, None)
            for index, entry in enumerate(entries, first):
                if (leaf := self._parse(index, entry)) is not None:
                    indexes.add(index, leaf)
                    replay.add(index, leaf)
            self.leaves += len(entries)
        if self._tree.size != head.size:
            self._fault(
                store_keys.leaf(self._tree.size), "it is missing, and later leaves were not verified", self._tree.size
            )
            return
        self._check_stored_frontier()
        indexes.finish(signed)
        replay.finish(is_newest=Head.decode(self.db.get(store_keys.HEAD)).size == head.size)
        if self._tree.root() != head.root:
            self._fault(store_keys.HEAD, "its root is not that of its leaves")

    def _begin_at(self, since: Checkpoint) -> bool:
        """Continues from the tree of a checkpoint. Reads a tile per level and the partial bundle."""
        first = since.size - since.size % WIDTH
        try:
            leaves = [value for _, value in self.db.scan(store_keys.leaf(first), store_keys.leaf(since.size))]
            frontier = Frontier.load(since.size, lambda tile: stored_tile(self.db, tile), leaves)
        except Unverified as error:
            self.faults.add(Fault(str(error.subject), error.message))
            return False
        if frontier.tree.root() != since.root:
            what = f"its tree of {since.size} leaves is not the one that was verified before: history was changed"
            self._fault(store_keys.HEAD, what)
            return False
        self._tree, self._partial_tiles, self._bundle = frontier.tree, dict(frontier.tiles), leaves
        for index, entry in enumerate(leaves, first):
            at = (index - first) * HASH_SIZE
            if leaf_hash(entry) != frontier.tiles[0][at : at + HASH_SIZE]:
                self._fault(store_keys.leaf(index), "its hash is not the one in the tree", index)
        return True

    def _chunks(self, start: int, size: int) -> Iterator[tuple[int, list[bytes]]]:
        """The stored leaves from `start` on, in chunks of full bundles. Ends at the first missing leaf."""
        rows = self.db.scan(store_keys.leaf(start), store_keys.leaf(size))
        while True:
            chunk = list(islice(rows, CHUNK - start % WIDTH))
            consecutive = [row for at, row in enumerate(chunk, start) if store_keys.number_at_end(row[0]) == at]
            if consecutive:
                yield start, [value for _, value in consecutive]
            start += len(chunk)
            if not chunk or len(consecutive) < len(chunk):
                return

    def _notes(self, start: int, size: int) -> Iterator[tuple[int, bytes]]:
        rows = self.db.scan(store_keys.checkpoint(start + 1), store_keys.checkpoint(size + 1))
        return ((store_keys.number_at_end(key), note) for key, note in rows)

    def _check_note(self, size: int, note: bytes) -> None:
        self.checkpoints += 1
        try:
            checkpoint = self.open(note)
            if (checkpoint.size, checkpoint.root) != (size, self._tree.root()):
                self._fault(store_keys.checkpoint(size), "its root is not that of its leaves", size - 1)
        except Unverified as error:
            self._fault(store_keys.checkpoint(size), error.message, size - 1)

    def _compare_with_tiles(self, first: int, hashes: list[bytes]) -> None:
        """Reports each leaf or tile that was altered, and replaces its hash in `hashes` by the one that was signed.

        If a stored tile differs from its leaves, either may be wrong; the published tile decides. Continuing with the
        wrong hash would make every later checkpoint a fault.
        """
        size = first + len(hashes)
        numbers = range(first // WIDTH, -(-size // WIDTH))
        stored = self.db.get_many([store_keys.node(0, number) for number in numbers])
        for number, tile in zip(numbers, stored, strict=True):
            begin, end = max(first, number * WIDTH), min(size, (number + 1) * WIDTH)
            computed = hashes[begin - first : end - first]
            at = (begin - number * WIDTH) * HASH_SIZE
            if tile is not None and tile[at : at + len(computed) * HASH_SIZE] == b"".join(computed):
                continue
            published_tile = self.published.hashes(number)
            for index, value in enumerate(computed, begin):
                at = index % WIDTH * HASH_SIZE
                in_store, in_public = (tile or b"")[at : at + HASH_SIZE], published_tile[at : at + HASH_SIZE]
                if in_store == value:
                    continue
                if in_store == in_public and len(in_store) == HASH_SIZE:
                    self._fault(store_keys.leaf(index), "its hash is not the one in the tree", index)
                    hashes[index - first] = in_store
                else:
                    self._fault(store_keys.node(0, number), f"its hash of leaf {index} is not the leaf's", index)

    def _grow(self, entries: list[bytes], hashes: list[bytes]) -> None:
        before = self._tree.size
        self._tree, nodes = self._tree.extend(hashes)
        for height, row in groupby(nodes, key=itemgetter(0)):
            level, inside_tile = divmod(height, HEIGHT)
            if inside_tile:
                continue  # only every eighth row of the tree is stored
            contents = self._partial_tiles.pop(level, b"") + b"".join(value for _, _, value in row)
            number = (before >> height) // WIDTH
            for at in range(0, len(contents), WIDTH * HASH_SIZE):
                part = contents[at : at + WIDTH * HASH_SIZE]
                if len(part) < WIDTH * HASH_SIZE:
                    self._partial_tiles[level] = part
                    break
                tile = Tile(level, number + at // (WIDTH * HASH_SIZE))
                if level:
                    self._check_stored(tile, part)
                self.published.compare(tile, part)
        self._bundle += entries
        first = (self._tree.size - len(self._bundle)) // WIDTH
        while len(self._bundle) >= WIDTH:
            self.published.compare(Tile(ENTRIES, first), join_entries(self._bundle[:WIDTH]))
            del self._bundle[:WIDTH]
            first += 1

    def _check_published_frontier(self) -> None:
        """Compares the partial tiles and bundle of the published size. Call it when the tree has that size."""
        size = self._tree.size
        for level, row in self._partial_tiles.items():
            self.published.compare(tile_at(level, (size >> level * HEIGHT) // WIDTH, size), row)
        if self._bundle:
            self.published.compare(tile_at(ENTRIES, size // WIDTH, size), join_entries(self._bundle))

    def _check_stored_frontier(self) -> None:
        for level, row in self._partial_tiles.items():
            if level:
                size = self._tree.size
                self._check_stored(tile_at(level, (size >> level * HEIGHT) // WIDTH, size), row)

    def _check_stored(self, tile: Tile, contents: bytes) -> None:
        stored = self.db.get(store_keys.node(tile.level, tile.index))
        if stored is None or stored[: len(contents)] != contents:
            last = ((tile.index * WIDTH + tile.width) << (tile.level * HEIGHT)) - 1
            self._fault(store_keys.node(tile.level, tile.index), "its hashes are not those of its leaves", last)

    def _parse(self, index: int, entry: bytes) -> Leaf | None:
        """The leaf; None, and a fault, if the entry is not one. Its bytes were checked by their hash."""
        try:
            return Leaf.decode(entry)
        except Unverified as error:
            self._fault(store_keys.leaf(index), f"it is not a leaf: {error.message}", index)
        return None

    def _fault(self, key: bytes, what: str, index: int | None = None) -> None:
        self.faults.add(Fault(row_name(key), what, index))
