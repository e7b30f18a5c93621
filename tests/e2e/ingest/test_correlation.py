"""One id follows one file: from the S3 event, through both functions' logs, to the announcement of its commit."""

from __future__ import annotations

import json
from typing import Any

from catalog.lake import Lake
from infra.local.cloud import EmbeddedCloud
from tests.waiting import wait_until


def ids(cloud: EmbeddedCloud, function: str, message: str) -> list[str]:
    lines = [line for line in cloud.functions.logs(f"strandline-dev-{function}") if line.startswith("{")]
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [line["correlation_id"] for line in entries if line.get("message") == message and "correlation_id" in line]


def test_one_id_follows_a_file_from_its_event_to_the_checkpoint(cloud: EmbeddedCloud, lake: Lake) -> None:
    sqs, events = cloud.endpoint.client("sqs"), cloud.endpoint.client("events")
    heard = sqs.create_queue(QueueName="heard")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=heard, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    bus = lake.settings.event_bus
    pattern = json.dumps({"detail-type": ["CommitSequenced"]})
    events.put_rule(Name="heard", EventBusName=bus, EventPattern=pattern)
    events.put_targets(Rule="heard", EventBusName=bus, Targets=[{"Id": "q", "Arn": arn}])

    cloud.wait_until_idle()  # the first sweep would otherwise find the table before its own message does
    body = b'{"station": "Brest", "metres": 4.2}\n'
    lake.s3.put_object(Bucket=lake.settings.bucket, Key="landing/bronze/tides/monday.jsonl", Body=body)
    cloud.wait_until_idle()

    announced = wait_until(
        lambda: sqs.receive_message(QueueUrl=heard, MaxNumberOfMessages=10).get("Messages"), "the announcement"
    )
    (followed,) = {json.loads(message["Body"])["detail"]["correlation_id"] for message in announced}
    wait_until(lambda: followed in ids(cloud, "ingest", "file committed"), "the id in the log of ingest")
    wait_until(lambda: followed in ids(cloud, "sequencer", "message served"), "the id in the log of the sequencer")
    assert lake.timeline.head().checkpoint.size >= 2
