"""Returns once as many calls as the event says have begun: alone, it waits until it times out."""

from __future__ import annotations

import os
from typing import Any

import boto3
from botocore.config import Config

from tests.waiting import wait_until

s3 = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))


def handler(event: Any, context: Any) -> dict[str, int]:
    bucket = os.environ["BUCKET"]
    s3.put_object(Bucket=bucket, Key=context.aws_request_id, Body=b"")
    wait_until(lambda: s3.list_objects_v2(Bucket=bucket)["KeyCount"] >= event["callers"], "the other callers")
    return {"pid": os.getpid()}
