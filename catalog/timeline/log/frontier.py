"""The frontier: the part of the tree that appending needs, and the tiles that appending changes.

A value: growing it gives a new one, so a batch that could not be stored leaves the old frontier unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from catalog.merkle.tiles import ENTRIES, HEIGHT, WIDTH, Tile, join_entries, join_hashes, tile_at
from catalog.merkle.tree import HASH_SIZE, CompactRange, leaf_hash

ReadTile = Callable[[Tile], bytes]


@dataclass(frozen=True)
class Frontier:
    """A tree's compact range, its partial hash tiles (level -> contents), and the entries of its partial bundle."""

    tree: CompactRange = field(default_factory=CompactRange)
    tiles: dict[int, bytes] = field(default_factory=dict)
    leaves: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        return self.tree.size

    @classmethod
    def load(cls, size: int, read_tile: ReadTile, leaves: Sequence[bytes]) -> Frontier:
        """The frontier of a stored tree: reads at most one tile per level. `leaves`: the partial bundle's entries."""
        tiles, hashes = dict[int, bytes](), list[bytes]()
        level = 0
        while width := size >> (level * HEIGHT):
            if width % WIDTH:
                tiles[level] = read_tile(tile_at(level, width // WIDTH, size))
            level += 1
        for tile_level in reversed(range(level)):
            hashes += _subtrees(tiles.get(tile_level, b""))
        return cls(CompactRange(size, tuple(hashes)), tiles, tuple(leaves))

    def grow(self, leaves: Sequence[bytes]) -> tuple[Frontier, dict[Tile, bytes]]:
        """The frontier with the leaves appended, and the contents of each tile and bundle that they changed.

        These are exactly what tlog-tiles publishes for the new size: tiles.new_tiles and tiles.new_bundles.
        """
        tree, nodes = self.tree.extend([leaf_hash(leaf) for leaf in leaves])
        new_hashes = dict[int, list[bytes]]()  # by tile level
        for height, _, value in nodes:
            if height % HEIGHT == 0:
                new_hashes.setdefault(height // HEIGHT, []).append(value)
        partial, changed = dict(self.tiles), dict[Tile, bytes]()
        for level, hashes in new_hashes.items():
            first = (self.size >> (level * HEIGHT)) // WIDTH
            contents = partial.pop(level, b"") + join_hashes(hashes)
            for offset, tile in enumerate(_split(contents, WIDTH * HASH_SIZE)):
                changed[Tile(level, first + offset, len(tile) // HASH_SIZE)] = tile
                if len(tile) < WIDTH * HASH_SIZE:
                    partial[level] = tile
        entries = [*self.leaves, *leaves]
        first = self.size // WIDTH
        for start in range(0, len(entries), WIDTH):
            bundle = entries[start : start + WIDTH]
            changed[Tile(ENTRIES, first + start // WIDTH, len(bundle))] = join_entries(bundle)
        partial_bundle = tuple(entries[len(entries) - len(entries) % WIDTH :])
        return Frontier(tree, partial, partial_bundle), changed


def _subtrees(tile: bytes) -> list[bytes]:
    """The roots of the complete subtrees over a tile's hashes, largest first."""
    hashes = list(_split(tile, HASH_SIZE))
    return list(CompactRange().extend(hashes)[0].hashes)


def _split(data: bytes, length: int) -> list[bytes]:
    return [data[at : at + length] for at in range(0, len(data), length)]
