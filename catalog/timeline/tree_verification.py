"""The tree, rebuilt from its leaves and compared with every other form it is kept in. Reads only.

One pass over the leaves: their hashes give every stored and published tile, and the root of every signed
checkpoint. Holds a few thousand leaves at a time.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from catalog.errors import Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.tiles import ENTRIES, HEIGHT, WIDTH, Tile, join_entries, tile_at
from catalog.merkle.tree import HASH_SIZE, CompactRange, leaf_hash
from catalog.timeline import keys
from catalog.timeline.edge import Edge
from catalog.timeline.faults import Fault, Findings, Progress
from catalog.timeline.head import stored_tile
from catalog.timeline.index_verification import Indexes, row_name
from catalog.timeline.leaf import FORMAT, Leaf
from catalog.timeline.published_copy import PublishedCopy
from catalog.timeline.store import Database

CHUNK = 32 * WIDTH
_SOMETIMES = {"rows_digest"}
_FIELDS = {field.name for field in fields(Leaf)} - _SOMETIMES | {"format"}


@dataclass
class TreeVerification:
    """One pass from `since` (a checkpoint that was verified before) or from nothing, up to `head`."""

    db: Database
    published: PublishedCopy
    open: Callable[[bytes], Checkpoint]
    """The checkpoint in a signed note; Unverified if no key vouches for it."""
    findings: Findings
    progress: Progress
    leaves: int = 0
    checkpoints: int = 0
    _tree: CompactRange = field(default_factory=CompactRange)
    _rows: dict[int, bytes] = field(default_factory=dict)
    """Level -> the hashes of its unfinished tile."""
    _bundle: list[bytes] = field(default_factory=list)

    def run(self, since: Checkpoint | None, head: Checkpoint) -> None:
        start = since.size if since else 0
        if since and not self._begin_at(since):
            return
        if start and start == self.published.size:
            self._check_edge()
        indexes = Indexes(self.db, start, head.size, self.findings)
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
                    self._check_edge()
                if note is not None and note[0] == cut:
                    self._check_note(*note)
                    signed.append(cut)
                    note = next(notes, None)
            for index, entry in enumerate(entries, first):
                if (leaf := self._parse(index, entry)) is not None:
                    indexes.add(index, leaf)
            self.leaves += len(entries)
            self.progress("leaves", end - start, head.size - start)
        if self._tree.size != head.size:
            self._fault(keys.leaf(self._tree.size), "it is missing, and the rest was not looked at", self._tree.size)
            return
        self._check_stored_edge()
        indexes.finish(signed)
        if self._tree.root() != head.root:
            self._fault(keys.HEAD, "its root is not the one that its leaves have")

    def _begin_at(self, since: Checkpoint) -> bool:
        """Takes up the tree at a checkpoint: a tile per level and the unfinished bundle are read."""
        first = since.size - since.size % WIDTH
        try:
            leaves = [value for _, value in self.db.scan(keys.leaf(first), keys.leaf(since.size))]
            edge = Edge.load(since.size, lambda tile: stored_tile(self.db, tile), leaves)
        except Unverified as error:
            self.findings.add(Fault(str(error.subject), error.message))
            return False
        if edge.tree.root() != since.root:
            what = f"its tree of {since.size} leaves is not the one that was verified before: history was changed"
            self._fault(keys.HEAD, what)
            return False
        self._tree, self._rows, self._bundle = edge.tree, dict(edge.tiles), leaves
        for index, entry in enumerate(leaves, first):
            at = (index - first) * HASH_SIZE
            if leaf_hash(entry) != edge.tiles[0][at : at + HASH_SIZE]:
                self._fault(keys.leaf(index), "its hash is not the one in the tree", index)
        return True

    def _chunks(self, start: int, size: int) -> Iterator[tuple[int, list[bytes]]]:
        """The stored leaves from `start` on, cut at whole bundles; ends at the first that is missing."""
        rows = self.db.scan(keys.leaf(start), keys.leaf(size))
        while True:
            chunk = list(islice(rows, CHUNK - start % WIDTH))
            whole = [row for at, row in enumerate(chunk, start) if keys.number_at_end(row[0]) == at]
            if whole:
                yield start, [value for _, value in whole]
            start += len(chunk)
            if not chunk or len(whole) < len(chunk):
                return

    def _notes(self, start: int, size: int) -> Iterator[tuple[int, bytes]]:
        rows = self.db.scan(keys.checkpoint(start + 1), keys.checkpoint(size + 1))
        return ((keys.number_at_end(key), note) for key, note in rows)

    def _check_note(self, size: int, note: bytes) -> None:
        self.checkpoints += 1
        try:
            checkpoint = self.open(note)
            if (checkpoint.size, checkpoint.root) != (size, self._tree.root()):
                self._fault(keys.checkpoint(size), "it is signed, but not of the tree its leaves have", size - 1)
        except Unverified as error:
            self._fault(keys.checkpoint(size), error.message, size - 1)

    def _compare_with_tiles(self, first: int, hashes: list[bytes]) -> None:
        """Names each leaf, or tile, that is not as it was, and goes on with the hash that was signed.

        A stored tile that differs from its leaves leaves open which of them is wrong; the published tile, a
        third witness, decides. Going on with the wrong hash would make every later checkpoint a fault.
        """
        size = first + len(hashes)
        numbers = range(first // WIDTH, -(-size // WIDTH))
        stored = self.db.get_many([keys.node(0, number) for number in numbers])
        for number, tile in zip(numbers, stored, strict=True):
            begin, end = max(first, number * WIDTH), min(size, (number + 1) * WIDTH)
            rebuilt = hashes[begin - first : end - first]
            at = (begin - number * WIDTH) * HASH_SIZE
            if tile is not None and tile[at : at + len(rebuilt) * HASH_SIZE] == b"".join(rebuilt):
                continue
            witness = self.published.hashes(number)
            for index, value in enumerate(rebuilt, begin):
                at = index % WIDTH * HASH_SIZE
                held, public = (tile or b"")[at : at + HASH_SIZE], witness[at : at + HASH_SIZE]
                if held == value:
                    continue
                if held == public and len(held) == HASH_SIZE:
                    self._fault(keys.leaf(index), "its hash is not the one in the tree", index)
                    hashes[index - first] = held
                else:
                    self._fault(keys.node(0, number), f"its hash of leaf {index} is not the leaf's", index)

    def _grow(self, entries: list[bytes], hashes: list[bytes]) -> None:
        before = self._tree.size
        self._tree, nodes = self._tree.extend(hashes)
        for height, row in groupby(nodes, key=itemgetter(0)):
            level, between = divmod(height, HEIGHT)
            if between:
                continue
            contents = self._rows.pop(level, b"") + b"".join(value for _, _, value in row)
            number = (before >> height) // WIDTH
            for at in range(0, len(contents), WIDTH * HASH_SIZE):
                part = contents[at : at + WIDTH * HASH_SIZE]
                if len(part) < WIDTH * HASH_SIZE:
                    self._rows[level] = part
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

    def _check_edge(self) -> None:
        """The unfinished tiles and bundle of the published size, which are public as they stand here."""
        size = self._tree.size
        for level, row in self._rows.items():
            self.published.compare(tile_at(level, (size >> level * HEIGHT) // WIDTH, size), row)
        if self._bundle:
            self.published.compare(tile_at(ENTRIES, size // WIDTH, size), join_entries(self._bundle))

    def _check_stored_edge(self) -> None:
        for level, row in self._rows.items():
            if level:
                size = self._tree.size
                self._check_stored(tile_at(level, (size >> level * HEIGHT) // WIDTH, size), row)

    def _check_stored(self, tile: Tile, contents: bytes) -> None:
        stored = self.db.get(keys.node(tile.level, tile.index))
        if stored is None or stored[: len(contents)] != contents:
            last = ((tile.index * WIDTH + tile.width) << (tile.level * HEIGHT)) - 1
            self._fault(keys.node(tile.level, tile.index), "its hashes are not those of its leaves", last)

    def _parse(self, index: int, entry: bytes) -> dict[str, Any] | None:
        """The leaf's fields. That its bytes are right is the tree's affair, and was checked by its hash."""
        try:
            leaf: dict[str, Any] = json.loads(entry.decode())
            if leaf.keys() - _SOMETIMES == _FIELDS and leaf["format"] == FORMAT:
                return leaf
        except (ValueError, AttributeError, TypeError):
            pass
        self._fault(keys.leaf(index), "it is not a leaf", index)
        return None

    def _fault(self, key: bytes, what: str, index: int | None = None) -> None:
        self.findings.add(Fault(row_name(key), what, index))
