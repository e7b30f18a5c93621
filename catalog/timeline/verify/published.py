"""The published tiles and bundles, compared with those computed from the timeline's leaves. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import NotFound
from catalog.merkle.tiles import ENTRIES, HEIGHT, WIDTH, Tile, split_entries, tile_at
from catalog.merkle.tree import HASH_SIZE
from catalog.merkle.verify import ProofError
from catalog.timeline.log.publisher import TIMELINE_PREFIX, PublishedTiles
from catalog.timeline.verify.faults import BoundedPool, Fault, FaultCollector


@dataclass
class PublishedCopy:
    """The tiles published under a checkpoint of `size`. The pool fetches each with one GET."""

    read: PublishedTiles
    size: int
    pool: BoundedPool
    faults: FaultCollector
    tiles: int = 0

    def hashes(self, number: int) -> bytes:
        """The contents of a tile of leaf hashes, fetched at once; empty if it does not exist."""
        if number * WIDTH >= self.size:
            return b""
        try:
            return self.read.read(tile_at(0, number, self.size).path)
        except NotFound:
            return b""

    def compare(self, tile: Tile, contents: bytes) -> None:
        """Submits the tile for comparison, if the published size covers it. A difference is a fault."""
        if (tile.index * WIDTH + tile.width) << (max(tile.level, 0) * HEIGHT) <= self.size:
            self.tiles += 1
            self.pool.submit(self._fetch_and_compare, tile, contents)

    def _fetch_and_compare(self, tile: Tile, contents: bytes) -> None:
        name, first = TIMELINE_PREFIX + tile.path, (tile.index * WIDTH) << (max(tile.level, 0) * HEIGHT)
        try:
            with translate_errors(tile.path):
                published = self.read.read(tile.path)
        except NotFound:
            self.faults.add(Fault(name, "it is missing", first))
            return
        if published == contents or (tile.width < WIDTH and _is_full_tile(tile, published, contents)):
            return
        index = first + (_first_difference(tile, published, contents) << (max(tile.level, 0) * HEIGHT))
        self.faults.add(Fault(name, "its contents differ from those computed from the timeline's leaves", index))


def _is_full_tile(tile: Tile, published: bytes, contents: bytes) -> bool:
    """Whether the full tile was returned for a partial one that was pruned. It begins with the partial tile."""
    if tile.level != ENTRIES:
        return len(published) == WIDTH * HASH_SIZE and published.startswith(contents)
    try:
        split_entries(Tile(ENTRIES, tile.index), published)
    except ProofError:
        return False
    return published.startswith(contents)


def _first_difference(tile: Tile, published: bytes, contents: bytes) -> int:
    """The number, within the tile, of the first hash or entry that differs."""
    length = min(len(published), len(contents))
    at = next((i for i, (a, b) in enumerate(zip(published, contents, strict=False)) if a != b), length)
    if tile.level != ENTRIES:
        return min(at // HASH_SIZE, tile.width - 1)
    number, end = -1, 0
    while end <= at and end < len(contents):
        number, end = number + 1, end + 2 + int.from_bytes(contents[end : end + 2], "big")
    return max(number, 0)
