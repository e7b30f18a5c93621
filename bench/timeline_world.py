"""What the timeline's figures are taken on: a store in memory, a cloud in another process, and a log of any size."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from io import BytesIO
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.tiles import ENTRIES
from catalog.timeline import keys
from catalog.timeline.edge import Edge
from catalog.timeline.head import Head
from catalog.timeline.keyring import Keyring
from catalog.timeline.leaf import Leaf
from catalog.timeline.publish import CHECKPOINT, KEYS, PREFIX
from catalog.timeline.store import Database, Place, Writer

ORIGIN = "strandline.bench/lake"
UUID = "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d"
FIRST_MS = 1_800_000_000_000


class MemoryS3:
    """The three calls of S3 that publishing and reading need, counted."""

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


class CountedDatabase(Database):
    """Another's reads, counted: a scan counts as one per thousand rows."""

    def __init__(self, db: Database) -> None:
        super().__init__(db._place, db._handle)
        self.reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)

    def get_many(self, wanted: Any) -> list[bytes | None]:
        self.reads += len(wanted)
        return super().get_many(wanted)

    def scan(self, *span: Any, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        self.reads += 1
        for number, row in enumerate(super().scan(*span, **options), 1):
            self.reads += number % 1000 == 0
            yield row


def leaves(first: int, count: int) -> list[Leaf]:
    """Commits to one table, as a sequencer would find them."""
    return [
        Leaf(
            table="sales.orders",
            table_uuid=UUID,
            snapshot_id=5_551_234_567_890_000_000 + number,
            parent_id=5_551_234_567_890_000_000 + number - 1,
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
    """A timeline of `size` leaves, written as the sequencer writes it but without one, for its speed."""

    size: int
    batch: int = 5000
    s3: MemoryS3 = field(default_factory=MemoryS3)
    place: Place = field(default_factory=Place.in_memory)
    signer: Ed25519Signer = field(default_factory=lambda: Ed25519Signer.generate(ORIGIN))

    def __post_init__(self) -> None:
        self.db = Writer.open(self.place)
        _, note = Keyring().with_signer(self.signer, 1)
        assert note is not None
        self.db.write([(keys.KEYS, note)])
        self.s3.objects[KEYS] = note
        edge = Edge()
        for batch, first in enumerate(range(0, self.size, self.batch)):
            edge = self._add(edge, first, FIRST_MS + batch)

    def _add(self, edge: Edge, first: int, ms: int) -> Edge:
        count = min(self.batch, self.size - first)
        (model,) = leaves(first, 1)
        encoded = [_like(model, number, ms) for number in range(first, first + count)]
        edge, tiles = edge.grow(encoded)
        rows = dict[bytes, bytes]()
        for index, data in enumerate(encoded, first):
            rows[keys.leaf(index)] = data
            rows[keys.table(UUID, index)] = keys.pack(index)
            rows[keys.snapshot(5_551_234_567_890_000_000 + index, UUID)] = keys.pack(index)
        for tile, contents in tiles.items():
            self.s3.objects[PREFIX + tile.path] = contents
            if tile.level != ENTRIES:
                rows[keys.node(tile.level, tile.index)] = contents
        note = Checkpoint(ORIGIN, edge.size, edge.tree.root()).sign([self.signer])
        rows[keys.time(ms, edge.size - 1)] = b""
        rows[keys.checkpoint(edge.size)] = note
        rows[keys.HEAD] = Head(edge.size, edge.tree.root().hex(), ms, note.decode(), edge.size).encode()
        self.s3.objects[CHECKPOINT] = note
        self.db.write(rows.items())
        return edge


def _like(model: Leaf, number: int, ms: int) -> bytes:
    """The bytes of leaf `number`, by filling in the one in front: encoding a million properly takes minutes."""
    data = model.encode()
    for old, new in (
        (f'"committed_ms":{model.committed_ms}', f'"committed_ms":{FIRST_MS + number}'),
        (f'"parent_id":"{model.parent_id}"', f'"parent_id":"{5_551_234_567_890_000_000 + number - 1}"'),
        (f'"snapshot_id":"{model.snapshot_id}"', f'"snapshot_id":"{5_551_234_567_890_000_000 + number}"'),
        (f'"sequence":{model.sequence},', f'"sequence":{number},'),
        (f'"sequenced_ms":{model.sequenced_ms}', f'"sequenced_ms":{ms}'),
    ):
        data = data.replace(old.encode(), new.encode())
    return data


@contextmanager
def cloud() -> Iterator[Any]:
    """The embedded cloud's API server in a process of its own: it must not share the interpreter's lock."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # so that its end is seen here
    url = ours.recv()
    before = dict(os.environ)
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}
    try:
        yield Cloud(url, ours)
    finally:
        os.environ.clear()
        os.environ.update(before)
        ours.send(None)
        process.join(20)


@dataclass
class Cloud:
    url: str
    _pipe: Any

    def counts(self) -> Counter[str]:
        """Requests so far, by service and action."""
        self._pipe.send("counts")
        found: Counter[str] = self._pipe.recv()
        return found

    def gets(self) -> Counter[str]:
        """How often each path of S3 was read since the last call."""
        self._pipe.send("gets")
        found: Counter[str] = self._pipe.recv()
        return found

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
    seen = 0
    while (asked := pipe.recv()) is not None:
        if asked == "counts":
            pipe.send(server.log.counts())
        elif asked == "gets":
            read = server.log.since(seen, lambda one: one.service == "s3" and one.action == "GET")
            seen = server.log.mark()
            pipe.send(Counter(one.path for one in read))
        else:
            server.endpoint.client("s3", "embedded-cloud").create_bucket(Bucket=asked)
            pipe.send(None)
    server.stop()
