"""A lake whose bucket keeps versions, an eraser that a sequencer serves, and a search through all that is left."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.erasure import ErasureResult, leftovers
from catalog.erasure.eraser import Eraser
from infra.local.server import ApiServer
from tests.worlds.changes import World, make_world

SECRET = "Wilhelmina Ångström-Featherstonehaugh"
"""A value that nothing else has: whatever holds it, holds the row."""


def make_erasure_world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> World:
    world = make_world(server, monkeypatch)
    world.client("s3").put_bucket_versioning(Bucket=world.bucket, VersioningConfiguration={"Status": "Enabled"})
    return world


def eraser(world: World, step: Callable[[str], None] = lambda name: None) -> Eraser:
    """An eraser of another process. The sequencer serves whenever it has committed something."""
    lake = world.another()

    def after(name: str) -> None:
        step(name)
        world.caught_up()

    made: Eraser = lake.eraser
    made.step, made.patience_s = after, 20
    return made


def erase(world: World, table: str, **options: Any) -> ErasureResult:
    world.caught_up()
    return eraser(world).erase(table, **{"reason": "asked to", **options})


@dataclass(frozen=True)
class Stored:
    """One version of an object: its bytes, and every form in which a value could be read out of them."""

    key: str
    data: bytes

    def texts(self) -> Iterator[bytes]:
        yield self.data
        if self.key.endswith(".parquet"):
            yield repr(pq.read_table(pa.BufferReader(self.data)).to_pylist()).encode()
            yield repr(pq.ParquetFile(pa.BufferReader(self.data)).metadata.to_dict()).encode()
        if self.data[:4] == b"Obj\x01":
            yield from _avro_blocks(self.data)
        if self.data[:2] == b"\x1f\x8b":
            yield zlib.decompress(self.data, 31)


def stored(world: World) -> list[Stored]:
    """Every version of every object in the bucket."""
    s3 = world.client("s3", "searcher")
    found = list[Stored]()
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=world.bucket):
        for item in page.get("Versions", ()):
            response = s3.get_object(Bucket=world.bucket, Key=item["Key"], VersionId=item["VersionId"])
            found.append(Stored(item["Key"], response["Body"].read()))
    return found


def holders(world: World, *needles: bytes) -> list[str]:
    """The keys of the objects in which one of these can be read, in whatever form."""
    return sorted({each.key for each in stored(world) for text in each.texts() if any(n in text for n in needles)})


def _avro_blocks(data: bytes) -> Iterator[bytes]:
    """The blocks of an Avro file, inflated."""
    stream = io.BytesIO(data)
    stream.seek(4)
    while (count := _number(stream)) != 0:
        for _ in range(abs(count)):
            for _ in range(2):
                stream.read(_number(stream))
    marker = stream.read(16)
    while stream.tell() < len(data):
        _number(stream)
        yield zlib.decompress(stream.read(_number(stream)), -15)
        assert stream.read(16) == marker


def _number(stream: io.BytesIO) -> int:
    value, shift = 0, 0
    while True:
        (byte,) = struct.unpack("B", stream.read(1))
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1)


def age_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every object that nothing refers to counts as old."""
    monkeypatch.setattr(leftovers, "ORPHAN_AGE", timedelta(0))
