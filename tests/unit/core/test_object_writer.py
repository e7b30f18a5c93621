"""Objects of any size, written from a stream: equal to the bytes that went in, or absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import boto3
import pytest
from moto import mock_aws

from catalog.core.object_writer import PART_BYTES, ObjectWriter

BUCKET = "writes"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, 2 * PART_BYTES, 2 * PART_BYTES + 1, 3 * PART_BYTES + 17])
def test_an_object_has_the_bytes_that_were_written(s3: Any, size: int) -> None:
    data = os.urandom(size)
    with ObjectWriter(s3, BUCKET, "a/b") as sink:
        for start in range(0, size, 5 << 20):
            sink.write(data[start : start + (5 << 20)])
    assert s3.get_object(Bucket=BUCKET, Key="a/b")["Body"].read() == data
    assert (sink.size, sink.sha256) == (size, sha256(data).hexdigest())


@pytest.mark.parametrize("size", [1, 3 * PART_BYTES])
def test_an_error_leaves_no_object_and_no_upload(s3: Any, size: int) -> None:
    with pytest.raises(ValueError, match="stop"), ObjectWriter(s3, BUCKET, "a/b") as sink:
        sink.write(bytes(size))
        raise ValueError("stop")
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)
