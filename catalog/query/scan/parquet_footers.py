"""Opens Parquet objects for DuckDB: footers from a cache by path, small objects whole, other ranges on request."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.iceberg import TAIL_BYTES
from catalog.query.scan import parquet_objects
from catalog.query.scan.lake_files import LakeObject
from catalog.query.scan.object_ranges import Buffer
from catalog.query.scan.parquet_objects import SmallObjects, Traffic

FOOTER_CACHE_BYTES = 64 << 20
_TRAILER_BYTES = 8
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Footer:
    """The end of a Parquet object: its metadata, from offset `start` on."""

    start: int
    data: bytes

    @cached_property
    def physical(self) -> pa.Schema:
        return pq.read_metadata(pa.BufferReader(_MAGIC + self.data)).schema.to_arrow_schema()


class FooterCache:
    """Footers by path; evicts the least recently used."""

    def __init__(self, budget: int = FOOTER_CACHE_BYTES) -> None:
        self._budget, self._bytes = budget, 0
        self._cached: OrderedDict[str, Footer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> Footer | None:
        with self._lock:
            if path in self._cached:
                self._cached.move_to_end(path)
            return self._cached.get(path)

    def put(self, path: str, footer: Footer) -> Footer:
        with self._lock:
            if path not in self._cached:
                self._bytes += len(footer.data)
            self._cached[path] = footer
            while self._bytes > self._budget and len(self._cached) > 1:
                self._bytes -= len(self._cached.popitem(last=False)[1].data)
        return footer


class ParquetOpener:
    """Opens the objects of one query. Counts its requests."""

    def __init__(self, objects: SmallObjects, footers: FooterCache, traffic: Traffic) -> None:
        self._objects, self._footers, self._traffic = objects, footers, traffic

    def open(self, path: str, length: int) -> tuple[LakeObject, pa.Schema]:
        """The object and its Arrow schema. At most one request, none if the footer is cached."""
        footer = self._footers.get(path)
        if length <= parquet_objects.MAX_WHOLE_BYTES:
            data = self._objects.get(path, length, self._traffic)
            footer = footer or self._footers.put(path, _footer(data, 0, path))
            return _whole(path, data), footer.physical
        tail, start = b"", length
        if footer is None:
            start = max(length - TAIL_BYTES, 0)
            tail = bytes(self._get(path, start, length))
            needed = length - _TRAILER_BYTES - _footer_length(tail, path)
            if needed < start:
                tail, start = bytes(self._get(path, needed, length)), needed
            footer = self._footers.put(path, _footer(tail, start, path))
        known = ((start, tail), (footer.start, footer.data)) if tail else ((footer.start, footer.data),)

        def read(first: int, end: int) -> Buffer:
            for offset, data in known:
                if offset <= first and end <= offset + len(data):
                    return memoryview(data)[first - offset : end - offset]
            return self._get(path, first, end)

        return LakeObject(path, length, read), footer.physical

    def _get(self, path: str, start: int, end: int) -> Buffer:
        return self._traffic.add(self._objects.store.get_buffer(path, start, end))


def _whole(path: str, data: bytes) -> LakeObject:
    view = memoryview(data)
    return LakeObject(path, len(data), lambda start, end: view[start:end])


def _footer_length(tail: bytes, path: str) -> int:
    if len(tail) < _TRAILER_BYTES or tail[-4:] != _MAGIC:
        raise OSError(f"{path} is not a Parquet file")
    return int.from_bytes(tail[-8:-4], "little")


def _footer(data: bytes, offset: int, path: str) -> Footer:
    start = len(data) - _TRAILER_BYTES - _footer_length(data, path)
    if start < 0:
        raise OSError(f"{path} is not a Parquet file")
    return Footer(offset + start, data[start:])
