"""The tree as the database stores it: the head, written in the same batch as its leaves, and the tiles."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from catalog.core.errors import Unverified
from catalog.merkle.tiles import ENTRIES, WIDTH, Tile, join_entries
from catalog.merkle.tree import EMPTY_ROOT, HASH_SIZE
from catalog.timeline.log import store_keys
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.store import Store


@dataclass(frozen=True, slots=True)
class Head:
    """The tree's size and root, the time of its last batch, and its signed checkpoint (empty without a leaf).

    `announced`: the size up to which commits had been announced when this head was written.
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
        """The stored head; None gives that of an empty timeline."""
        return cls() if data is None else cls(**json.loads(data))


def stored_tile(db: Store, tile: Tile) -> bytes:
    """A tile or bundle of the requested width. The stored one may have grown wider since. Unverified if incomplete."""
    if tile.level == ENTRIES:
        first = tile.index * WIDTH
        entries = [value for _, value in db.scan(store_keys.leaf(first), store_keys.leaf(first + tile.width))]
        contents, complete = join_entries(entries), len(entries) == tile.width
    else:
        contents = (db.get(store_keys.node(tile.level, tile.index)) or b"")[: tile.width * HASH_SIZE]
        complete = len(contents) == tile.width * HASH_SIZE
    if not complete:
        raise Unverified(f"the timeline's database lacks a part of {tile.path}", subject=tile.path)
    return contents


def stored_leaves(db: Store, start: int, end: int) -> list[tuple[int, Leaf]]:
    """The leaves with start <= index < end."""
    rows = db.scan(store_keys.leaf(start), store_keys.leaf(end))
    return [(store_keys.number_at_end(key), Leaf.decode(value)) for key, value in rows]
