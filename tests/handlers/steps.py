"""Leaves three objects in S3, one after the other, so that a test can stop it between any two."""

from __future__ import annotations

import os
from typing import Any

import boto3
from botocore.config import Config

ONE_ATTEMPT = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
s3 = boto3.client("s3", config=ONE_ATTEMPT)


def handler(event: Any, context: Any) -> str:
    for step in ("first", "second", "third"):
        s3.put_object(Bucket=os.environ["BUCKET"], Key=step, Body=b"")
    return "done"
