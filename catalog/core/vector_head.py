"""The head of a vector table: one JSON object with the table's identity, and the Lance version of each snapshot.

The only parser of heads: vectors/ reads and replaces them, timeline/ sequences and verifies their versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from catalog.core.errors import Unverified

_IDENTITY = frozenset({"table", "table_uuid", "column", "key", "columns", "embedder", "dimensions"})


class VectorVersion(BaseModel):
    """A readable Lance version. `manifest_sha256` is the digest of its manifest, which lists all its files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    snapshot_id: int
    version: int
    rows: int
    manifest_sha256: str
    refreshed_ms: int


class Head(BaseModel):
    """`columns` are the columns of the source that are stored with the vectors, including `key`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    format: Literal["strandline/vectors@v1"] = "strandline/vectors@v1"
    uuid: str
    """The vector table's own; one that is dropped and created again has another."""
    table: str
    table_uuid: str
    column: str
    key: tuple[str, ...] = Field(min_length=1)
    columns: tuple[str, ...]
    embedder: str
    dimensions: int = Field(gt=0)
    entries: tuple[VectorVersion, ...] = ()

    @field_validator("uuid")
    @classmethod
    def _written_one_way(cls, uuid: str) -> str:
        return str(UUID(uuid))

    @classmethod
    def parse(cls, data: bytes, key: str, subject: str) -> Head:
        """Unverified if the object `key` is not a valid head."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise Unverified(f"{key} is not the head of a vector table: {error}", subject=subject) from None

    @property
    def id(self) -> str:
        return f"{self.table}.{self.column}"

    @property
    def identity(self) -> dict[str, Any]:
        """What the table is derived from, as in the object: the timeline's leaves have its digest."""
        return self.model_dump(mode="json", include=set(_IDENTITY))

    @property
    def newest(self) -> VectorVersion | None:
        return self.entries[-1] if self.entries else None

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """All columns of the source that are stored with the vectors: the key, the text, and `columns`."""
        return tuple(dict.fromkeys([*self.key, self.column, *self.columns]))

    def entry_for(self, snapshot_id: int, parent_of: Callable[[int], int | None]) -> VectorVersion | None:
        """The version for a snapshot: its own, or that of the nearest ancestor that has one."""
        entries = {entry.snapshot_id: entry for entry in self.entries}
        ancestor: int | None = snapshot_id
        while ancestor is not None and ancestor not in entries:
            ancestor = parent_of(ancestor)
        return None if ancestor is None else entries[ancestor]
