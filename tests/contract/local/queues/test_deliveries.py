"""Event source mappings bring messages to functions as Lambda does: records, batches, filters, and rest."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from infra.local.server import ApiServer
from infra.local.sqs.mappings import EventSourceMappings
from tests.waiting import wait_until
from tests.worlds.queues import arn, set_enabled, warm_up


def test_a_message_arrives_exactly_as_lambda_sends_it(server: ApiServer, line: Any) -> None:
    made = line()
    attributes = {
        "kind": {"DataType": "String", "StringValue": "note"},
        "digest": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sent = server.endpoint.client("sqs").send_message(
        QueueUrl=made.url, MessageBody='{"a": 1}', MessageAttributes=attributes
    )
    (record,) = wait_until(made.events, "the event")[0]["Records"]
    sent_ms, received_ms = (record["attributes"].pop(f"{key}Timestamp") for key in ("Sent", "ApproximateFirstReceive"))
    assert int(sent_ms) <= int(received_ms) and len(sent_ms) == len(received_ms) == len("1767225600000")
    assert record.pop("receiptHandle")
    assert record == {
        "messageId": sent["MessageId"],
        "body": '{"a": 1}',
        "attributes": {"ApproximateReceiveCount": "1", "SenderId": record["attributes"]["SenderId"]},
        "messageAttributes": {
            "kind": {
                "stringValue": "note",
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": "String",
            },
            "digest": {
                "binaryValue": "AP8=",
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": "Binary",
            },
        },
        "md5OfMessageAttributes": sent["MD5OfMessageAttributes"],
        "md5OfBody": hashlib.md5(b'{"a": 1}').hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": arn(made.name),
        "awsRegion": "us-east-1",
    }
    wait_until(lambda: made.left() == 0, "the message to be deleted")


def test_a_fifo_message_carries_its_group_sequence_and_deduplication(line: Any) -> None:
    made = line(fifo=True)
    made.send("one", "two", MessageGroupId="g")
    wait_until(lambda: len(made.bodies()) == 2, "both messages")
    records = [record for event in made.events() for record in event["Records"]]
    assert [record["body"] for record in records] == ["one", "two"]
    assert {record["attributes"]["MessageGroupId"] for record in records} == {"g"}
    assert all(record["attributes"]["MessageDeduplicationId"] for record in records)
    first, second = (int(record["attributes"]["SequenceNumber"]) for record in records)
    assert first < second


def test_a_batch_waits_for_its_window_but_not_when_it_is_full(line: Any) -> None:
    made = line(BatchSize=15, MaximumBatchingWindowInSeconds=60)
    made.send(*(f"{i}" for i in range(10)))
    made.send(*(f"{i}" for i in range(10, 15)))
    wait_until(lambda: len(made.bodies()) == 15, "all messages")
    assert len(made.events()) == 1


def test_a_filter_deletes_what_it_does_not_let_through(line: Any) -> None:
    pattern = json.dumps({"body": {"table": ["notes"]}})
    made = line(FilterCriteria={"Filters": [{"Pattern": pattern}]})
    made.send('{"table": "notes"}', '{"table": "other"}', "no json")
    wait_until(made.served, "an empty queue")
    assert made.bodies() == ['{"table": "notes"}']


def test_a_disabled_mapping_rests_until_it_is_enabled(
    server: ApiServer, mappings: EventSourceMappings, line: Any
) -> None:
    made, other = line(), line()
    set_enabled(mappings, made, False)
    mark = server.log.mark()
    made.send("later")
    other.send("meanwhile")
    wait_until(other.events, "the other queue's message")
    assert made.calls(mark) == []
    server.endpoint.client("lambda").update_event_source_mapping(UUID=made.mapping, Enabled=True)  # no sync
    wait_until(lambda: made.bodies() == ["later"], "the message that waited")


def test_an_idle_mapping_makes_no_request_until_a_message_wakes_it(server: ApiServer, line: Any) -> None:
    idle, busy = line(), line()
    warm_up(idle)
    mark = server.log.mark()
    for number in range(10):
        busy.send(f"{number}")
        wait_until(busy.served, "the other queue's message to be served")
    assert len(busy.bodies()) == 10 and busy.calls(mark)
    assert idle.calls(mark) == []
    idle.send("wake")
    wait_until(lambda: "wake" in idle.bodies() and idle.left() == 0, "the message to be served")
