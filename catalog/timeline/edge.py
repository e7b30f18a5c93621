"""The tree's right edge: all of it that appending needs, and the tiles that appending changes.

A value. A batch that could not be stored leaves the edge it grew from as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from catalog.merkle.tiles import ENTRIES, HEIGHT, WIDTH, Tile, join_entries, join_hashes, tile_at
from catalog.merkle.tree import HASH_SIZE, CompactRange, leaf_hash

ReadTile = Callable[[Tile], bytes]


@dataclass(frozen=True)
class Edge:
    """A tree, its unfinished hash tiles (level -> contents), and the leaves of its unfinished bundle."""

    tree: CompactRange = field(default_factory=CompactRange)
    tiles: dict[int, bytes] = field(default_factory=dict)
    leaves: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        return self.tree.size

    @classmethod
    def load(cls, size: int, read_tile: ReadTile, leaves: Sequence[bytes]) -> Edge:
        """The edge of a stored tree: reads at most one tile per level. `leaves`: of the last bundle."""
        tiles, hashes = dict[int, bytes](), list[bytes]()
        level = 0
        while width := size >> (level * HEIGHT):
            if width % WIDTH:
                tiles[level] = read_tile(tile_at(level, width // WIDTH, size))
            level += 1
        for top in reversed(range(level)):
            hashes += _subtrees(tiles.get(top, b""))
        return cls(CompactRange(size, tuple(hashes)), tiles, tuple(leaves))

    def grow(self, leaves: Sequence[bytes]) -> tuple[Edge, dict[Tile, bytes]]:
        """The edge with the leaves appended, and the contents of each tile and bundle they changed.

        These are exactly what tlog-tiles publishes for the new size: tiles.new_tiles and tiles.new_bundles.
        """
        tree, nodes = self.tree.extend([leaf_hash(leaf) for leaf in leaves])
        rows = dict[int, list[bytes]]()
        for height, _, value in nodes:
            if height % HEIGHT == 0:
                rows.setdefault(height // HEIGHT, []).append(value)
        unfinished, changed = dict(self.tiles), dict[Tile, bytes]()
        for level, hashes in rows.items():
            first = (self.size >> (level * HEIGHT)) // WIDTH
            contents = unfinished.pop(level, b"") + join_hashes(hashes)
            for offset, part in enumerate(_cut(contents, WIDTH * HASH_SIZE)):
                changed[Tile(level, first + offset, len(part) // HASH_SIZE)] = part
                if len(part) < WIDTH * HASH_SIZE:
                    unfinished[level] = part
        bundle = [*self.leaves, *leaves]
        first = self.size // WIDTH
        for start in range(0, len(bundle), WIDTH):
            part_of = bundle[start : start + WIDTH]
            changed[Tile(ENTRIES, first + start // WIDTH, len(part_of))] = join_entries(part_of)
        rest = tuple(bundle[len(bundle) - len(bundle) % WIDTH :])
        return Edge(tree, unfinished, rest), changed


def _subtrees(tile: bytes) -> list[bytes]:
    """The roots of the complete subtrees over a tile's hashes, largest first."""
    hashes = list(_cut(tile, HASH_SIZE))
    return list(CompactRange().extend(hashes)[0].hashes)


def _cut(data: bytes, length: int) -> list[bytes]:
    return [data[at : at + length] for at in range(0, len(data), length)]
