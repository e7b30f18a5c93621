"""The filesystem through which DuckDB reads: `lake://<token>/<number>` is one object of one query.

A query lists its objects before it runs, under a token of its own; nothing else can be opened. The lake's objects never
change, so tails and small objects come from caches by path.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fsspec import AbstractFileSystem  # type: ignore[import-untyped]

from catalog.core.range_reader import RangeReader
from catalog.query.scan.object_ranges import Buffer

SCHEME = "lake"
_MODIFIED = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LakeObject:
    """`read(start, end)` returns the bytes of that range."""

    path: str
    length: int
    read: Callable[[int, int], Buffer]


class QueryFiles:
    """The objects of one query. `error`: the first error of a read, which DuckDB reports only as text."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.error: BaseException | None = None
        self._objects: list[LakeObject] = []
        LAKE_FILES.queries[self.token] = self

    def add(self, object_: LakeObject) -> str:
        """The URL under which DuckDB opens the object."""
        self._objects.append(object_)
        return f"{SCHEME}://{self.token}/{len(self._objects) - 1}"

    def __len__(self) -> int:
        return len(self._objects)

    def object(self, number: int) -> LakeObject:
        return self._objects[number]

    def read(self, object_: LakeObject, start: int, end: int) -> Buffer:
        try:
            return object_.read(start, end)
        except BaseException as error:
            if self.error is None:
                self.error = error
            raise

    def close(self) -> None:
        LAKE_FILES.queries.pop(self.token, None)
        self._objects = []


class LakeFiles(AbstractFileSystem):  # type: ignore[misc]
    """Read-only: it has the objects that running queries listed, and no directory."""

    protocol = SCHEME
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.queries: dict[str, QueryFiles] = {}

    def _find(self, path: str) -> tuple[QueryFiles, LakeObject]:
        token, _, number = str(self._strip_protocol(path)).partition("/")
        query = self.queries.get(token)
        if query is None or not number.isdecimal() or int(number) >= len(query):
            raise FileNotFoundError(path)
        return query, query.object(int(number))

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        _, object_ = self._find(path)
        return {"name": self._strip_protocol(path), "size": object_.length, "type": "file"}

    def exists(self, path: str, **_options: Any) -> bool:
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def glob(self, path: str, maxdepth: int | None = None, **_options: Any) -> list[str]:
        return [path] if self.exists(path) else []

    def ls(self, path: str, detail: bool = True, **_options: Any) -> Any:
        raise PermissionError("the files of a query cannot be listed")

    def modified(self, path: str) -> datetime:
        return _MODIFIED

    def open(self, path: str, mode: str = "rb", **_options: Any) -> Any:
        if mode not in ("r", "rb"):
            raise PermissionError("a query writes nothing")
        return _File(*self._find(path))


LAKE_FILES = LakeFiles()


class _File(RangeReader):
    """Its position is the thread's: DuckDB seeks and then reads, and another thread may do so in between."""

    def __init__(self, query: QueryFiles, object_: LakeObject) -> None:
        self._positions = threading.local()
        fetch: Any = partial(query.read, object_)  # DuckDB takes any buffer
        super().__init__(object_.length, fetch)

    @property
    def _position(self) -> int:
        return getattr(self._positions, "here", 0)

    @_position.setter
    def _position(self, position: int) -> None:
        self._positions.here = position

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
