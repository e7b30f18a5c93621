"""Landed objects: reading one version of an object with its digest, and moving rejected objects into quarantine."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from catalog.core.aws_errors import is_missing, lost_race, translate_aws_error
from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.core.range_reader import RangeReader
from catalog.core.s3_layout import QUARANTINE
from catalog.formats import FileRejected, FormatLimits
from catalog.ingest.ledger import source_id, unread_digest
from catalog.ingest.object_versions import ObjectVersion
from catalog.ingest.s3_events import Destination, LandedFile

READ_BYTES = 4 << 20
COPY_BYTES = 5 << 30
"""The largest object that S3 copies in one request."""


class Gone(NotFound):
    """The object was deleted or replaced since it landed: there is nothing to ingest."""


class LandedObject:
    """One version of one object. `size`, `modified`, `version` and `metadata` are S3's after the first `stream`."""

    def __init__(self, s3: Any, landed: LandedFile) -> None:
        self._s3, self.landed = s3, landed
        self._location = {"Bucket": landed.bucket, "Key": landed.key}
        if landed.version_id and landed.version_id != "null":
            self._location["VersionId"] = landed.version_id
        self.size = 0
        self.modified = datetime.now(UTC)
        self.version: str | None = landed.version_id
        self.metadata: dict[str, str] = {}
        self._etag = ""

    def stream(self, limits: FormatLimits) -> DigestingStream:
        """The object's bytes, with one GET. Raises Gone if it was deleted or replaced, and FileRejected, before reading
        anything, if it is over the limit."""
        with self._translated():
            response = self._s3.get_object(**self._location)
        self.size, self.modified = int(response["ContentLength"]), response["LastModified"]
        self._etag, self.version = response["ETag"], response.get("VersionId")
        self.metadata = response.get("Metadata", {})
        if "VersionId" not in self._location and self.landed.etag not in (None, self._etag.strip('"')):
            response["Body"].close()
            raise Gone(f"{self.landed.key} was replaced: the message of the newer object ingests that")
        if self.size > limits.object_bytes:
            response["Body"].close()
            raise FileRejected(f"the file is {self.size} bytes, over the limit of {limits.object_bytes}: split it")
        return DigestingStream(response["Body"], self._translated)

    def object_version(self, digest: str) -> ObjectVersion:
        """The object's version; call it after `stream`."""
        landed = self.landed
        return ObjectVersion.of(landed.key, self.version, self._etag, digest, self.modified, landed.sequencer)

    def other(self, version: str) -> LandedObject:
        """Another version of the same object."""
        return LandedObject(self._s3, LandedFile(self.landed.bucket, self.landed.key, version))

    def current_version(self) -> str | None:
        """The id of the newest version, or None if the object is deleted. One HEAD."""
        try:
            with self._translated():
                response = self._s3.head_object(Bucket=self.landed.bucket, Key=self.landed.key)
        except Gone:
            return None
        version = response.get("VersionId")
        return None if version == "null" else version

    def digest(self, limits: FormatLimits) -> str | None:
        """The SHA-256 of the object; None if it is over the limit, or gone. One GET."""
        try:
            return self.stream(limits).digest()
        except (FileRejected, Gone):
            return None

    def ranges(self) -> io.RawIOBase:
        """The object as a seekable file, for Parquet; each read is one GET."""
        return RangeReader(self.size, self._read_range)

    def copy_to(self, key: str) -> str:
        """Copies the object within S3, in one request; returns the copy's address.

        Raises Conflict if the object is not the one that was read, which is possible only in an unversioned bucket.
        """
        with self._translated():
            try:
                self._s3.copy_object(
                    Bucket=self.landed.bucket, Key=key, CopySource=self._location, CopySourceIfMatch=self._etag
                )
            except ClientError as error:
                if not lost_race(error):
                    raise
                raise Conflict(f"{self.landed.key} changed while it was read: it will be read again") from None
        return f"s3://{self.landed.bucket}/{key}"

    def _read_range(self, start: int, end: int) -> bytes:
        with self._translated():
            data: bytes = self._s3.get_object(**self._location, Range=f"bytes={start}-{end - 1}")["Body"].read()
        return data

    def quarantine(self, destination: Destination | None, digest: str | None, error: Invalid) -> str:
        """Copies the object to `quarantine/<namespace>/<table>/<digest>` and writes a report beside it, named
        `<digest>.<source>.json`: the same bytes may be rejected under two keys, for two reasons. Returns the report's
        key.

        Idempotent: after a crash between the copy and the report, the next delivery of the message writes both.
        """
        landed = self.landed
        name = digest or unread_digest(landed.key, landed.version_id)
        folder = f"{destination.namespace}/{destination.table}" if destination else "unplaced"
        copy = f"{QUARANTINE}{folder}/{name}" if digest is not None or 0 < self.size <= COPY_BYTES else None
        report = {
            "reason": error.message,
            "position": getattr(error, "position", {}),
            "source": landed.key,
            "version": landed.version_id,
            "table": destination.full_table if destination else None,
            "sha256": digest,
            "bytes": self.size or None,
            "kept_as": copy,
            "correlation_id": landed.correlation_id,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        key = f"{QUARANTINE}{folder}/{name}.{source_id(landed.key, landed.version_id)}.json"
        with self._translated():
            if copy is not None:
                self._s3.copy_object(Bucket=landed.bucket, Key=copy, CopySource=self._location)
            body = json.dumps(report, indent=2, ensure_ascii=False).encode()
            self._s3.put_object(Bucket=landed.bucket, Key=key, Body=body, ContentType="application/json")
        return key

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            if is_missing(error):
                raise Gone(f"{self.landed.key} no longer exists", subject=self.landed.key) from None
            raise translate_aws_error(error, self.landed.key) from error


class DigestingStream:
    """The body of one GET, hashed as it is read. `translated` is the context manager that translates S3's errors."""

    closed = False

    def __init__(self, body: Any, translated: Any) -> None:
        self._body, self._translated, self._hash = body, translated, sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with self._translated():
            data: bytes = self._body.read(None if size < 0 else size)
        self._hash.update(data)
        return data

    def close(self) -> None:
        self.closed = True
        self._body.close()

    def digest(self) -> str:
        """The SHA-256 of the whole object; reads the rest of it."""
        while self.read(READ_BYTES):
            pass
        return self._hash.hexdigest()
