"""pyiceberg's FileIO over S3, with a digest of every object that a commit wrote.

Sends each object from memory in one request, when its stream is closed; never opens a local file.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from hashlib import sha256
from types import TracebackType
from typing import NamedTuple

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from catalog.core.range_reader import RangeReader
from catalog.iceberg.object_store import CACHED_SUFFIXES, ObjectStore, open_object_store

logger = logging.getLogger(__name__)

# Writes in flight hold their bytes in memory: beyond this the writer waits for all of them.
IN_FLIGHT_BYTES = 256 << 20


class WrittenObject(NamedTuple):
    """One object that was written, as an attestation lists it. The digest is SHA-256 in hex."""

    path: str
    length: int
    sha256: str


class ObjectIO(FileIO):
    """pyiceberg's FileIO over S3, usable as `py-io-impl`. An object is sent when its output stream is closed."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self.store = open_object_store(properties)

    def new_input(self, location: str) -> InputFile:
        return _Input(self.store, location)

    def new_output(self, location: str) -> OutputFile:
        return _Output(self.store, location, self.send)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.store.delete([location if isinstance(location, str) else location.location])

    def send(self, path: str, data: bytes) -> None:
        self.store.put(path, data)


class CommitIO(ObjectIO):
    """The writes of one attempt at a commit: sent in parallel, with a record of each.

    No object is reachable until the catalog points to it, so the writes may finish in any order; but `publish` must
    return before the catalog's compare-and-swap.
    """

    def __init__(self, parent: ObjectIO) -> None:
        FileIO.__init__(self, parent.properties)
        self.store = parent.store
        self.published = False
        """Whether the catalog may refer to the written objects."""
        self._writes: list[Future[WrittenObject]] = []
        self._inherited: list[WrittenObject] = []
        self._kept: set[str] = set()
        self._in_flight = 0

    def inherit(self, written: Iterable[WrittenObject]) -> None:
        """Counts an earlier attempt's objects as written by this one."""
        self._inherited += written

    def keep(self, paths: Iterable[str]) -> None:
        """Exempts these objects from `discard`: the next attempt may use them."""
        self._kept.update(paths)

    def send(self, path: str, data: bytes) -> None:
        self._in_flight += len(data)
        self._writes.append(self.store.pool.submit(self._write, path, data))
        if self._in_flight > IN_FLIGHT_BYTES:
            self.wait()

    def wait(self) -> list[WrittenObject]:
        """Waits for every write, and returns all objects written so far. Raises the first error of a write."""
        written = [*self._inherited, *(write.result() for write in self._writes)]
        self._in_flight = 0
        return written

    def publish(self) -> None:
        """Waits for every write. Call it just before the compare-and-swap is sent."""
        self.wait()
        self.published = True

    def discard(self) -> None:
        """Deletes the written objects. Only for attempts that certainly were not, and cannot be, committed.

        Best effort: nothing refers to an object that could not be deleted.
        """
        paths = [written.path for written in self._inherited]
        paths += [write.result().path for write in self._writes if write.exception() is None]
        try:
            self.store.delete([path for path in paths if path not in self._kept])
        except (ClientError, BotoCoreError) as error:
            logger.warning("objects of a failed commit remain", extra={"count": len(paths), "error": str(error)})

    def _write(self, path: str, data: bytes) -> WrittenObject:
        written = WrittenObject(path, len(data), sha256(data).hexdigest())
        self.store.put(path, data)
        return written


class _Input(InputFile):
    def __init__(self, store: ObjectStore, location: str) -> None:
        super().__init__(location)
        self._store = store

    def __len__(self) -> int:
        if self.location.endswith(CACHED_SUFFIXES):
            return len(self._store.get(self.location))
        return self._store.get_tail(self.location)[1]

    def exists(self) -> bool:
        try:
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable: bool = True) -> InputStream:
        if self.location.endswith(CACHED_SUFFIXES):
            return io.BytesIO(self._store.get(self.location))
        return _open_ranges(self._store, self.location)


def _open_ranges(store: ObjectStore, path: str) -> InputStream:
    """An object read by ranges. The first request gets its tail, which is all of a small object."""
    tail, length = store.get_tail(path)
    tail_start = length - len(tail)

    def fetch(start: int, end: int) -> bytes:
        if start >= tail_start:
            return tail[start - tail_start : end - tail_start]
        return store.get_range(path, start, end)

    return RangeReader(length, fetch)


class _Output(OutputFile):
    def __init__(self, store: ObjectStore, location: str, send: Callable[[str, bytes], None]) -> None:
        super().__init__(location)
        self._store, self._send, self.length = store, send, 0

    def __len__(self) -> int:
        return self.length

    def exists(self) -> bool:
        return False  # paths have a fresh UUID, so no request is needed

    def to_input_file(self) -> InputFile:
        return _Input(self._store, self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self)

    def finish(self, data: bytes) -> None:
        self.length = len(data)
        self._send(self.location, data)


class _Stream(io.BytesIO):
    """Collects an object in memory and sends it when closed, unless the writer raised inside its `with` block."""

    def __init__(self, output: _Output) -> None:
        super().__init__()
        self._output: _Output | None = output

    def close(self) -> None:
        if self._output is not None:
            output, self._output = self._output, None
            output.finish(self.getvalue())
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._output = None
        self.close()
