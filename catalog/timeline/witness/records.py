"""A witness's records in S3: for each log one object, the latest checkpoint that the witness cosigned.

An object is replaced only by compare-and-swap (If-Match, If-None-Match), so that of two requests at once one loses, and
a record never goes back. Nobody but the witness may write below its prefix: a witness that forgets can be deceived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from catalog.core.aws_errors import is_missing, lost_race, translate_errors
from catalog.core.errors import Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.cosignature import WitnessKey, read_cosignatures
from catalog.merkle.note import NoteError, split_note
from catalog.merkle.witness import WitnessRecord, origin_hash


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and the version of its object. Without one: None and the empty text."""

    record: WitnessRecord | None = None
    etag: str = ""


@dataclass(frozen=True)
class WitnessRecords:
    """The records of the witness with this key, `<prefix><key id>/<origin hash>`."""

    s3: Any
    bucket: str
    prefix: str
    key: WitnessKey

    def path(self, origin: str) -> str:
        return f"{self.prefix}{self.key.key_id.hex()}/{origin_hash(origin)}"

    def load(self, origin: str) -> StoredRecord:
        """One GET. Unverified if the object is not one that this witness wrote: nothing may be cosigned then."""
        path = self.path(origin)
        with translate_errors(f"s3://{self.bucket}/{path}"):
            try:
                response = self.s3.get_object(Bucket=self.bucket, Key=path)
            except ClientError as error:
                if is_missing(error):
                    return StoredRecord()
                raise
            note: bytes = response["Body"].read()
        try:
            checkpoint = Checkpoint.parse(split_note(note)[0])
            if checkpoint.origin != origin or not read_cosignatures(note, [self.key]):
                raise NoteError(f"it is not a checkpoint of {origin} with this witness's cosignature")
        except NoteError as error:
            reason = f"the witness's record s3://{self.bucket}/{path} was altered: {error}"
            raise Unverified(f"{reason}. Restore an earlier version of the object", subject=path) from None
        return StoredRecord(WitnessRecord(checkpoint.size, checkpoint.root, note), str(response["ETag"]))

    def replace(self, origin: str, current: StoredRecord, record: WitnessRecord) -> bool:
        """One PUT. False, and nothing is stored, if `current` is no longer the stored record."""
        path = self.path(origin)
        condition = {"IfMatch": current.etag} if current.etag else {"IfNoneMatch": "*"}
        with translate_errors(f"s3://{self.bucket}/{path}"):
            try:
                self.s3.put_object(
                    Bucket=self.bucket, Key=path, Body=record.note, ContentType="text/plain; charset=utf-8", **condition
                )
            except ClientError as error:
                if lost_race(error) or is_missing(error):
                    return False
                raise
        return True
