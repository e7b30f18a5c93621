"""Reading Parquet objects by the ranges a query needs, and never a footer twice.

An object of the lake never changes, so what its footer says is kept by path. A small object is read whole in one
request; of a large one the tail at first sight, and then only the asked column chunks of the asked row groups,
neighbours together in one request.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.tables.objects import TAIL_BYTES, Store

WHOLE_BYTES = 1 << 20
"""An object up to this size is read whole: a second request would cost more than the bytes it saves."""
HOLE_BYTES = 512 << 10
"""Bytes that nobody asked for are read along when a request would be saved."""
REQUEST_BYTES = 16 << 20
FOOTERS_BYTES = 64 << 20
Data: TypeAlias = bytes  # `bytes` is also the name of a count below
SMALL_BYTES = 64 << 20


@dataclass
class Traffic:
    """What one query read: requests and bytes of data files."""

    requests: int = 0
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, data: Data) -> Data:
        with self._lock:
            self.requests += 1
            self.bytes += len(data)
        return data


class Footers:
    """Footers by path, the least used forgotten first."""

    def __init__(self, budget: int = FOOTERS_BYTES) -> None:
        self._budget = budget
        self._kept: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> pq.FileMetaData | None:
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
            return found

    def keep(self, path: str, footer: pq.FileMetaData) -> None:
        with self._lock:
            if path not in self._kept:
                self._bytes += footer.serialized_size
            self._kept[path] = footer
            while self._bytes > self._budget and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].serialized_size


class SmallObjects:
    """Small objects by path, whole: data that is asked for again and again is not fetched again and again."""

    def __init__(self, store: Store, budget: int = SMALL_BYTES) -> None:
        self.store = store
        self._budget = budget
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str, length: int, traffic: Traffic) -> bytes:
        with self._lock:
            if path in self._kept:
                self._kept.move_to_end(path)
                return self._kept[path]
        data = traffic.add(self.store.get_range(path, 0, length))
        with self._lock:
            if path not in self._kept:
                self._bytes += len(data)
            self._kept[path] = data
            while self._bytes > self._budget and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return data


class ParquetObject:
    """One Parquet object: its footer, and row groups of it on request."""

    def __init__(self, objects: SmallObjects, footers: Footers, path: str, length: int, traffic: Traffic) -> None:
        store = self._store = objects.store
        self._path, self._length, self._traffic = path, length, traffic
        self._spans: list[_Span] = []
        footer = footers.get(path)
        if length <= WHOLE_BYTES:
            self._spans = [_Span.of(0, objects.get(path, length, traffic))]
        elif footer is None:
            tail = traffic.add(store.get_range(path, length - TAIL_BYTES, length))
            self._spans = [_Span.of(length - TAIL_BYTES, tail)]
        if footer is None:
            footer = pq.read_metadata(self._file())
            footers.keep(path, footer)
        self.footer = footer

    @classmethod
    def of_bytes(cls, data: bytes) -> ParquetObject:
        """An object that was read, and checked, whole."""
        made = cls.__new__(cls)
        made._spans, made._length = [_Span.of(0, data)], len(data)
        made.footer = pq.read_metadata(pa.BufferReader(data))
        return made

    def fetch(self, groups: Sequence[int], columns: Sequence[int]) -> None:
        """Asks for what is not here yet of these row groups' leaf columns, and does not wait for it: `read` does."""

        def get(start: int, end: int) -> Data:
            return self._traffic.add(self._store.get_range(self._path, start, end))

        wanted = _coalesced(self._missing(_ranges(self.footer, groups, columns)))
        if len(wanted) == 1:
            self._spans.append(_Span.of(wanted[0][0], get(*wanted[0])))
            return
        self._spans += [_Span(*span, self._store.pool.submit(get, *span).result) for span in wanted]

    def read(self, group: int, names: Sequence[str], coded: Sequence[str] = (), *, threads: bool = False) -> pa.Table:
        """The top-level columns `names` of a row group that was fetched, or is being: then this waits for it.

        Those that are `coded` come as the file has them: each word once, and a code for each row. Safe to call from
        several threads.
        """
        file = pq.ParquetFile(self._file(), metadata=self.footer, pre_buffer=False, read_dictionary=list(coded))
        return file.read_row_group(group, columns=list(names), use_threads=threads)

    def _missing(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        held = [(one.start, one.end) for one in self._spans]
        return [span for span in ranges if not any(low <= span[0] and span[1] <= high for low, high in held)]

    def _file(self) -> Any:
        return pa.PythonFile(_Spans(self._spans, self._length), mode="r")


@dataclass(frozen=True)
class _Span:
    """A part of an object that is here or on its way; `data` waits for it."""

    start: int
    end: int
    data: Callable[[], Data]

    @classmethod
    def of(cls, start: int, data: Data) -> _Span:
        return cls(start, start + len(data), lambda: data)


class _Spans(io.RawIOBase):
    """The parts of an object that were fetched, at their places. Reading elsewhere is a defect, and says so."""

    def __init__(self, spans: Sequence[_Span], length: int) -> None:
        super().__init__()
        self._spans, self._length, self._at = spans, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def size(self) -> int:
        return self._length

    def read(self, size: int | None = -1) -> bytes:
        start = self._at
        end = self._length if size is None or size < 0 else min(start + size, self._length)
        for span in self._spans:
            if span.start <= start and end <= span.end:
                self._at = end
                return memoryview(span.data())[start - span.start : end - span.start]  # type: ignore[return-value]
        raise OSError(f"bytes {start} to {end} were not fetched")


def _ranges(footer: pq.FileMetaData, groups: Sequence[int], columns: Sequence[int]) -> list[tuple[int, int]]:
    found = []
    for group in groups:
        row_group = footer.row_group(group)
        for column in columns:
            chunk = row_group.column(column)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
                start = min(start, chunk.dictionary_page_offset)
            found.append((start, start + chunk.total_compressed_size))
    return found


def _coalesced(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start - joined[-1][1] <= HOLE_BYTES and end - joined[-1][0] <= REQUEST_BYTES:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
