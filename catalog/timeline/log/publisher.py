"""The published timeline in S3, under `timeline/`: tiles and bundles, the checkpoint, the key list.

Tiles are created once, with a conditional PUT; one that exists already must have the same contents. The checkpoint is
replaced by compare-and-swap and its size only grows, so a publisher that was suspended while another sequencer took
over does no harm. Old checkpoints stay in the database (`checkpoint/<size>`), where they cost no request of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, lost_race
from catalog.core.errors import Conflict, NotFound, Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import NoteError
from catalog.merkle.tiles import WIDTH, Tile, hash_reader, new_bundles, new_tiles
from catalog.merkle.tree import consistency_proof
from catalog.timeline.log.feeder import Feeder

TIMELINE_PREFIX = s3_layout.TIMELINE
CHECKPOINT_PATH = TIMELINE_PREFIX + "checkpoint"
KEYS_PATH = TIMELINE_PREFIX + "keys"
TEXTS = (CHECKPOINT_PATH, KEYS_PATH)

CACHE_IMMUTABLE = "public, max-age=31536000, immutable"
# A partial tile is immutable, too, but is deleted once the full tile is published, so caches keep it briefly.
CACHE_BRIEFLY = "public, max-age=3600, immutable"
CACHE_NEVER = "no-cache"

WORKERS = 8
SWAPS = 4
"""How often the checkpoint is written at most while witnesses add cosignatures to the previous one."""


@dataclass(frozen=True, slots=True)
class PublishedCheckpoint:
    """The checkpoint object in S3. The default values: there is none yet."""

    size: int = 0
    note: bytes = b""
    etag: str = ""


class Publisher:
    """Publishes the tree in the database. Idempotent. With a feeder, witnesses cosign each checkpoint before."""

    def __init__(self, s3: Any, bucket: str, feeder: Feeder | None = None) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._feeder = feeder

    def published(self) -> PublishedCheckpoint:
        """The published checkpoint: one GET."""
        try:
            response = self._s3.get_object(Bucket=self._bucket, Key=CHECKPOINT_PATH)
        except ClientError as error:
            if is_missing(error):
                return PublishedCheckpoint()
            raise
        note: bytes = response["Body"].read()
        return PublishedCheckpoint(size_of(note), note, response["ETag"])

    def publish(
        self,
        current: PublishedCheckpoint,
        size: int,
        note: bytes,
        contents: Callable[[Tile], bytes],
        keys: bytes | None,
    ) -> PublishedCheckpoint:
        """Publishes the tree of `size`, whose checkpoint is `note`, in place of the current one.

        Writes tiles and bundles in parallel, then the key list if it changed, then the checkpoint: so everything that
        a published checkpoint covers can be fetched. A crash in between leaves objects that no checkpoint covers yet;
        the next run finds them with the same bytes and continues. Witnesses cosign the checkpoint while the tiles are
        written: it is durable and signed, so what they saw is published by the next run, if not by this one. For a
        checkpoint that is published already, only cosignatures that it lacks are added.
        """
        tiles = [*new_tiles(current.size, size), *new_bundles(current.size, size)]
        with ThreadPoolExecutor(min(WORKERS, len(tiles) or 1)) as pool:
            written = pool.map(lambda tile: self._create(tile, contents(tile)), tiles)
            if self._feeder is not None:
                read = hash_reader(size, lambda paths: [contents(Tile.parse(path)) for path in paths])
                note = self._feeder.cosign(note, current.note, lambda old: consistency_proof(old, size, read))
            list(written)
        if keys is not None:
            self._put(KEYS_PATH, keys, CACHE_NEVER)
        if current.size == size and note == current.note:
            return current
        return self._swap(current, PublishedCheckpoint(size, note))

    def lacks_cosignatures(self, current: PublishedCheckpoint) -> bool:
        """Whether to publish the current checkpoint again: a witness missed it, and may be asked once more."""
        return bool(current.size and self._feeder is not None and self._feeder.lacks(current.note))

    def prune(self, first: int, size: int) -> int:
        """Deletes the partial tiles and bundles that full ones have replaced in the published tree of `size`.

        `first`: the size up to which they have been deleted before. Returns the size up to which they are deleted
        now. Costs one LIST per full tile and bundle since, and one DELETE where there are partial ones.
        """
        full = size - size % WIDTH
        for tile in [*new_tiles(first, full), *new_bundles(first, full)]:
            if tile.width == WIDTH:
                self._delete_prefix(f"{TIMELINE_PREFIX}{tile.path}.p/")
        return full

    def _create(self, tile: Tile, data: bytes) -> None:
        key = TIMELINE_PREFIX + tile.path
        try:
            self._put(key, data, CACHE_IMMUTABLE if tile.width == WIDTH else CACHE_BRIEFLY, IfNoneMatch="*")
        except ClientError as error:
            if not lost_race(error):
                raise
            # It exists: an earlier run wrote it, or the response to our own first attempt was lost.
            if self._existing(key) != data:
                raise Unverified(
                    f"s3://{self._bucket}/{key} is published with other contents than the timeline's database has: "
                    "the object was altered, or it was published from another database",
                    subject=key,
                ) from None

    def _existing(self, key: str) -> bytes:
        """The object that made a conditional PUT fail; Conflict if that other PUT is not finished, or failed."""
        try:
            data: bytes = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        except ClientError as error:
            if not is_missing(error):
                raise
            raise Conflict(f"{key} is being published by another writer; run again", subject=key) from None
        return data

    def _swap(self, current: PublishedCheckpoint, new: PublishedCheckpoint) -> PublishedCheckpoint:
        """Replaces the current checkpoint by the new one. Returns the one that is published afterwards."""
        for _ in range(SWAPS):
            condition = {"IfMatch": current.etag} if current.etag else {"IfNoneMatch": "*"}
            try:
                etag = self._put(CHECKPOINT_PATH, new.note, CACHE_NEVER, **condition)
                return PublishedCheckpoint(new.size, new.note, etag)
            except ClientError as error:
                if not (lost_race(error) or is_missing(error)):
                    raise
            published = self.published()
            if published.size > new.size:  # from the sequencer that took over; it covers ours
                return published
            if published.size == new.size:
                if text_of(published.note) == text_of(new.note):  # our own: the response to the PUT was lost
                    return published
                raise Unverified(
                    f"the published checkpoint of size {published.size} does not have the root of the timeline",
                    subject=CHECKPOINT_PATH,
                )
            if not published.size or text_of(published.note) != text_of(current.note):
                break
            # The same checkpoint, to which a witness has added a cosignature since.
            current = published
        raise Conflict(f"another checkpoint, of size {published.size}, was published at the same time; run again")

    def _put(self, key: str, data: bytes, cache: str, **condition: str) -> str:
        response = self._s3.put_object(
            Bucket=self._bucket,
            Key=key,
            Body=data,
            CacheControl=cache,
            ContentType="text/plain; charset=utf-8" if key in TEXTS else "application/octet-stream",
            **condition,
        )
        return str(response["ETag"])

    def _delete_prefix(self, prefix: str) -> None:
        listed = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=prefix).get("Contents", [])
        if listed:
            objects = [{"Key": item["Key"]} for item in listed]
            self._s3.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})


@dataclass(frozen=True)
class PublishedTiles:
    """The published tiles: merkle.tiles.ReadTiles over S3. If a partial tile was pruned, the full one is returned."""

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
            data: bytes = self.s3.get_object(Bucket=self.bucket, Key=TIMELINE_PREFIX + path)["Body"].read()
        except ClientError as error:
            if not is_missing(error, or_bucket=True):
                raise
            raise NotFound(f"s3://{self.bucket}/{TIMELINE_PREFIX}{path} does not exist", subject=path) from None
        return data


def size_of(note: bytes) -> int:
    """The size that a checkpoint states, with signatures unchecked; Unverified when it is not a checkpoint."""
    try:
        return Checkpoint.parse(text_of(note)).size
    except NoteError as error:
        raise Unverified(f"{CHECKPOINT_PATH} is not a checkpoint: {error}", subject=CHECKPOINT_PATH) from None


def text_of(note: bytes) -> str:
    """The signed text of a note. Notes with the same text are the same checkpoint: witnesses only add cosignatures."""
    try:
        return note.decode().rpartition("\n\n")[0] + "\n"
    except UnicodeDecodeError as error:
        raise Unverified(f"{CHECKPOINT_PATH} is not a checkpoint: {error}", subject=CHECKPOINT_PATH) from None
