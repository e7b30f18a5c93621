"""The limits on a file, and the error for a file that is rejected: the position of the fault and the reason."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.errors import Invalid


@dataclass(frozen=True, slots=True)
class FormatLimits:
    """A file that is over any of these is rejected, never truncated."""

    object_bytes: int = 2 << 30
    decompressed_bytes: int = 8 << 30
    row_bytes: int = 8 << 20
    """For one JSON value, CSV row, line of text or Markdown note."""
    depth: int = 32
    """Python's own limit, which pyiceberg's visitors of a schema reach at about 60 levels, is twice that."""
    columns: int = 1000
    in_memory_bytes: int = 256 << 20
    """For what cannot be read in parts: a Parquet file inside gzip or zstd, one Parquet page, one decoded row."""


class FileRejected(Invalid):
    """The file cannot be ingested. `position` has the line, row and column of the fault as far as they are known.

    The message is the position, then the reason: `row 3, column 'n': …`.
    """

    def __init__(
        self, reason: str, *, line: int | None = None, row: int | None = None, column: str | None = None
    ) -> None:
        parts: dict[str, int | str | None] = {"line": line, "row": row, "column": column}
        self.position: dict[str, int | str] = {name: value for name, value in parts.items() if value is not None}
        where = ", ".join(f"{name} {value!r}" for name, value in self.position.items())
        super().__init__(f"{where}: {reason}" if where else reason, row=row, column=column, reason=reason)


class NoRows(FileRejected):
    """The file is valid, or empty, and has nothing to ingest."""
