"""The timeline's public form in S3, under `timeline/`: tiles and bundles, the checkpoint, the key list.

Tiles are written once (create-if-absent) and must be what is there already if they are there. The checkpoint
is replaced by compare-and-swap and only ever grows, so a publisher that slept through a change of writer can
do no harm. Old checkpoints stay in the database (`checkpoint/<size>`), where they cost no request of their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from catalog import places
from catalog.errors import Conflict, NotFound, Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import NoteError
from catalog.merkle.tiles import WIDTH, Tile, new_bundles, new_tiles

PREFIX = places.TIMELINE
CHECKPOINT = PREFIX + "checkpoint"
KEYS = PREFIX + "keys"
TEXTS = (CHECKPOINT, KEYS)

FOR_EVER = "public, max-age=31536000, immutable"
# A partial tile is as immutable, but pruned once its full one is there: nobody should find it in a cache for
# long.
FOR_A_WHILE = "public, max-age=3600, immutable"
FRESH = "no-cache"

WORKERS = 8


@dataclass(frozen=True, slots=True)
class Published:
    """The checkpoint that stands in S3. An empty etag: there is none yet."""

    size: int = 0
    note: bytes = b""
    etag: str = ""


class Publisher:
    """Brings what the database holds into public form. Running it twice is running it once."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket

    def published(self) -> Published:
        """The checkpoint as it stands: one GET."""
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=CHECKPOINT)
        except ClientError as error:
            if _status(error) == 404 and _code(error) != "NoSuchBucket":
                return Published()
            raise
        note: bytes = answer["Body"].read()
        return Published(size_of(note), note, answer["ETag"])

    def publish(
        self, stands: Published, size: int, note: bytes, contents: Callable[[Tile], bytes], keys: bytes | None
    ) -> Published:
        """Publishes the tree of `size`, whose checkpoint is `note`, over the one that stands.

        Tiles and bundles first, all together, then the key list if it changed, then the checkpoint: whoever
        sees a checkpoint can fetch all that it covers. A crash in between leaves objects that no checkpoint
        speaks of yet; the next run finds them there, with the same bytes, and goes on.
        """
        tiles = [*new_tiles(stands.size, size), *new_bundles(stands.size, size)]
        with ThreadPoolExecutor(min(WORKERS, len(tiles) or 1)) as pool:
            list(pool.map(lambda tile: self._create(tile, contents(tile)), tiles))
        if keys is not None:
            self._put(KEYS, keys, FRESH)
        return self._swap(stands, Published(size, note))

    def prune(self, first: int, size: int) -> int:
        """Removes the partial tiles and bundles that full ones, published under `size`, have replaced.

        `first`: all below this size is pruned already. A LIST for each full tile and bundle since. Gives the
        size up to which all is pruned now. Only level 0 and bundles grow often enough to matter, the rest
        goes along.
        """
        done = size - size % WIDTH
        for tile in [*new_tiles(first, done), *new_bundles(first, done)]:
            if tile.width == WIDTH:
                self._remove_below(f"{PREFIX}{tile.path}.p/")
        return done

    def _create(self, tile: Tile, data: bytes) -> None:
        key = PREFIX + tile.path
        try:
            self._put(key, data, FOR_EVER if tile.width == WIDTH else FOR_A_WHILE, IfNoneMatch="*")
        except ClientError as error:
            if _status(error) != 412:
                raise
            # There already: a run before this one got so far, or the answer to our own first try was lost.
            if self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read() != data:
                raise Unverified(
                    f"s3://{self._bucket}/{key} is published with other contents than the timeline holds: "
                    "it was altered, or the database is not the one it was published from",
                    subject=key,
                ) from None

    def _swap(self, stands: Published, ours: Published) -> Published:
        condition = {"IfMatch": stands.etag} if stands.etag else {"IfNoneMatch": "*"}
        try:
            etag = self._put(CHECKPOINT, ours.note, FRESH, **condition)
            return Published(ours.size, ours.note, etag)
        except ClientError as error:
            if _status(error) not in (404, 409, 412):
                raise
        now = self.published()
        if now.size >= ours.size:
            # Our own, whose answer was lost, or a successor's, which covers ours.
            return now
        raise Conflict(f"the checkpoint of size {now.size} was published meanwhile; run again")

    def _put(self, key: str, data: bytes, cache: str, **condition: str) -> str:
        answer = self._s3.put_object(
            Bucket=self._bucket,
            Key=key,
            Body=data,
            CacheControl=cache,
            ContentType="text/plain; charset=utf-8" if key in TEXTS else "application/octet-stream",
            **condition,
        )
        return str(answer["ETag"])

    def _remove_below(self, prefix: str) -> None:
        found = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=prefix).get("Contents", [])
        if found:
            objects = [{"Key": item["Key"]} for item in found]
            self._s3.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})


@dataclass(frozen=True)
class PublishedTiles:
    """What anybody reads: merkle.tiles.ReadTiles over S3. A partial tile that was pruned is read in full."""

    s3: Any
    bucket: str

    def __call__(self, paths: Sequence[str]) -> list[bytes]:
        if len(paths) == 1:
            return [self.read(paths[0])]
        with ThreadPoolExecutor(WORKERS) as pool:
            return list(pool.map(self.read, paths))

    def read(self, path: str) -> bytes:
        try:
            return self._get(path)
        except NotFound:
            tile = Tile.parse(path)
            if tile.width == WIDTH:
                raise
            return self._get(Tile(tile.level, tile.index).path)

    def _get(self, path: str) -> bytes:
        try:
            data: bytes = self.s3.get_object(Bucket=self.bucket, Key=PREFIX + path)["Body"].read()
        except ClientError as error:
            if _status(error) != 404:
                raise
            raise NotFound(f"s3://{self.bucket}/{PREFIX}{path} does not exist", subject=path) from None
        return data


def size_of(note: bytes) -> int:
    """The size a checkpoint states, whoever signed it; Unverified when it is none."""
    try:
        return Checkpoint.parse(note.decode().partition("\n\n")[0] + "\n").size
    except (NoteError, UnicodeDecodeError) as error:
        raise Unverified(f"{CHECKPOINT} is not a checkpoint: {error}", subject=CHECKPOINT) from None


def _status(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])
