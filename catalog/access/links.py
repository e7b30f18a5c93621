"""Links that carry their own permission for a while: to put one file into landing, or to fetch one large answer."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from catalog import places
from catalog.refusals import explained
from catalog.settings import Settings

UPLOAD_SECONDS = 3600
RESULT_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Upload:
    """PUT the file to `url` with exactly these headers: S3 refuses any other bytes than those of the digest."""

    url: str
    key: str
    headers: dict[str, str]


class Links:
    """Signs links with the process's own credentials: a link can do no more than this role may."""

    def __init__(self, settings: Settings) -> None:
        self._bucket = settings.bucket
        make: Any = boto3.client
        # Signature version 4, always: the older one does not sign the checksum's header.
        self._s3 = make(
            "s3",
            region_name=settings.region,
            endpoint_url=settings.endpoint_url,
            config=Config(
                signature_version="s3v4",
                connect_timeout=5,
                read_timeout=settings.store_timeout_s,
                retries={"mode": "standard", "max_attempts": 3},
                s3={"addressing_style": "path" if settings.endpoint_url else "virtual"},
            ),
        )

    def upload(self, key: str, sha256_hex: str) -> Upload:
        """For one object of one content. No request."""
        checksum = base64.b64encode(bytes.fromhex(sha256_hex)).decode()
        url: str = self._s3.generate_presigned_url(
            "put_object",
            Params={"Bucket": self._bucket, "Key": key, "ChecksumSHA256": checksum},
            ExpiresIn=UPLOAD_SECONDS,
        )
        return Upload(url, key, {"x-amz-checksum-sha256": checksum})

    def expect(self, sha256_hex: str, key: str) -> None:
        """Remembers which key a digest was promised under, so that a file can be told of before it is ingested."""
        with explained(key):
            self._s3.put_object(Bucket=self._bucket, Key=_promise(sha256_hex), Body=key.encode())

    def waiting(self, sha256_hex: str) -> tuple[str, str | None] | None:
        """Key and version of the file with these bytes that lies in landing; None if there is none known."""
        with explained(sha256_hex):
            try:
                promised = self._s3.get_object(Bucket=self._bucket, Key=_promise(sha256_hex))["Body"].read().decode()
                found = self._s3.head_object(Bucket=self._bucket, Key=promised)
            except ClientError as error:
                if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                    return None
                raise
        return promised, found.get("VersionId")

    def result(self, body: bytes, content_type: str) -> str:
        """Keeps an answer under `results/`, where it lies for a day, and links to it. One PUT."""
        key = f"{places.RESULTS}{uuid4().hex}"
        with explained("the answer"):
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType=content_type)
        url: str = self._s3.generate_presigned_url(
            "get_object", Params={"Bucket": self._bucket, "Key": key}, ExpiresIn=RESULT_SECONDS
        )
        return url


def _promise(sha256_hex: str) -> str:
    return f"{places.REQUESTS}upload-{sha256_hex}"
