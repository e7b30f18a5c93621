"""Lambda's SQS event, partial batch responses and filter criteria. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from moto.events.models import EventPattern

Message = Mapping[str, Any]  # as ReceiveMessage returns it


def sqs_event(messages: Sequence[Message], queue_arn: str, region: str) -> dict[str, Any]:
    return {"Records": [_record(message, queue_arn, region) for message in messages]}


def _record(message: Message, queue_arn: str, region: str) -> dict[str, Any]:
    record = {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message.get("Attributes", {})),
        "messageAttributes": {name: _attribute(value) for name, value in message.get("MessageAttributes", {}).items()},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": region,
    }
    if "MD5OfMessageAttributes" in message:
        record["md5OfMessageAttributes"] = message["MD5OfMessageAttributes"]
    return record


def _attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    attribute: dict[str, Any] = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    if "StringValue" in value:
        attribute["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        attribute["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode()
    return attribute


def failed_ids(response: bytes, sent: set[str]) -> set[str]:
    """The messages that a function with ReportBatchItemFailures reported as failed; all when its response is malformed.

    An empty response, null, {} and an empty or null list mean success. Lambda deletes every message that is not
    reported, also on a FIFO queue: a function that stops at a failure must report all messages after it.
    """
    try:
        document = json.loads(response or b"null")
        items = (document or {}).get("batchItemFailures") or []
        failed = {item["itemIdentifier"] for item in items}
    except (ValueError, AttributeError, TypeError, KeyError):
        return sent
    return failed if failed <= sent else sent


def matches(message: Message, filters: Sequence[Mapping[str, str]]) -> bool:
    """Whether any of the mapping's filters matches the message, or there is none."""
    if not filters:
        return True
    try:
        body = json.loads(message["Body"])
    except ValueError:
        body = message["Body"]
    attributes = dict(message.get("Attributes", {}))
    record = {"messageId": message["MessageId"], "body": body, "attributes": attributes}
    return any(EventPattern.load(entry["Pattern"]).matches_event(record) for entry in filters)
