"""The ledger: the outcome of every landed file, found by the digest of its content. One small object per file.

`ingested/<digest>/<source>.json`, where the source identifies one version of one key. A record is written after the
commit and before the message is deleted, so every acknowledged file has one, even after its snapshot has expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, Field

from catalog.core.aws_errors import is_missing, translate_aws_error
from catalog.core.errors import NotFound
from catalog.core.s3_layout import INGESTED

State = Literal["committed", "duplicate", "empty", "quarantined", "failed"]
_FAILED = "failed"


def source_id(key: str, version_id: str | None) -> str:
    """Sixteen hex digits that identify one version of one object in snapshot summaries and records."""
    version = "" if version_id in (None, "null") else version_id
    return sha256(f"{key}\n{version}".encode()).hexdigest()[:16]


def unread_digest(key: str, version_id: str | None) -> str:
    """A name in place of the digest, for a file whose bytes could not be read."""
    return f"unread-{sha256(f'{key}@{version_id}'.encode()).hexdigest()}"


class LedgerRecord(BaseModel):
    """The outcome of one file. `committed`: snapshot `snapshot_id` added its rows to `table`. `quarantined`: see the
    object `report`. `empty`: it has no rows. `failed`: the lake could not ingest it, for `reason`; the message is
    delivered again, or is a dead letter. `duplicate`, with `duplicate_of`: written by an earlier release, in which
    equal bytes under any key counted once.
    """

    model_config = ConfigDict(frozen=True)

    digest: str
    source: str
    token: str | None = None
    """The version's commit token; None in records of earlier releases."""
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

    def write(self, record: LedgerRecord) -> None:
        """Writes a record with one PUT. Idempotent: only a later record of the same source replaces it."""
        self._put(f"{INGESTED}{record.digest}/{record.source}.json", record)

    def write_failure(self, record: LedgerRecord) -> None:
        """Writes the record that `failure` finds: a file may fail before its digest is known. One PUT."""
        self._put(f"{INGESTED}{_FAILED}/{record.source}.json", record)

    def find(self, digest: str) -> list[LedgerRecord]:
        """The records of all files with these bytes, the committed ones first. One LIST, and a GET for each."""
        with self._translated(digest):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{INGESTED}{digest}/"
            )
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        records = [record for key in keys if (record := self._get(key)) is not None]
        names = {record.source: record.key for record in records}
        named = [
            r.model_copy(update={"duplicate_of": names.get(r.duplicate_of, r.duplicate_of)}) if r.duplicate_of else r
            for r in records
        ]
        return sorted(named, key=lambda record: (record.state != "committed", record.at))

    def of(self, digest: str, source: str) -> LedgerRecord | None:
        """The record of one file; None if there is none yet. One GET."""
        return self._get(f"{INGESTED}{digest}/{source}.json")

    def find_committed(self, digest: str, source: str, token: str, table_uuid: str) -> LedgerRecord | None:
        """The record of this version, if its rows were committed to the table with this uuid. One GET."""
        record = self.of(digest, source)
        if record is None or record.state != "committed" or record.table_uuid != table_uuid:
            return None
        return record if record.token in (None, token) else None

    def failure(self, key: str, version_id: str | None) -> LedgerRecord | None:
        """The record of this version's last failure; None if it never failed. One GET."""
        return self._get(f"{INGESTED}{_FAILED}/{source_id(key, version_id)}.json")

    def _get(self, key: str) -> LedgerRecord | None:
        try:
            with self._translated(key):
                return LedgerRecord.model_validate_json(
                    self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
                )
        except NotFound:
            return None

    def _put(self, key: str, record: LedgerRecord) -> None:
        with self._translated(record.key):
            body = record.model_dump_json(exclude_none=True).encode()
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json")

    @contextmanager
    def _translated(self, subject: str) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            if is_missing(error):
                raise NotFound(f"the ledger has no record {subject}", subject=subject) from None
            raise translate_aws_error(error, f"the ingest record of {subject}") from error
