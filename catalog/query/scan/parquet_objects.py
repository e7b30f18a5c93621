"""Reads the byte ranges of Parquet objects that a query needs.

The lake's objects never change, so footers are cached by path. A small object is read whole in one request; of a large
one its tail, unless the footer is cached, and then only the needed column chunks of the needed row groups, adjacent
chunks in one request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.core.range_reader import RangeReader
from catalog.iceberg import TAIL_BYTES
from catalog.query.scan.object_ranges import Buffer, ObjectRanges

MAX_WHOLE_BYTES = 1 << 20
"""Objects up to this size are read whole: a second request would cost more than the bytes it saves."""
MAX_GAP_BYTES = 512 << 10
"""Gaps up to this size between ranges are read along, to save a request."""
MAX_REQUEST_BYTES = 16 << 20
FOOTER_CACHE_BYTES = 64 << 20
Data: TypeAlias = bytes  # `bytes` is also the name of a count below
Requested = TypeVar("Requested", Data, Buffer)
OBJECT_CACHE_BYTES = 64 << 20


@dataclass
class Traffic:
    """The requests for data files that one query made, and their bytes."""

    requests: int = 0
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, data: Requested) -> Requested:
        with self._lock:
            self.requests += 1
            self.bytes += len(data)
        return data


class Footers:
    """A cache of footers by path; evicts the least recently used."""

    def __init__(self, budget: int = FOOTER_CACHE_BYTES) -> None:
        self._budget = budget
        self._cached: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> pq.FileMetaData | None:
        with self._lock:
            footer = self._cached.get(path)
            if footer is not None:
                self._cached.move_to_end(path)
            return footer

    def put(self, path: str, footer: pq.FileMetaData) -> None:
        with self._lock:
            if path not in self._cached:
                self._bytes += footer.serialized_size
            self._cached[path] = footer
            while self._bytes > self._budget and len(self._cached) > 1:
                self._bytes -= self._cached.popitem(last=False)[1].serialized_size


class SmallObjects:
    """A cache of whole small objects by path; evicts the least recently used."""

    def __init__(self, store: ObjectRanges, budget: int = OBJECT_CACHE_BYTES) -> None:
        self.store = store
        self._budget = budget
        self._cached: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str, length: int, traffic: Traffic) -> bytes:
        with self._lock:
            if path in self._cached:
                self._cached.move_to_end(path)
                return self._cached[path]
        data = traffic.add(self.store.get_range(path, 0, length))
        with self._lock:
            if path not in self._cached:
                self._bytes += len(data)
            self._cached[path] = data
            while self._bytes > self._budget and len(self._cached) > 1:
                self._bytes -= len(self._cached.popitem(last=False)[1])
        return data


class ParquetObject:
    """One Parquet object: its footer, and row groups that are fetched and then read."""

    def __init__(self, objects: SmallObjects, footers: Footers, path: str, length: int, traffic: Traffic) -> None:
        store = self._store = objects.store
        self._path, self._length, self._traffic = path, length, traffic
        self._spans: list[_Span] = []
        footer = footers.get(path)
        if length <= MAX_WHOLE_BYTES:
            self._spans = [_Span.of(0, objects.get(path, length, traffic))]
        elif footer is None:
            tail = traffic.add(store.get_range(path, length - TAIL_BYTES, length))
            self._spans = [_Span.of(length - TAIL_BYTES, tail)]
        if footer is None:
            footer = pq.read_metadata(self._file())
            footers.put(path, footer)
        self.footer = footer

    @classmethod
    def of_bytes(cls, data: bytes) -> ParquetObject:
        """An object that is already in memory, such as a verified one."""
        parquet = cls.__new__(cls)
        parquet._spans, parquet._length = [_Span.of(0, data)], len(data)
        parquet.footer = pq.read_metadata(pa.BufferReader(data))
        return parquet

    def fetch(self, groups: Sequence[int], columns: Sequence[int]) -> None:
        """Requests the missing ranges of these row groups' leaf columns.

        Waits only for a single range; `read` waits for several, which are fetched in parallel.
        """

        def get(start: int, end: int) -> Data:
            return self._traffic.add(self._store.get_range(self._path, start, end))

        ranges = _coalesced(self._missing(_ranges(self.footer, groups, columns)))
        if len(ranges) == 1:
            self._spans.append(_Span.of(ranges[0][0], get(*ranges[0])))
            return
        self._spans += [_Span(*range_, self._store.store.pool.submit(get, *range_).result) for range_ in ranges]

    def read(
        self, group: int, names: Sequence[str], dictionary: Sequence[str] = (), *, threads: bool = False
    ) -> pa.Table:
        """The top-level columns `names` of a row group after `fetch`; waits for ranges that are still being fetched.

        `dictionary`: the columns to return dictionary-encoded, as the file stores them. Safe to call from several
        threads.
        """
        file = pq.ParquetFile(self._file(), metadata=self.footer, pre_buffer=False, read_dictionary=list(dictionary))
        return file.read_row_group(group, columns=list(names), use_threads=threads)

    def _missing(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [
            (start, end)
            for start, end in ranges
            if not any(span.start <= start and end <= span.end for span in self._spans)
        ]

    def _file(self) -> Any:
        return pa.PythonFile(RangeReader(self._length, self._fetched), mode="r")

    def _fetched(self, start: int, end: int) -> bytes:
        """OSError for a range that was not fetched, which is a defect."""
        for span in self._spans:
            if span.start <= start and end <= span.end:
                return memoryview(span.data())[start - span.start : end - span.start]  # type: ignore[return-value]
        raise OSError(f"bytes {start} to {end} were not fetched")


@dataclass(frozen=True)
class _Span:
    """A range of an object that was fetched or is being fetched; `data` waits for its bytes."""

    start: int
    end: int
    data: Callable[[], Data]

    @classmethod
    def of(cls, start: int, data: Data) -> _Span:
        return cls(start, start + len(data), lambda: data)


def _ranges(footer: pq.FileMetaData, groups: Sequence[int], columns: Sequence[int]) -> list[tuple[int, int]]:
    ranges = []
    for group in groups:
        row_group = footer.row_group(group)
        for column in columns:
            chunk = row_group.column(column)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
                start = min(start, chunk.dictionary_page_offset)
            ranges.append((start, start + chunk.total_compressed_size))
    return ranges


def _coalesced(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    coalesced: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if coalesced and start - coalesced[-1][1] <= MAX_GAP_BYTES and end - coalesced[-1][0] <= MAX_REQUEST_BYTES:
            coalesced[-1] = (coalesced[-1][0], max(coalesced[-1][1], end))
        else:
            coalesced.append((start, end))
    return coalesced
