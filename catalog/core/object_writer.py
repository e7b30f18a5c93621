"""Writes one object of any size from a stream of bytes. Memory: one part; nothing is visible before `close`."""

from __future__ import annotations

from hashlib import sha256
from types import TracebackType
from typing import Any, Self

PART_BYTES = 8 << 20
"""S3 accepts parts from 5 MiB, and 10,000 of them: an object of up to 78 GiB."""


class ObjectWriter:
    """A file object to write to. Use it in a `with` block: an error in the block leaves no object.

    One PUT for an object of up to `PART_BYTES`, else a multipart upload: a request for each part and two more. The
    upload of a killed process stays, invisible, until the bucket's lifecycle rule removes it.
    """

    def __init__(self, s3: Any, bucket: str, key: str) -> None:
        self._s3, self._place = s3, {"Bucket": bucket, "Key": key}
        self._buffer = bytearray()
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._sha256 = sha256()
        self.size = 0
        self.closed = False

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sha256.update(view)
        self._buffer += view
        self.size += len(view)
        while len(self._buffer) >= 2 * PART_BYTES or (self._upload and len(self._buffer) >= PART_BYTES):
            self._send_part(PART_BYTES)
        return len(view)

    def flush(self) -> None:
        """Does nothing: S3 takes no part below its minimum size."""

    def writable(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.closed:
            return
        self.closed = True
        if kind is None:
            self._complete()
        elif self._upload is not None:
            self._s3.abort_multipart_upload(**self._place, UploadId=self._upload)

    def _complete(self) -> None:
        if self._upload is None:
            self._s3.put_object(**self._place, Body=bytes(self._buffer))
            return
        if self._buffer:
            self._send_part(len(self._buffer))
        self._s3.complete_multipart_upload(**self._place, UploadId=self._upload, MultipartUpload={"Parts": self._parts})

    def _send_part(self, size: int) -> None:
        if self._upload is None:
            self._upload = self._s3.create_multipart_upload(**self._place)["UploadId"]
        number, part = len(self._parts) + 1, bytes(self._buffer[:size])
        response = self._s3.upload_part(**self._place, UploadId=self._upload, PartNumber=number, Body=part)
        self._parts.append({"PartNumber": number, "ETag": response["ETag"]})
        del self._buffer[:size]
