"""Objects that were read already, as input files of pyiceberg."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream


class BytesFile(InputFile):
    """An object that was read already, so that it is parsed from the same bytes as its digest is computed from."""

    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return BytesIO(self._data)


class BytesFileIO(FileIO):
    """A FileIO that returns the same bytes for every location."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def new_input(self, location: str) -> InputFile:
        return BytesFile(location, self._data)

    def new_output(self, location: str) -> Any:
        raise NotImplementedError("an object in memory is read-only")

    def delete(self, location: Any) -> None:
        raise NotImplementedError("an object in memory is read-only")
