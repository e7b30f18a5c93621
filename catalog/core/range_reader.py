"""A seekable file object over a source that is read by byte ranges: what Parquet readers need of an object in S3."""

from __future__ import annotations

import io
from collections.abc import Callable

Fetch = Callable[[int, int], bytes]
"""Returns the bytes from a start up to, not including, an end."""


class RangeReader(io.RawIOBase):
    """A file of known length. Each `read` of at least one byte is one `fetch`; a read at the end returns no bytes."""

    def __init__(self, length: int, fetch: Fetch) -> None:
        super().__init__()
        self._length, self._fetch, self._position = length, fetch, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        return self._position

    def size(self) -> int:
        return self._length

    def read(self, size: int | None = -1) -> bytes:
        start = self._position
        end = self._length if size is None or size < 0 else min(start + size, self._length)
        self._position = max(start, end)
        return self._fetch(start, end) if end > start else b""
