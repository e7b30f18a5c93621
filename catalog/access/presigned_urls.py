"""Presigned URLs: to upload one file into landing, or to download one large response."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from uuid import uuid4

from botocore.exceptions import ClientError

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, translate_aws_errors
from catalog.core.clients import client_for
from catalog.core.settings import Settings

UPLOAD_SECONDS = 3600
RESULT_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Upload:
    """PUT the file to `url` with exactly these headers. S3 rejects bytes with another digest."""

    url: str
    key: str
    headers: dict[str, str]


class PresignedUrls:
    """Signs URLs with the process's credentials, so a URL permits no more than its role does."""

    def __init__(self, settings: Settings) -> None:
        self._bucket = settings.bucket
        # Signature version 4: version 2 does not sign the checksum header.
        self._s3 = client_for(settings, "s3", signature_version="s3v4", virtual_hosts=True)

    def upload(self, key: str, sha256_hex: str) -> Upload:
        """A URL to put one object with this digest. Makes no request."""
        checksum = base64.b64encode(bytes.fromhex(sha256_hex)).decode()
        url: str = self._s3.generate_presigned_url(
            "put_object",
            Params={"Bucket": self._bucket, "Key": key, "ChecksumSHA256": checksum},
            ExpiresIn=UPLOAD_SECONDS,
        )
        return Upload(url, key, {"x-amz-checksum-sha256": checksum})

    def expect(self, sha256_hex: str, key: str) -> None:
        """Stores the key that a digest will be uploaded to, so that `waiting` finds the file before it is ingested."""
        with translate_aws_errors(key):
            self._s3.put_object(Bucket=self._bucket, Key=_upload_key(sha256_hex), Body=key.encode())

    def waiting(self, sha256_hex: str) -> tuple[str, str | None] | None:
        """Key and version of the uploaded file in landing with this digest; None if there is none. Two requests."""
        with translate_aws_errors(sha256_hex):
            try:
                key = self._s3.get_object(Bucket=self._bucket, Key=_upload_key(sha256_hex))["Body"].read().decode()
                uploaded = self._s3.head_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if is_missing(error):
                    return None
                raise
        return key, uploaded.get("VersionId")

    def result(self, body: bytes, content_type: str) -> str:
        """Stores a response under `results/`, which keeps it for a day, and returns a URL to download it. One PUT."""
        key = f"{s3_layout.RESULTS}{uuid4().hex}"
        with translate_aws_errors("the answer"):
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType=content_type)
        url: str = self._s3.generate_presigned_url(
            "get_object", Params={"Bucket": self._bucket, "Key": key}, ExpiresIn=RESULT_SECONDS
        )
        return url


def _upload_key(sha256_hex: str) -> str:
    return f"{s3_layout.REQUESTS}upload-{sha256_hex}"
