"""The published tiles and bundles, compared with what the timeline's leaves give. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.errors import NotFound
from catalog.merkle.tiles import ENTRIES, HEIGHT, WIDTH, Tile, split_entries, tile_at
from catalog.merkle.tree import HASH_SIZE
from catalog.merkle.verify import ProofError
from catalog.timeline.away import explained
from catalog.timeline.faults import Crew, Fault, Findings
from catalog.timeline.publish import PREFIX, PublishedTiles


@dataclass
class PublishedCopy:
    """The tiles published under a checkpoint of `size`; each is fetched by the crew, one GET."""

    read: PublishedTiles
    size: int
    crew: Crew
    findings: Findings
    tiles: int = 0

    def hashes(self, number: int) -> bytes:
        """A tile of leaf hashes, now; empty if it is not there."""
        if number * WIDTH >= self.size:
            return b""
        try:
            return self.read.read(tile_at(0, number, self.size).path)
        except NotFound:
            return b""

    def compare(self, tile: Tile, contents: bytes) -> None:
        """Has the tile fetched and compared, if it is of the published size; what differs is a fault."""
        if (tile.index * WIDTH + tile.width) << (max(tile.level, 0) * HEIGHT) <= self.size:
            self.tiles += 1
            self.crew.submit(self._fetch_and_compare, tile, contents)

    def _fetch_and_compare(self, tile: Tile, contents: bytes) -> None:
        name, first = PREFIX + tile.path, (tile.index * WIDTH) << (max(tile.level, 0) * HEIGHT)
        try:
            with explained(tile.path):
                found = self.read.read(tile.path)
        except NotFound:
            self.findings.add(Fault(name, "it is gone", first))
            return
        if found == contents or (tile.width < WIDTH and _begins_with(tile, found, contents)):
            return
        index = first + (_first_difference(tile, found, contents) << (max(tile.level, 0) * HEIGHT))
        self.findings.add(Fault(name, "it is not what the timeline's leaves give", index))


def _begins_with(tile: Tile, found: bytes, contents: bytes) -> bool:
    """A partial tile that was pruned is answered by the full one, which begins with it."""
    if tile.level != ENTRIES:
        return len(found) == WIDTH * HASH_SIZE and found.startswith(contents)
    try:
        split_entries(Tile(ENTRIES, tile.index), found)
    except ProofError:
        return False
    return found.startswith(contents)


def _first_difference(tile: Tile, found: bytes, contents: bytes) -> int:
    """The number, within the tile, of the first hash or entry that differs."""
    at = next(
        (i for i, (a, b) in enumerate(zip(found, contents, strict=False)) if a != b), min(len(found), len(contents))
    )
    if tile.level != ENTRIES:
        return min(at // HASH_SIZE, tile.width - 1)
    number, end = -1, 0
    while end <= at and end < len(contents):
        number, end = number + 1, end + 2 + int.from_bytes(contents[end : end + 2], "big")
    return max(number, 0)
