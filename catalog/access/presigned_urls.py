"""Presigned URLs: to upload one file into landing, or to download one large response."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from uuid import uuid4

from botocore.exceptions import ClientError

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, translate_aws_errors
from catalog.core.clients import client_for
from catalog.core.settings import Settings

UPLOAD_SECONDS = 3600
RESULT_SECONDS = 900
MAX_WAITING = 20


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

    def upload(self, key: str, sha256_hex: str, metadata: Mapping[str, str] | None = None) -> Upload:
        """A URL to put one object with this digest and this metadata, which the uploader cannot change. No request."""
        checksum = _checksum(sha256_hex)
        url: str = self._s3.generate_presigned_url(
            "put_object",
            Params={"Bucket": self._bucket, "Key": key, "ChecksumSHA256": checksum, "Metadata": dict(metadata or {})},
            ExpiresIn=UPLOAD_SECONDS,
        )
        headers = {f"x-amz-meta-{name}": value for name, value in (metadata or {}).items()}
        return Upload(url, key, {"x-amz-checksum-sha256": checksum, **headers})

    def expect(self, sha256_hex: str, table: str, key: str) -> None:
        """Stores a key that a digest will be uploaded to, so that `waiting` finds the file before it is ingested.

        Beside the keys that others have stored for the same digest. One PUT.
        """
        name = f"{_claims(sha256_hex)}{table}/{sha256(key.encode()).hexdigest()}"
        with translate_aws_errors(key):
            self._s3.put_object(Bucket=self._bucket, Key=name, Body=key.encode())

    def waiting(self, sha256_hex: str, wanted: Callable[[str], bool]) -> list[tuple[str, str | None]]:
        """Key and version of uploaded files in landing with this digest, of wanted tables; MAX_WAITING at most.

        One LIST for a thousand claims, then a GET and a HEAD for each wanted one.
        """
        prefix, uploads = _claims(sha256_hex), list[tuple[str, str | None]]()
        with translate_aws_errors(sha256_hex):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            claims = (entry["Key"] for page in pages for entry in page.get("Contents", ()))
            ours = (claim for claim in claims if wanted(claim.removeprefix(prefix).partition("/")[0]))
            for claim in islice(ours, MAX_WAITING):
                key = self._s3.get_object(Bucket=self._bucket, Key=claim)["Body"].read().decode()
                try:
                    head = self._s3.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
                except ClientError as error:
                    if not is_missing(error):
                        raise
                    continue
                if head.get("ChecksumSHA256", _checksum(sha256_hex)) == _checksum(sha256_hex):
                    uploads.append((key, head.get("VersionId")))
        return uploads

    def result(self, body: bytes, content_type: str) -> str:
        """Stores a response under `results/`, which keeps it for a day, and returns a URL to download it. One PUT."""
        key = f"{s3_layout.RESULTS}{uuid4().hex}"
        with translate_aws_errors("the answer"):
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType=content_type)
        url: str = self._s3.generate_presigned_url(
            "get_object", Params={"Bucket": self._bucket, "Key": key}, ExpiresIn=RESULT_SECONDS
        )
        return url


def _claims(sha256_hex: str) -> str:
    return f"{s3_layout.REQUESTS}upload-{sha256_hex}/"


def _checksum(sha256_hex: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256_hex)).decode()
