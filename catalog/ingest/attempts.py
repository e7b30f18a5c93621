"""Attempts at files whose messages come back: a file that ends the process that reads it is found, and quarantined.

When a process dies, every message of its batch is delivered again, and nobody learns which file was the cause. So a
file that has been delivered several times is read alone, between two small PUTs. One that was begun and not ended is
the cause, or was read when Lambda ended the function for another reason: it gets MAX_DEATHS attempts.
"""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError

from catalog.core.aws_errors import is_missing, translate_aws_errors
from catalog.core.s3_layout import INGESTED
from catalog.ingest.ledger import source_id
from catalog.ingest.s3_events import LandedFile

MAX_DEATHS = 3
"""So many processes may end while they read a file alone."""


class Attempts:
    """One small object per file that was read alone, `ingested/attempts/<source>.json`."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3, self._bucket = s3, bucket

    def begin(self, landed: LandedFile) -> int:
        """Counts an attempt; returns how many were begun before and have not ended. One GET and one PUT."""
        unended = self._unended(landed)
        self._put(landed, unended + 1)
        return unended

    def end(self, landed: LandedFile) -> None:
        """The process lives, whatever became of the file. One PUT."""
        self._put(landed, 0)

    def _unended(self, landed: LandedFile) -> int:
        with translate_aws_errors(landed.key):
            try:
                stored = self._s3.get_object(Bucket=self._bucket, Key=_key(landed))["Body"].read()
            except ClientError as error:
                if is_missing(error):
                    return 0
                raise
        return int(json.loads(stored)["unended"])

    def _put(self, landed: LandedFile, unended: int) -> None:
        body = json.dumps({"key": landed.key, "version": landed.version_id, "unended": unended}).encode()
        with translate_aws_errors(landed.key):
            self._s3.put_object(Bucket=self._bucket, Key=_key(landed), Body=body, ContentType="application/json")


def _key(landed: LandedFile) -> str:
    return f"{INGESTED}attempts/{source_id(landed.key, landed.version_id)}.json"
