"""The ledger: what became of every landed file, by the digest of its content. One small object per file.

`ingested/<digest>/<source>.json`, where the source stands for one version of one key. It is written after the commit
and before the message is done with, so whatever was acknowledged is in here, also when its snapshot has expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, Field

from catalog.errors import NotFound
from catalog.places import INGESTED
from catalog.refusals import explain

State = Literal["committed", "duplicate", "quarantined", "failed"]
_FAILED = "failed"


def source_id(key: str, version_id: str | None) -> str:
    """Sixteen hex digits for one version of one object: what snapshots and records call it by."""
    version = "" if version_id in (None, "null") else version_id
    return sha256(f"{key}\n{version}".encode()).hexdigest()[:16]


def unread_digest(key: str, version_id: str | None) -> str:
    """The name for a file whose bytes could not be read, in place of their digest."""
    return f"unread-{sha256(f'{key}@{version_id}'.encode()).hexdigest()}"


class Record(BaseModel):
    """Where one file is now. `committed`: its rows are in `table` since `snapshot_id`. `duplicate`: they were there
    already, brought by `duplicate_of` (a key, once that file's own record is there). `quarantined`: see `report`.
    `failed`: the lake could not do its work, for `reason`; the message comes again, or is a dead letter.
    """

    model_config = ConfigDict(frozen=True)

    digest: str
    source: str
    key: str
    version: str | None = None
    state: State
    table: str | None = None
    table_uuid: str | None = None
    snapshot_id: int | None = None
    rows: int = 0
    size: int | None = None
    duplicate_of: str | None = None
    report: str | None = None
    reason: str | None = None
    position: dict[str, int | str] = Field(default_factory=dict)
    correlation_id: str | None = None
    at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Ledger:
    """The records of one lake. Safe to share between threads."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3, self._bucket = s3, bucket

    def note(self, record: Record) -> None:
        """One PUT. Done again it ends the same: a record is replaced only by a later one of the same source."""
        self._put(f"{INGESTED}{record.digest}/{record.source}.json", record)

    def note_failure(self, record: Record) -> None:
        """Where `failure` finds it: a file may fail before its digest is known."""
        self._put(f"{INGESTED}{_FAILED}/{record.source}.json", record)

    def find(self, digest: str) -> list[Record]:
        """Every file with these bytes, the committed ones first; none if nothing is known. One LIST, a GET each."""
        with self._explained(digest):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{INGESTED}{digest}/"
            )
            keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        found = [record for key in keys if (record := self._get(key)) is not None]
        names = {record.source: record.key for record in found}
        shown = [
            r.model_copy(update={"duplicate_of": names.get(r.duplicate_of, r.duplicate_of)}) if r.duplicate_of else r
            for r in found
        ]
        return sorted(shown, key=lambda record: (record.state != "committed", record.at))

    def of(self, digest: str, source: str) -> Record | None:
        """One file's own record; None as long as nothing is known. One GET."""
        return self._get(f"{INGESTED}{digest}/{source}.json")

    def find_committed(self, digest: str, table_uuid: str) -> Record | None:
        """The record of the file whose rows are, or once were, in this very table."""
        found = (r for r in self.find(digest) if r.state == "committed" and r.table_uuid == table_uuid)
        return next(found, None)

    def failure(self, key: str, version_id: str | None) -> Record | None:
        """Why the lake last could not ingest this version; None if it never failed."""
        return self._get(f"{INGESTED}{_FAILED}/{source_id(key, version_id)}.json")

    def _get(self, key: str) -> Record | None:
        try:
            with self._explained(key):
                return Record.model_validate_json(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        except NotFound:
            return None

    def _put(self, key: str, record: Record) -> None:
        with self._explained(record.key):
            body = record.model_dump_json(exclude_none=True).encode()
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json")

    @contextmanager
    def _explained(self, subject: str) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                raise NotFound(f"there is no record {subject}", subject=subject) from None
            raise explain(error, f"the ingest record of {subject}") from error
