"""What a job reaches without a VPC: S3 and a few more, never SQS; and how it reaches the sequencer all the same."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from botocore.exceptions import ConnectionClosedError
from botocore.exceptions import ConnectionError as BotoConnectionError

from catalog.core.events import TableMoved, parse_message
from catalog.core.sequencer_queue import SequencerQueue, read_message
from catalog.core.settings import load_settings
from infra.local.server import ApiServer

JOB = "job/compact"


@pytest.mark.parametrize("service", ["sqs", "events", "emr-serverless", "bedrock-runtime"])
def test_a_job_does_not_reach(server: ApiServer, service: str) -> None:
    client = server.endpoint.client(service, JOB)
    call = {
        "sqs": lambda: client.list_queues(),
        "events": lambda: client.list_event_buses(),
        "emr-serverless": lambda: client.list_applications(),
        "bedrock-runtime": lambda: client.invoke_model(modelId="m", body=b"{}"),
    }[service]
    with pytest.raises((ConnectionClosedError, BotoConnectionError)):
        call()


def test_a_job_reaches_s3_and_a_function_reaches_sqs(server: ApiServer) -> None:
    server.endpoint.client("s3", JOB).list_buckets()
    server.endpoint.client("sqs", "function/ingest").list_queues()


def test_a_jobs_request_is_an_object_and_comes_back_as_it_was(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = f"lake-{uuid4().hex[:12]}"
    server.endpoint.client("s3").create_bucket(Bucket=bucket)
    variables = {
        **server.endpoint.environment(JOB),
        "STRANDLINE_BUCKET": bucket,
        "STRANDLINE_MOVED_QUEUE_URL": f"{server.endpoint.url}/moved.fifo",
        "STRANDLINE_SEND_REQUESTS": "s3",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sent = TableMoved(table="gold.insights")
    SequencerQueue(load_settings()).send(sent)
    s3 = server.endpoint.client("s3")
    (key,) = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert key.startswith("messages/")
    assert read_message(s3, bucket, key) == sent
    s3.delete_object(Bucket=bucket, Key=key)
    assert read_message(s3, bucket, key) is None
    assert parse_message(json.dumps({"kind": "moved", "table": "a.b", "correlation_id": "c"})) is not None
