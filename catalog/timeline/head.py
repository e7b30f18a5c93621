"""The tree as the database holds it: its head, written with the leaves it counts, and its tiles."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from catalog.errors import Unverified
from catalog.merkle.tiles import ENTRIES, WIDTH, Tile, join_entries
from catalog.merkle.tree import EMPTY_ROOT, HASH_SIZE
from catalog.timeline import keys
from catalog.timeline.leaf import Leaf
from catalog.timeline.store import Database


@dataclass(frozen=True, slots=True)
class Head:
    """The tree's size and root, the time of its last batch, and its signed checkpoint (if it has a leaf).

    `announced`: the size up to which commits were announced when this head was written.
    """

    size: int = 0
    root: str = EMPTY_ROOT.hex()
    sequenced_ms: int = 0
    checkpoint: str = ""
    announced: int = 0

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Head:
        """The head of an empty timeline when there is none."""
        return cls() if data is None else cls(**json.loads(data))


def stored_tile(db: Database, tile: Tile) -> bytes:
    """A tile or bundle as the database has it: the last of a level may have grown wider than was asked."""
    if tile.level == ENTRIES:
        first = tile.index * WIDTH
        entries = [value for _, value in db.scan(keys.leaf(first), keys.leaf(first + tile.width))]
        found, complete = join_entries(entries), len(entries) == tile.width
    else:
        found = (db.get(keys.node(tile.level, tile.index)) or b"")[: tile.width * HASH_SIZE]
        complete = len(found) == tile.width * HASH_SIZE
    if not complete:
        raise Unverified(f"the timeline's database lacks a part of {tile.path}", subject=tile.path)
    return found


def stored_leaves(db: Database, start: int, end: int) -> list[tuple[int, Leaf]]:
    """The leaves with start <= index < end."""
    rows = db.scan(keys.leaf(start), keys.leaf(end))
    return [(keys.number_at_end(key), Leaf.decode(value)) for key, value in rows]
