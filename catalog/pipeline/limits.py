"""What a file may be at most, and how a file that is not acceptable is refused: with its position and the reason."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.errors import Invalid


@dataclass(frozen=True, slots=True)
class Limits:
    """Over any of these is a refusal, never a truncation."""

    object_bytes: int = 2 << 30
    decompressed_bytes: int = 8 << 30
    row_bytes: int = 8 << 20
    """One JSON value, CSV row, line of text or whole note."""
    depth: int = 64
    columns: int = 1000
    in_memory_bytes: int = 256 << 20
    """Parquet behind gzip or zstd cannot be read in parts, so this much of it has to fit."""


class Refused(Invalid):
    """The file is not acceptable. `position` holds what is known of line, row and column, for the report."""

    def __init__(
        self, reason: str, *, line: int | None = None, row: int | None = None, column: str | None = None
    ) -> None:
        self.reason = reason
        given: dict[str, int | str | None] = {"line": line, "row": row, "column": column}
        self.position: dict[str, int | str] = {name: value for name, value in given.items() if value is not None}
        where = ", ".join(f"{name} {value!r}" for name, value in self.position.items())
        super().__init__(f"{where}: {reason}" if where else reason)
