"""Lambda's SQS event and the answers to it: exact shapes, no I/O."""

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
    shaped: dict[str, Any] = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    if "StringValue" in value:
        shaped["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        shaped["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode()
    return shaped


def failed_ids(answer: bytes, sent: set[str]) -> set[str]:
    """The messages a function with ReportBatchItemFailures gave back; all when its answer is malformed.

    Nothing, null, {} and an empty or null list mean success. Lambda takes the answer at its word, also on a
    FIFO queue: a function that stops at a failure must name all that is behind it, or that is deleted too.
    """
    try:
        document = json.loads(answer or b"null")
        items = (document or {}).get("batchItemFailures") or []
        failed = {item["itemIdentifier"] for item in items}
    except (ValueError, AttributeError, TypeError, KeyError):
        return sent
    return failed if failed <= sent else sent


def matches(message: Message, filters: Sequence[Mapping[str, str]]) -> bool:
    """Whether Lambda would hand over this message: any of the mapping's filters, on the body and the rest."""
    if not filters:
        return True
    try:
        body = json.loads(message["Body"])
    except ValueError:
        body = message["Body"]
    attributes = dict(message.get("Attributes", {}))
    record = {"messageId": message["MessageId"], "body": body, "attributes": attributes}
    return any(EventPattern.load(entry["Pattern"]).matches_event(record) for entry in filters)
