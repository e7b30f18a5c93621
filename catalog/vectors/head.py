"""The head of a vector table: one object in S3 that says what it is and which Lance version holds which snapshot.

Readers take the version from here, so half of a refresh is never seen; writers replace it by compare-and-swap, so of
two refreshes one wins. Lance itself is never asked what its latest version is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from uuid import uuid4

from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from catalog import places
from catalog.errors import Conflict, NotFound, Unverified
from catalog.timeline.away import explained

_TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})


class Entry(BaseModel):
    """A version that may be read. `manifest_sha256` is over Lance's manifest of it, which lists all its files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    snapshot_id: int
    version: int
    rows: int
    manifest_sha256: str
    refreshed_ms: int


class Head(BaseModel):
    """`columns` are those of the source kept beside the vectors, to filter and to show; `key` is among them."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    format: Literal["strandline/vectors@v1"] = "strandline/vectors@v1"
    uuid: str = Field(default_factory=lambda: str(uuid4()))
    """Its own: one that is dropped and made anew is another, in the timeline too."""
    table: str
    table_uuid: str
    column: str
    key: tuple[str, ...] = Field(min_length=1)
    columns: tuple[str, ...]
    embedder: str
    dimensions: int = Field(gt=0)
    entries: tuple[Entry, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.table}.{self.column}"

    @property
    def newest(self) -> Entry | None:
        return self.entries[-1] if self.entries else None

    @property
    def kept(self) -> tuple[str, ...]:
        """All columns of the source that lie beside the vectors: the key, the text, and those asked for."""
        return tuple(dict.fromkeys([*self.key, self.column, *self.columns]))

    def entry_for(self, snapshot_id: int, parent_of: Callable[[int], int | None]) -> Entry | None:
        """The version for a snapshot: its own, or that of the nearest ancestor that was refreshed to."""
        entries = {entry.snapshot_id: entry for entry in self.entries}
        wanted: int | None = snapshot_id
        while wanted is not None and wanted not in entries:
            wanted = parent_of(wanted)
        return None if wanted is None else entries[wanted]


class Heads:
    """The heads of a bucket's vector tables, with their ETags."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3, self._bucket = s3, bucket

    def read(self, id_: str) -> tuple[Head, str]:
        """The head and its ETag. One request; NotFound if there is none."""
        with explained(id_):
            try:
                answer = self._s3.get_object(Bucket=self._bucket, Key=_key(id_))
            except ClientError as error:
                if error.response["Error"]["Code"] != "NoSuchKey":
                    raise
                raise NotFound(
                    f"there is no vector table {id_}: `strandline vectors create` makes one", subject=id_
                ) from None
            try:
                return Head.model_validate_json(answer["Body"].read()), answer["ETag"]
            except ValidationError as error:
                raise Unverified(f"{_key(id_)} is not the head of a vector table: {error}", subject=id_) from None

    def write(self, head: Head, etag: str | None) -> str:
        """Replaces the head whose ETag it was (None: there was none); Conflict if somebody else was quicker."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        with explained(head.id):
            try:
                answer = self._s3.put_object(
                    Bucket=self._bucket, Key=_key(head.id), Body=head.model_dump_json().encode(), **condition
                )
            except ClientError as error:
                if error.response["Error"]["Code"] not in _TAKEN:
                    raise
                raise Conflict(f"somebody else wrote the vector table {head.id}: try again", subject=head.id) from None
        found: str = answer["ETag"]
        return found

    def remove(self, id_: str) -> None:
        with explained(id_):
            self._s3.delete_object(Bucket=self._bucket, Key=_key(id_))

    def ids(self) -> list[str]:
        """Every vector table, by listing their heads."""
        with explained(places.VECTORS):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=places.VECTORS, Delimiter="/"
            )
            keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        return [key.removeprefix(places.VECTORS).removesuffix(".json") for key in keys if key.endswith(".json")]


def _key(id_: str) -> str:
    return f"{places.VECTORS}{id_}.json"
