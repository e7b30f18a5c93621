"""Landed objects: read once or again as the same bytes, with their digest; and the quarantine for those refused."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from catalog.errors import Conflict, Invalid, NotFound
from catalog.ingest.ledger import source_id, unread_digest
from catalog.pipeline.landing import Destination, Landed
from catalog.pipeline.limits import Limits, Refused
from catalog.places import QUARANTINE
from catalog.refusals import explain
from catalog.tables.ranges import Ranges

READ_BYTES = 4 << 20
COPY_BYTES = 5 << 30
"""What S3 copies in one request."""
_GONE = frozenset({"NoSuchKey", "NoSuchVersion", "404"})


class Gone(NotFound):
    """Whoever put the object there has taken it away for good: there is nothing to do."""


class LandedObject:
    """One version of one object. Each `stream` is one GET; what S3 says of the object is known from then on."""

    def __init__(self, s3: Any, landed: Landed) -> None:
        self._s3, self.landed = s3, landed
        self._where = {"Bucket": landed.bucket, "Key": landed.key}
        if landed.version_id and landed.version_id != "null":
            self._where["VersionId"] = landed.version_id
        self.size = 0
        self.modified = datetime.now(UTC)
        self.version: str | None = landed.version_id
        self._tag = ""

    def stream(self, limits: Limits) -> DigestingStream:
        """NotFound if it is gone meanwhile, Refused if it is over the limit: nothing of it is read then."""
        with self._explained():
            answer = self._s3.get_object(**self._where)
        self.size, self.modified, self._tag = int(answer["ContentLength"]), answer["LastModified"], answer["ETag"]
        self.version = answer.get("VersionId")
        if self.size > limits.object_bytes:
            answer["Body"].close()
            raise Refused(f"the file is {self.size} bytes, over the limit of {limits.object_bytes}")
        return DigestingStream(answer["Body"], self._explained)

    def digest(self, limits: Limits) -> str | None:
        """None if there is no knowing: it is too large to be read, or S3 has nothing under this key."""
        try:
            return self.stream(limits).digest()
        except (Refused, Gone):
            return None

    def ranges(self) -> io.RawIOBase:
        """For Parquet, which is read from its end."""
        return Ranges(self.size, self._read_range)

    def copy_to(self, key: str) -> str:
        """Copies the bytes that were read within S3, in one request; gives the copy's address.

        Conflict if the object is no longer what was read, which only an unversioned bucket allows.
        """
        with self._explained():
            try:
                self._s3.copy_object(
                    Bucket=self.landed.bucket, Key=key, CopySource=self._where, CopySourceIfMatch=self._tag
                )
            except ClientError as error:
                if error.response["Error"]["Code"] != "PreconditionFailed":
                    raise
                raise Conflict(f"{self.landed.key} changed while it was read: it is read again") from None
        return f"s3://{self.landed.bucket}/{key}"

    def _read_range(self, start: int, end: int) -> bytes:
        with self._explained():
            data: bytes = self._s3.get_object(**self._where, Range=f"bytes={start}-{end - 1}")["Body"].read()
        return data

    def quarantine(self, destination: Destination | None, digest: str | None, error: Invalid) -> str:
        """Copies the object to `quarantine/<namespace>/<table>/<digest>`, the report beside it as `….<source>.json`:
        the same bytes may be refused under two keys, for two reasons.

        Done again it ends the same; a crash between the two is mended by the next delivery of the message. Gives
        the report's key.
        """
        landed = self.landed
        name = digest or unread_digest(landed.key, landed.version_id)
        place = f"{destination.namespace}/{destination.table}" if destination else "unplaced"
        kept = f"{QUARANTINE}{place}/{name}" if digest is not None or 0 < self.size <= COPY_BYTES else None
        report = {
            "reason": error.message,
            "position": getattr(error, "position", {}),
            "source": landed.key,
            "version": landed.version_id,
            "table": destination.full_table if destination else None,
            "sha256": digest,
            "bytes": self.size or None,
            "kept_as": kept,
            "correlation_id": landed.correlation_id,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        key = f"{QUARANTINE}{place}/{name}.{source_id(landed.key, landed.version_id)}.json"
        with self._explained():
            if kept is not None:
                self._s3.copy_object(Bucket=landed.bucket, Key=kept, CopySource=self._where)
            body = json.dumps(report, indent=2, ensure_ascii=False).encode()
            self._s3.put_object(Bucket=landed.bucket, Key=key, Body=body, ContentType="application/json")
        return key

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] in _GONE:
                raise Gone(f"{self.landed.key} is gone", subject=self.landed.key) from None
            raise explain(error, self.landed.key) from error


class DigestingStream:
    """The body of one GET, digested as it passes."""

    closed = False

    def __init__(self, body: Any, explained: Any) -> None:
        self._body, self._explained, self._hash = body, explained, sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with self._explained():
            data: bytes = self._body.read(None if size < 0 else size)
        self._hash.update(data)
        return data

    def close(self) -> None:
        self.closed = True
        self._body.close()

    def digest(self) -> str:
        """Of the whole object: what nobody has read yet is read for it."""
        while self.read(READ_BYTES):
            pass
        return self._hash.hexdigest()
