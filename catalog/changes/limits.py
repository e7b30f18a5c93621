"""How much a comparison may read, checked against the files themselves: a manifest's row count may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from catalog.changes.touched_rows import TouchedFile
from catalog.core.errors import Invalid


class TooLarge(Invalid):
    """The comparison would read more than its limit."""


@dataclass(frozen=True)
class Limit:
    """How many rows and bytes of data files a comparison may read."""

    rows: int
    bytes: int

    def check(self, sources: Iterable[TouchedFile], count: Callable[[TouchedFile], tuple[int, int]]) -> None:
        """Raises TooLarge when the sources are over the limit. `count` reads the rows and bytes of a source's file.

        Counts from the manifests within the limit are accepted, and RowCounts checks them while the files are read.
        Counts over the limit are not believed, since a wrong count must not prevent a comparison: the files are
        counted, those with the largest counts first, until they are over the limit.
        """
        by_size = sorted(sources, key=lambda source: source.file.record_count, reverse=True)
        rows = sum(source.rows(source.file.record_count) for source in by_size)
        length = sum(source.file.file_size_in_bytes for source in by_size)
        if rows <= self.rows and length <= self.bytes:
            return
        rows = length = 0
        for source in by_size:
            in_file, size = count(source)
            rows, length = rows + source.rows(in_file), length + size
            if rows > self.rows or length > self.bytes:
                raise TooLarge(
                    f"{rows} rows in {length} bytes are over the limit of {self.rows} rows and {self.bytes} bytes"
                )


@dataclass
class RowCounts:
    """The row counts of files as they are read, by path. Raises TooLarge when their sum is over the limit."""

    limit: Limit | None = None
    by_path: dict[str, int] = field(default_factory=dict)

    def add(self, source: TouchedFile, rows: int) -> None:
        """Adds the row count of a file that is read completely. TooLarge when the sum is over the limit."""
        if source.only is not None:
            return
        self.by_path[source.file.file_path] = rows
        if self.limit is not None and sum(self.by_path.values()) > self.limit.rows:
            raise TooLarge(
                f"{source.file.file_path} has {rows} rows: the comparison would read more than {self.limit.rows}"
            )
