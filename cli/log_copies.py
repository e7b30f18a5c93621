"""Copies the public log out of the lake: into a directory the user names, or as a tar to stdout."""

from __future__ import annotations

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from catalog.errors import NotFound, Unverified
from catalog.lake import Lake
from catalog.merkle.tiles import ENTRIES, WIDTH, Tile, join_entries, new_bundles, new_tiles, split_entries
from catalog.merkle.tree import HASH_SIZE
from catalog.merkle.verify import ProofError
from catalog.timeline.away import explained
from catalog.timeline.publish import KEYS, PublishedTiles, Publisher

AT_ONCE = 64
WORKERS = 16


@dataclass(frozen=True)
class Copied:
    size: int
    objects: int
    bytes: int


class Target(Protocol):
    def add(self, path: str, data: bytes) -> None: ...

    def finish(self) -> None: ...


class Directory:
    def __init__(self, root: Path) -> None:
        self._root = root

    def add(self, path: str, data: bytes) -> None:
        place = self._root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def finish(self) -> None:
        """Each file is whole once it is added."""


class Tar:
    """A stream: nothing is sought, so it can go into a pipe. No times and owners: the same log, the same bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w|")  # noqa: SIM115 - closed by `finish`

    def add(self, path: str, data: bytes) -> None:
        entry = tarfile.TarInfo(path)
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))

    def finish(self) -> None:
        self._tar.close()


def copy_log(lake: Lake, target: Target) -> Copied:
    """Tiles and entries, then the keys, and last the checkpoint: a copy that was cut short has none.

    One GET per object, AT_ONCE objects in memory.
    """
    bucket = lake.settings.bucket
    with explained("the published timeline"):
        stands = Publisher(lake.s3, bucket).published()
        if not stands.size:
            raise NotFound("the timeline has published nothing yet: there is nothing to export")
        keys: bytes = lake.s3.get_object(Bucket=bucket, Key=KEYS)["Body"].read()
    tiles = [*new_tiles(0, stands.size), *new_bundles(0, stands.size)]
    read = PublishedTiles(lake.s3, bucket).read
    total = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for start in range(0, len(tiles), AT_ONCE):
            some = tiles[start : start + AT_ONCE]
            with explained("the published tiles"):
                contents = list(pool.map(read, (tile.path for tile in some)))
            for tile, data in zip(some, contents, strict=True):
                cut = _cut(tile, data)
                total += len(cut)
                target.add(tile.path, cut)
    target.add("keys", keys)
    target.add("checkpoint", stands.note)
    target.finish()
    return Copied(stands.size, len(tiles) + 2, total + len(keys) + len(stands.note))


def _cut(tile: Tile, data: bytes) -> bytes:
    """A partial tile that was pruned is answered by the full one, which begins with it."""
    if tile.width == WIDTH:
        return data
    if tile.level != ENTRIES:
        return data[: tile.width * HASH_SIZE]
    with suppress(ProofError):
        return join_entries(split_entries(tile, data))
    try:
        return join_entries(split_entries(Tile(ENTRIES, tile.index), data)[: tile.width])
    except ProofError as error:
        raise Unverified(f"{tile.path} cannot be read: {error}", subject=tile.path) from None
