"""The public form of the tree (c2sp.org/tlog-tiles): hash tiles, entry bundles, and where they are kept.

A hash tile at tile level L has up to 256 neighbouring hashes of tree level 8 * L; the levels between are
computed from them. A bundle has the up to 256 entries under a tile of level 0. Both are immutable: growing a
partial one gives a new path, which contains its width. This module encodes and parses bytes and paths. It
fetches and stores nothing, and trusts no tile: verify.py decides whether a proof made from tiles is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from catalog.merkle.tree import HASH_SIZE, Coordinate, ReadHashes, root
from catalog.merkle.verify import ProofError

HEIGHT = 8
WIDTH = 1 << HEIGHT
MAX_LEVEL = 63
MAX_ENTRY_BYTES = 0xFFFF

ENTRIES = -1
"""The `level` of an entry bundle."""

ReadTiles: TypeAlias = Callable[[Sequence[str]], Sequence[bytes]]
"""Returns the contents of the tiles at the paths, in their order.

If a partial tile was pruned because the full one is published, the full one may be returned instead.
"""

_PATH = re.compile(r"tile/(entries|[0-9]{1,2})/((?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/([0-9]{1,3}))?")


@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """One tile: its level (ENTRIES for a bundle), its number in the level, and its width (256 if full)."""

    level: int
    index: int
    width: int = WIDTH

    def __post_init__(self) -> None:
        if not (ENTRIES <= self.level <= MAX_LEVEL and self.index >= 0 and 1 <= self.width <= WIDTH):
            raise ValueError(f"no tile has level {self.level}, index {self.index}, width {self.width}")

    @classmethod
    def parse(cls, path: str) -> Tile:
        """Reads a path like `tile/0/x001/x234/067.p/8`. Raises ValueError unless `path` would write it so."""
        match = _PATH.fullmatch(path)
        if match is None:
            raise ValueError(f"not a tile path: {path!r:.100}")
        level, index, width = match.groups()
        tile = cls(
            ENTRIES if level == "entries" else int(level),
            int(index.replace("x", "").replace("/", "")),
            WIDTH if width is None else int(width),
        )
        if tile.path != path:
            raise ValueError(f"not a tile path: {path!r:.100}; it would be {tile.path!r}")
        return tile

    @property
    def path(self) -> str:
        """Where the tile is kept, below the log's prefix."""
        level = "entries" if self.level == ENTRIES else str(self.level)
        number = f"{self.index % 1000:03}"
        above = self.index // 1000
        while above:
            number = f"x{above % 1000:03}/{number}"
            above //= 1000
        partial = "" if self.width == WIDTH else f".p/{self.width}"
        return f"tile/{level}/{number}{partial}"

    def coordinates(self) -> list[Coordinate]:
        """The coordinates of the hashes in the tile, in order; of a bundle, those of its leaf hashes."""
        first = self.index * WIDTH
        return [(max(self.level, 0) * HEIGHT, first + i) for i in range(self.width)]


def tile_at(level: int, index: int, size: int) -> Tile:
    """The tile (or, with level ENTRIES, the bundle) as it is in a tree of `size` leaves: full or partial.

    Entry i is number i % 256 of the bundle tile_at(ENTRIES, i // 256, size).
    """
    width = min(WIDTH, _row_width(level, size) - index * WIDTH)
    if width <= 0:
        raise ValueError(f"a tree of {size} leaves has no tile {index} at tile level {level}")
    return Tile(level, index, width)


def new_tiles(old_size: int, new_size: int) -> list[Tile]:
    """The hash tiles of the tree of `new_size` that the tree of `old_size` did not have, lowest level first.

    Publishing these and new_bundles, and only then the checkpoint of `new_size`, keeps every checkpoint
    provable. n new leaves give about n / 256 tiles, and at most one more per level.
    """
    tiles = list[Tile]()
    for level in range(MAX_LEVEL + 1):
        if not new_size >> (level * HEIGHT):
            break
        tiles += _new_in_level(level, old_size, new_size)
    return tiles


def new_bundles(old_size: int, new_size: int) -> list[Tile]:
    """The entry bundles of the tree of `new_size` that the tree of `old_size` did not have, in order."""
    return _new_in_level(ENTRIES, old_size, new_size)


def join_hashes(hashes: Iterable[bytes]) -> bytes:
    """The contents of a hash tile: its hashes, one after the other."""
    return b"".join(hashes)


def split_hashes(tile: Tile, data: bytes) -> list[bytes]:
    """The hashes in a tile's contents. Raises ProofError if there are not exactly as many as its width.

    The full tile may stand for a partial one, which is its beginning.
    """
    if len(data) not in (tile.width * HASH_SIZE, WIDTH * HASH_SIZE):
        raise ProofError(f"{tile.path} has {len(data)} bytes, not {tile.width * HASH_SIZE}")
    return [data[i : i + HASH_SIZE] for i in range(0, tile.width * HASH_SIZE, HASH_SIZE)]


def join_entries(entries: Iterable[bytes]) -> bytes:
    """A bundle's contents: each entry after its length in two bytes. ValueError if one is over 65,535."""
    parts = list[bytes]()
    for entry in entries:
        if len(entry) > MAX_ENTRY_BYTES:
            raise ValueError(f"an entry of {len(entry)} bytes is over the limit of {MAX_ENTRY_BYTES}")
        parts += (len(entry).to_bytes(2, "big"), entry)
    return b"".join(parts)


def split_entries(bundle: Tile, data: bytes) -> list[bytes]:
    """The entries in a bundle's contents. Raises ProofError if they are not exactly as many as its width."""
    entries, at = list[bytes](), 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2], "big")
        start, at = at + 2, at + 2 + length
        entries.append(data[start:at])
    if at != len(data):
        raise ProofError(f"{bundle.path} ends within an entry")
    if len(entries) != bundle.width:
        raise ProofError(f"{bundle.path} has {len(entries)} entries, not {bundle.width}")
    return entries


def hash_reader(size: int, read_tiles: ReadTiles) -> ReadHashes:
    """A read_hashes over the published tiles of the tree of `size` leaves.

    Each call of it is one call of `read_tiles`, with each tile once: for an inclusion proof at most two per
    tile level less one, which is 5 tiles up to 2**24 leaves. Raises ProofError if a tile has the wrong
    length.
    """

    def read_hashes(coordinates: Sequence[Coordinate]) -> list[bytes]:
        parts = [_tile_of(coordinate, size) for coordinate in coordinates]
        tiles = list(dict.fromkeys(tile for tile, _ in parts))
        contents = read_tiles([tile.path for tile in tiles]) if tiles else []
        if len(contents) != len(tiles):
            raise ValueError(f"read_tiles returned {len(contents)} tiles for {len(tiles)} paths")
        hashes = {tile: split_hashes(tile, data) for tile, data in zip(tiles, contents, strict=True)}
        return [root(hashes[tile][part]) for tile, part in parts]

    return read_hashes


def _tile_of(coordinate: Coordinate, size: int) -> tuple[Tile, slice]:
    """The tile to compute the hash from, as it is at `size`, and the part of it that lies under the hash."""
    level, index = coordinate
    if level < 0 or index < 0 or (index + 1) << level > size:
        raise ValueError(f"a tree of {size} leaves has no complete node {index} at level {level}")
    tile_level, height = divmod(level, HEIGHT)
    tile_index, start = divmod(index << height, WIDTH)
    return tile_at(tile_level, tile_index, size), slice(start, start + (1 << height))


def _new_in_level(level: int, old_size: int, new_size: int) -> list[Tile]:
    if not 0 <= old_size <= new_size:
        raise ValueError(f"a tree of {old_size} leaves cannot grow to {new_size}")
    old, new = _row_width(level, old_size), _row_width(level, new_size)
    return [tile_at(level, index, new_size) for index in range(old // WIDTH, -(-new // WIDTH)) if old < new]


def _row_width(level: int, size: int) -> int:
    """How many hashes (or entries) the tiles of a level have together."""
    return size >> (max(level, 0) * HEIGHT)
