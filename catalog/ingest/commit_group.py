"""Groups small files into commits: a commit costs the same for one file as for many."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.ingest.commit import FileRows, Result, append_files
from catalog.tables import Tables

COMMIT_BYTES = 64 << 20


class CommitGroup:
    """Files for one table, held in memory, that are committed together once their rows reach COMMIT_BYTES.

    The results are those of `append_files`. Call `commit` after the last file.
    """

    def __init__(self, tables: Tables, name: str, *, key: Sequence[str] = ()) -> None:
        self._tables, self._name, self._key = tables, name, tuple(key)
        self._files: list[FileRows] = []
        self._size = 0

    def add(self, file: FileRows, size: int) -> dict[str, Result]:
        """Adds a file whose rows take `size` bytes. Returns the results of the commit if it completed the group."""
        self._files.append(file)
        self._size += size
        return self.commit() if self._size >= COMMIT_BYTES else {}

    def commit(self) -> dict[str, Result]:
        """Commits the files added since the last commit, if there are any."""
        files, self._files, self._size = self._files, [], 0
        return append_files(self._tables, self._name, files, key=self._key) if files else {}
