"""Copies the published log into a directory, or as a tar to stdout."""

from __future__ import annotations

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from catalog import Lake, NotFound, Unverified
from catalog.core.aws_errors import translate_errors
from catalog.merkle.tiles import ENTRIES, WIDTH, Tile, join_entries, new_bundles, new_tiles, split_entries
from catalog.merkle.tree import HASH_SIZE
from catalog.merkle.verify import ProofError
from catalog.timeline import KEYS_PATH, PublishedTiles, Publisher

CHUNK = 64
WORKERS = 16


@dataclass(frozen=True)
class Copied:
    size: int
    objects: int
    bytes: int


class CopyTarget(Protocol):
    def add(self, path: str, data: bytes) -> None: ...

    def finish(self) -> None: ...


class DirectoryTarget:
    def __init__(self, root: Path) -> None:
        self._root = root

    def add(self, path: str, data: bytes) -> None:
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def finish(self) -> None:
        """Nothing to do: `add` writes complete files."""


class TarTarget:
    """A tar stream for a pipe: nothing is sought. It has no times and owners, so the same log gives the same bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w|")  # noqa: SIM115 - closed by `finish`

    def add(self, path: str, data: bytes) -> None:
        entry = tarfile.TarInfo(path)
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))

    def finish(self) -> None:
        self._tar.close()


def copy_log(lake: Lake, target: CopyTarget) -> Copied:
    """Copies tiles and entry bundles, then the keys, and last the checkpoint: an interrupted copy has no checkpoint.

    One GET per object, CHUNK objects in memory.
    """
    bucket = lake.settings.bucket
    with translate_errors("the published timeline"):
        published = Publisher(lake.s3, bucket).published()
        if not published.size:
            raise NotFound("the timeline has published no checkpoint yet: commit to a table, then try again")
        keys: bytes = lake.s3.get_object(Bucket=bucket, Key=KEYS_PATH)["Body"].read()
    tiles = [*new_tiles(0, published.size), *new_bundles(0, published.size)]
    read = PublishedTiles(lake.s3, bucket).read
    total = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for start in range(0, len(tiles), CHUNK):
            chunk = tiles[start : start + CHUNK]
            with translate_errors("the published tiles"):
                contents = list(pool.map(read, (tile.path for tile in chunk)))
            for tile, data in zip(chunk, contents, strict=True):
                content = _trimmed(tile, data)
                total += len(content)
                target.add(tile.path, content)
    target.add("keys", keys)
    target.add("checkpoint", published.note)
    target.finish()
    return Copied(published.size, len(tiles) + 2, total + len(keys) + len(published.note))


def _trimmed(tile: Tile, data: bytes) -> bytes:
    """The tile's own bytes: the reader returns the full tile in place of a partial one that was pruned."""
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
