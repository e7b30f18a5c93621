"""SQS in the embedded cloud under load, and FIFO queues without duplicates."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError
from moto.sqs.models import sqs_backends

from infra.local.server import ApiServer


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """The interpreter changes threads all the time, so that what is not locked goes wrong soon."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("mappings", "restless_threads")
def test_a_queue_loses_nothing_and_hands_nothing_out_twice_under_load(server: ApiServer) -> None:
    """At moto's own door: over HTTP the moments in which it goes wrong are too rare to be met."""
    server.endpoint.client("sqs").create_queue(QueueName="under-load")
    backend = sqs_backends[server.endpoint.account][server.endpoint.region]
    expected = Counter(f"{producer}-{n}" for producer in range(4) for n in range(100))
    received: list[str] = []

    def produce(producer: int) -> None:
        for n in range(100):
            backend.send_message("under-load", f"{producer}-{n}")

    def consume() -> None:
        empty = 0
        while len(received) < expected.total() and empty < 30:
            messages = backend.receive_message("under-load", 3, 1, 30)
            empty = 0 if messages else empty + 1
            for message in messages:
                received.append(message.body)
                backend.delete_message("under-load", message.receipt_handle)

    with ThreadPoolExecutor(8) as pool:
        tasks = [pool.submit(produce, producer) for producer in range(4)] + [pool.submit(consume) for _ in range(4)]
        for task in tasks:
            task.result(timeout=60)
    assert Counter(received) == expected


@pytest.mark.usefixtures("mappings")
def test_a_fifo_duplicate_is_swallowed_even_after_the_first_was_consumed(server: ApiServer) -> None:
    sqs = server.endpoint.client("sqs")
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName="duplicates.fifo", Attributes=attributes)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="same", MessageGroupId="g")
    (first,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    sqs.send_message(QueueUrl=url, MessageBody="same", MessageGroupId="g")
    sqs.send_message(QueueUrl=url, MessageBody="other", MessageGroupId="g")
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in messages] == ["other"]


@pytest.mark.usefixtures("mappings")
def test_only_a_message_in_flight_has_a_visibility_to_change(server: ApiServer) -> None:
    sqs = server.endpoint.client("sqs")
    url = sqs.create_queue(QueueName="visibility", Attributes={"VisibilityTimeout": "3600"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="again")
    (first,) = sqs.receive_message(QueueUrl=url)["Messages"]
    changed = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 0}
    sqs.change_message_visibility(**changed)
    entry = {"Id": "0", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 60}
    (failed,) = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[entry])["Failed"]
    assert failed["Id"] == "0"
    with pytest.raises(ClientError, match="MessageNotInflight"):
        sqs.change_message_visibility(**changed)
    (second,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert second["Body"] == "again"
