"""pyiceberg's FileIO over S3: lean, and with a record of every byte that a commit wrote.

Writes from memory, in one request when a stream is closed; never opens a local file.
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

from catalog.tables.objects import CACHED_SUFFIXES, Store, open_store
from catalog.tables.ranges import Ranges

logger = logging.getLogger(__name__)

# Writes in flight hold their bytes: beyond this the writer waits for the oldest.
IN_FLIGHT_BYTES = 256 << 20


class Written(NamedTuple):
    """One object that was written, as an attestation wants it: the digest is SHA-256 in hex."""

    path: str
    length: int
    sha256: str


class ObjectIO(FileIO):
    """pyiceberg's FileIO over S3, usable as `py-io-impl`. Everything it writes is sent when the stream is closed."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self.store = open_store(properties)

    def new_input(self, location: str) -> InputFile:
        return _Input(self.store, location)

    def new_output(self, location: str) -> OutputFile:
        return _Output(self.store, location, self.send)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.store.delete([location if isinstance(location, str) else location.location])

    def send(self, path: str, data: bytes) -> None:
        self.store.put(path, data)


class CommitIO(ObjectIO):
    """The writes of one attempt at a commit: sent side by side, with a record of each.

    Nothing written is reachable until the catalog points to it, so the order of the writes does not matter; only
    `settle` before the catalog's compare-and-swap does.
    """

    def __init__(self, parent: ObjectIO) -> None:
        FileIO.__init__(self, parent.properties)
        self.store = parent.store
        self.published = False
        """Set before the compare-and-swap is sent: from then on the catalog may refer to what was written."""
        self._sent: list[Future[Written]] = []
        self._inherited: list[Written] = []
        self._spared: set[str] = set()
        self._in_flight = 0

    def inherit(self, written: Iterable[Written]) -> None:
        """Counts objects of an earlier attempt as written by this one."""
        self._inherited += written

    def spare(self, paths: Iterable[str]) -> None:
        """Keeps these from being discarded: the next attempt will want them."""
        self._spared.update(paths)

    def send(self, path: str, data: bytes) -> None:
        self._in_flight += len(data)
        self._sent.append(self.store.pool.submit(self._write, path, data))
        if self._in_flight > IN_FLIGHT_BYTES:
            self.settle()

    def settle(self) -> list[Written]:
        """Waits for every write; all that was written so far. Raises what any of them raised."""
        written = [*self._inherited, *(sent.result() for sent in self._sent)]
        self._in_flight = 0
        return written

    def discard(self) -> None:
        """Deletes what was written. Only for attempts that certainly were not, and cannot be, committed.

        Best effort: an object that stays is one nobody refers to.
        """
        done = [written.path for written in self._inherited]
        done += [sent.result().path for sent in self._sent if sent.exception() is None]
        try:
            self.store.delete([path for path in done if path not in self._spared])
        except (ClientError, BotoCoreError) as error:
            logger.warning("objects of a lost commit stay", extra={"count": len(done), "error": str(error)})

    def _write(self, path: str, data: bytes) -> Written:
        written = Written(path, len(data), sha256(data).hexdigest())
        self.store.put(path, data)
        return written


class _Input(InputFile):
    def __init__(self, store: Store, location: str) -> None:
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
        return _ranges(self._store, self.location)


def _ranges(store: Store, path: str) -> InputStream:
    """An object read by ranges: its tail in the first request, which is all of it when it is small."""
    tail, length = store.get_tail(path)
    kept_from = length - len(tail)

    def fetch(start: int, end: int) -> bytes:
        return tail[start - kept_from : end - kept_from] if start >= kept_from else store.get_range(path, start, end)

    return Ranges(length, fetch)


class _Output(OutputFile):
    def __init__(self, store: Store, location: str, send: Callable[[str, bytes], None]) -> None:
        super().__init__(location)
        self._store, self._send, self.length = store, send, 0

    def __len__(self) -> int:
        return self.length

    def exists(self) -> bool:
        return False  # names carry a fresh UUID: asking would be a request for nothing

    def to_input_file(self) -> InputFile:
        return _Input(self._store, self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self)

    def finish(self, data: bytes) -> None:
        self.length = len(data)
        self._send(self.location, data)


class _Stream(io.BytesIO):
    """Collects an object in memory and sends it when closed; not when the writer failed half-way."""

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
