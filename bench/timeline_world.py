"""The fixtures of the timeline benchmarks: S3 in memory, a cloud in another process, and a log of any size."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import md5
from io import BytesIO
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.prefix_map import PrefixMap
from catalog.merkle.tiles import ENTRIES
from catalog.timeline import CHECKPOINT_PATH, KEYS_PATH, TIMELINE_PREFIX, Keyring, Leaf, StoreLocation
from catalog.timeline.log import store_keys
from catalog.timeline.log.frontier import Frontier
from catalog.timeline.log.head import Head
from catalog.timeline.log.store import Store, StoreWriter
from catalog.timeline.log.table_map import TableChanges, TableMap

ORIGIN = "strandline.bench/lake"
UUID = "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d"
FIRST_MS = 1_800_000_000_000


class MemoryS3:
    """S3's PutObject and GetObject in memory, counted."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def put_object(self, *, Key: str, Body: bytes, IfNoneMatch: str = "", IfMatch: str = "", **_: Any) -> Any:  # noqa: N803
        with self._lock:
            self.counts["PUT"] += 1
            if IfNoneMatch and Key in self.objects:
                raise _refusal("PreconditionFailed", 412)
            self.objects[Key] = Body
        return {"ETag": md5(Body).hexdigest()}

    def get_object(self, *, Key: str, **_: Any) -> Any:  # noqa: N803
        with self._lock:
            self.counts["GET"] += 1
        if Key not in self.objects:
            raise _refusal("NoSuchKey", 404)
        data = self.objects[Key]
        return {"Body": BytesIO(data), "ETag": md5(data).hexdigest()}


def _refusal(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "S3")


class CountedDatabase(Store):
    """A store that counts its reads; a scan counts as one, plus one for each thousand rows."""

    def __init__(self, db: Store) -> None:
        super().__init__(db._location, db._handle)
        self.reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)

    def get_many(self, keys: Any) -> list[bytes | None]:
        self.reads += len(keys)
        return super().get_many(keys)

    def scan(self, *span: Any, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        self.reads += 1
        for number, row in enumerate(super().scan(*span, **options), 1):
            self.reads += number % 1000 == 0
            yield row


def leaves(first: int, count: int) -> list[Leaf]:
    """Leaves of commits to one table."""
    return [
        Leaf(
            table="sales.orders",
            table_uuid=UUID,
            snapshot_id=5_551_234_567_890_000_000 + number,
            parent_id=5_551_234_567_890_000_000 + number - 1 if number else None,
            sequence=number,
            committed_ms=FIRST_MS + number,
            sequenced_ms=FIRST_MS,
            operation="append",
            ref="main",
            schema_sha256="a1" * 32,
            metadata_sha256="b2" * 32,
            manifest_list_sha256="c3" * 32,
            content_root="d4" * 32,
            content_count=2,
        )
        for number in range(first, first + count)
    ]


@dataclass
class Log:
    """A timeline of `size` leaves, written in the sequencer's format but without a sequencer, which is faster."""

    size: int
    batch: int = 5000
    s3: MemoryS3 = field(default_factory=MemoryS3)
    location: StoreLocation = field(default_factory=StoreLocation.in_memory)
    signer: Ed25519Signer = field(default_factory=lambda: Ed25519Signer.generate(ORIGIN))

    def __post_init__(self) -> None:
        self.db = StoreWriter.open(self.location)
        _, note = Keyring().with_signer(self.signer, 1)
        assert note is not None
        self.db.write([(store_keys.KEYS, note)])
        self.s3.objects[KEYS_PATH] = note
        frontier = Frontier()
        self._tables = TableMap(PrefixMap(), {})
        for batch, first in enumerate(range(0, self.size, self.batch)):
            frontier = self._add(frontier, first, FIRST_MS + batch)

    def _add(self, frontier: Frontier, first: int, ms: int) -> Frontier:
        count = min(self.batch, self.size - first)
        (template,) = leaves(first, 1) if first else leaves(1, 1)
        encoded = [_like(template, number, ms) for number in range(first, first + count)]
        if not first:
            encoded[0] = replace(leaves(0, 1)[0], sequenced_ms=ms).encode()
        rows = dict[bytes, bytes]()
        encoded[-1] = self._with_map(first + count - 1, encoded[-1], rows)
        frontier, tiles = frontier.grow(encoded)
        for index, data in enumerate(encoded, first):
            rows[store_keys.leaf(index)] = data
            rows[store_keys.table(UUID, index)] = store_keys.pack(index)
            rows[store_keys.snapshot(5_551_234_567_890_000_000 + index, UUID)] = store_keys.pack(index)
        for tile, contents in tiles.items():
            self.s3.objects[TIMELINE_PREFIX + tile.path] = contents
            if tile.level != ENTRIES:
                rows[store_keys.node(tile.level, tile.index)] = contents
        note = Checkpoint(ORIGIN, frontier.size, frontier.tree.root()).sign([self.signer])
        rows[store_keys.time(ms, frontier.size - 1)] = b""
        rows[store_keys.checkpoint(frontier.size)] = note
        rows[store_keys.HEAD] = Head(
            frontier.size, frontier.tree.root().hex(), ms, note.decode(), frontier.size
        ).encode()
        self.s3.objects[CHECKPOINT_PATH] = note
        self.db.write(rows.items())
        return frontier

    def _with_map(self, index: int, entry: bytes, rows: dict[bytes, bytes]) -> bytes:
        """The batch's last leaf with the root of the map of tables after it, whose rows are added."""
        leaf = Leaf.decode(entry)
        changes = TableChanges(self._tables)
        changes.add(index, leaf)
        before, self._tables = self._tables, self._tables.with_changes(changes)
        rows |= {store_keys.table_entry(key): value for key, value in self._tables.map.items()}
        rows |= {store_keys.map_node(hash_): node for hash_, node in self._tables.map.new_nodes(before.map)}
        return replace(leaf, map_root=self._tables.root).encode()


def _like(template: Leaf, number: int, ms: int) -> bytes:
    """The bytes of leaf `number`, by replacing the values of `template`: encoding a million leaves takes minutes."""
    data = template.encode()
    for old, new in (
        (f'"committed_ms":{template.committed_ms}', f'"committed_ms":{FIRST_MS + number}'),
        (f'"parent_id":"{template.parent_id}"', f'"parent_id":"{5_551_234_567_890_000_000 + number - 1}"'),
        (f'"snapshot_id":"{template.snapshot_id}"', f'"snapshot_id":"{5_551_234_567_890_000_000 + number}"'),
        (f'"sequence":{template.sequence},', f'"sequence":{number},'),
        (f'"sequenced_ms":{template.sequenced_ms}', f'"sequenced_ms":{ms}'),
    ):
        data = data.replace(old.encode(), new.encode())
    return data


@contextmanager
def cloud() -> Iterator[Any]:
    """The embedded cloud's API server in its own process, so that it does not share the interpreter's lock."""
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=_serve, args=(child_end,), daemon=True)
    process.start()
    child_end.close()  # so that `recv` raises EOFError if the process exits
    url = parent_end.recv()
    before = dict(os.environ)
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}
    try:
        yield Cloud(url, parent_end)
    finally:
        os.environ.clear()
        os.environ.update(before)
        parent_end.send(None)
        process.join(20)


@dataclass
class Cloud:
    url: str
    _pipe: Any

    def counts(self) -> Counter[str]:
        """Requests so far, by service and action."""
        self._pipe.send("counts")
        counts: Counter[str] = self._pipe.recv()
        return counts

    def gets(self) -> Counter[str]:
        """S3 GETs by path since the last call."""
        self._pipe.send("gets")
        gets: Counter[str] = self._pipe.recv()
        return gets

    def bucket(self) -> str:
        name = f"lake-{uuid4().hex[:12]}"
        self._pipe.send(name)
        self._pipe.recv()
        return name


def _serve(pipe: Any) -> None:
    from infra.local.server import ApiServer

    server = ApiServer()
    server.start()
    pipe.send(server.endpoint.url)
    mark = 0
    while (command := pipe.recv()) is not None:
        if command == "counts":
            pipe.send(server.log.counts())
        elif command == "gets":
            requests = server.log.since(mark, lambda request: request.service == "s3" and request.action == "GET")
            mark = server.log.mark()
            pipe.send(Counter(request.path for request in requests))
        else:
            server.endpoint.client("s3", "embedded-cloud").create_bucket(Bucket=command)
            pipe.send(None)
    server.stop()
