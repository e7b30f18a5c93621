"""Keeps every SQS event it gets in S3, then does with it what the messages say."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import boto3
from botocore.config import Config

s3 = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))


def handler(event: Any, context: Any) -> Any:
    if not event.get("Records"):
        return None  # only to be warm
    key = f"{time.time_ns()} {context.aws_request_id}"  # S3 tells times to the second: names are in order
    s3.put_object(Bucket=os.environ["BUCKET"], Key=key, Body=json.dumps(event).encode())
    bodies = {record["messageId"]: record["body"] for record in event["Records"]}
    if "raise" in bodies.values():
        raise RuntimeError("told to fail")
    if "ANSWER" in os.environ:
        return json.loads(os.environ["ANSWER"])
    failures = [{"itemIdentifier": name} for name, body in bodies.items() if body.startswith("bad")]
    return {"batchItemFailures": failures}
