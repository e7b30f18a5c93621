"""Queues of the embedded cloud feed functions as Lambda does: batches, answers, redelivery, dead letters."""

from __future__ import annotations

import hashlib
import itertools
import json
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
from moto.sqs.models import sqs_backends

from infra.local.awslambda.service import LambdaService
from infra.local.faults import refuse
from infra.local.server import ApiServer
from infra.local.sqs.events import failed_ids
from infra.local.sqs.mappings import EventSourceMappings
from tests.handlers.deploy import deploy, until

_lines = itertools.count()
PARTIAL = {"FunctionResponseTypes": ["ReportBatchItemFailures"]}


@pytest.fixture(scope="module")
def service(server: ApiServer) -> Iterator[LambdaService]:
    service = LambdaService(server.endpoint)
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="module")
def mappings(service: LambdaService) -> Iterator[EventSourceMappings]:
    mappings = EventSourceMappings(service)
    mappings.start()
    yield mappings
    mappings.stop()


@dataclass
class Line:
    """A queue, a function that keeps its events in a bucket, and the mapping between them."""

    server: ApiServer
    name: str
    url: str
    dead_letters: str | None
    mapping: str

    def send(self, *bodies: str, **more: Any) -> list[str]:
        entries = [{"Id": str(i), "MessageBody": body, **more} for i, body in enumerate(bodies)]
        sent = self._sqs.send_message_batch(QueueUrl=self.url, Entries=entries)["Successful"]
        return [entry["MessageId"] for entry in sent]

    def events(self) -> list[dict[str, Any]]:
        """Every event the function got, in order."""
        s3 = self.server.endpoint.client("s3")
        found = s3.list_objects_v2(Bucket=self.name).get("Contents", [])
        bodies = [json.loads(s3.get_object(Bucket=self.name, Key=entry["Key"])["Body"].read()) for entry in found]
        return sorted(
            bodies,
            key=lambda event: min(int(r["attributes"]["ApproximateReceiveCount"]) for r in event["Records"]),
        )

    def bodies(self) -> list[str]:
        return [record["body"] for event in self.events() for record in event["Records"]]

    def left(self, url: str | None = None) -> int:
        """Messages in the queue, in flight or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._sqs.get_queue_attributes(QueueUrl=url or self.url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    @property
    def _sqs(self) -> Any:
        return self.server.endpoint.client("sqs")


@pytest.fixture
def line(
    server: ApiServer,
    service: LambdaService,
    mappings: EventSourceMappings,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Line]]:
    made: list[str] = []

    def create(
        *, fifo: bool = False, visibility: int = 30, max_receives: int = 0, variables: Any = None, **more: Any
    ) -> Line:
        name = f"q{next(_lines)}" + "".join(c for c in request.node.name.lower() if c.isalnum())[:50]
        suffix = ".fifo" if fifo else ""
        sqs, lambdas = server.endpoint.client("sqs"), server.endpoint.client("lambda")
        attributes = {"VisibilityTimeout": str(visibility)}
        if fifo:
            attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        dead_letters = None
        if max_receives:
            dead_letters = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
            attributes["RedrivePolicy"] = json.dumps(
                {"deadLetterTargetArn": arn(f"{name}-dead"), "maxReceiveCount": max_receives}
            )
        url = sqs.create_queue(QueueName=name + suffix, Attributes=attributes)["QueueUrl"]
        server.endpoint.client("s3").create_bucket(Bucket=name)
        environment = {"Variables": {"BUCKET": name, **(variables or {})}}
        deploy(server.endpoint, name, "batches", Environment=environment)
        service.invoke(name, b"{}")  # a cold start may take longer than a test's short visibility time-out
        mapping = lambdas.create_event_source_mapping(EventSourceArn=arn(name + suffix), FunctionName=name, **more)[
            "UUID"
        ]
        mappings.sync()
        made.append(mapping)
        return Line(server, name, url, dead_letters, mapping)

    yield create
    for mapping in made:
        server.endpoint.client("lambda").delete_event_source_mapping(UUID=mapping)
    mappings.sync()


def warm_up(made: Line) -> None:
    made.send("warm up")
    until(lambda: made.events() and made.left() == 0)


def set_enabled(mappings: EventSourceMappings, made: Line, enabled: bool) -> None:
    made.server.endpoint.client("lambda").update_event_source_mapping(UUID=made.mapping, Enabled=enabled)
    mappings.sync()


def arn(queue: str) -> str:
    return f"arn:aws:sqs:us-east-1:123456789012:{queue}"


def test_a_message_arrives_exactly_as_lambda_sends_it(server: ApiServer, line: Any) -> None:
    made = line()
    before = int(time.time() * 1000)
    attributes = {
        "kind": {"DataType": "String", "StringValue": "note"},
        "digest": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sent = server.endpoint.client("sqs").send_message(
        QueueUrl=made.url, MessageBody='{"a": 1}', MessageAttributes=attributes
    )
    (record,) = until(made.events)[0]["Records"]
    stamps = [int(record["attributes"].pop(key)) for key in ("SentTimestamp", "ApproximateFirstReceiveTimestamp")]
    assert before <= stamps[0] <= stamps[1] <= time.time() * 1000
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
    until(lambda: made.left() == 0)


def test_a_fifo_message_carries_its_group_sequence_and_deduplication(line: Any) -> None:
    made = line(fifo=True)
    made.send("one", "two", MessageGroupId="g")
    until(lambda: len(made.bodies()) == 2)
    records = [record for event in made.events() for record in event["Records"]]
    assert [record["body"] for record in records] == ["one", "two"]
    assert {record["attributes"]["MessageGroupId"] for record in records} == {"g"}
    assert all(record["attributes"]["MessageDeduplicationId"] for record in records)
    first, second = (int(record["attributes"]["SequenceNumber"]) for record in records)
    assert first < second


def test_of_ten_messages_the_two_that_failed_come_back_alone(mappings: EventSourceMappings, line: Any) -> None:
    made = line(visibility=2, max_receives=2, **PARTIAL)
    set_enabled(mappings, made, False)
    made.send(*(f"{'bad' if i in (3, 7) else 'good'} {i}" for i in range(10)))
    set_enabled(mappings, made, True)
    until(lambda: made.left(made.dead_letters) == 2)
    seen = Counter(made.bodies())
    assert seen == {f"good {i}": 1 for i in range(10) if i not in (3, 7)} | {
        "bad 3": 2,
        "bad 7": 2,
    }
    assert max(len(event["Records"]) for event in made.events()) == 10
    assert made.left() == 0


def test_a_poison_message_is_a_dead_letter_after_exactly_its_receives(server: ApiServer, line: Any) -> None:
    made = line(visibility=1, max_receives=3)
    (sent,) = made.send("raise")
    until(lambda: made.left(made.dead_letters) == 1)
    counts = [event["Records"][0]["attributes"]["ApproximateReceiveCount"] for event in made.events()]
    assert counts == ["1", "2", "3"]
    (dead,) = server.endpoint.client("sqs").receive_message(QueueUrl=made.dead_letters)["Messages"]
    assert (dead["MessageId"], dead["Body"]) == (sent, "raise")
    assert made.left() == 0


def test_a_failed_batch_waits_for_its_visibility_timeout(line: Any) -> None:
    made = line(visibility=2, max_receives=1)
    made.send("raise")
    began = time.monotonic()
    until(lambda: made.left(made.dead_letters) == 1)
    assert time.monotonic() - began > 1.9


def test_without_partial_answers_a_report_is_ignored(line: Any) -> None:
    made = line()
    made.send("bad but not reported")
    until(lambda: made.events() and made.left() == 0)


@pytest.mark.parametrize(
    "answer", ['{"batchItemFailures": [{"id": "x"}]}', '{"batchItemFailures": [{"itemIdentifier": ""}]}']
)
def test_a_malformed_answer_fails_the_whole_batch(line: Any, answer: str) -> None:
    made = line(visibility=1, max_receives=1, variables={"ANSWER": answer}, **PARTIAL)
    made.send("one", "two")
    until(lambda: made.left(made.dead_letters) == 2)


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        (b"", set()),
        (b"null", set()),
        (b"{}", set()),
        (b'{"batchItemFailures": []}', set()),
        (b'{"batchItemFailures": null}', set()),
        (b'{"batchItemFailures": [{"itemIdentifier": "a"}]}', {"a"}),
        (b'{"batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": null}]}', {"a", "b"}),
        (b'{"batchItemFailures": [{"itemIdentifier": "stranger"}]}', {"a", "b"}),
        (b'{"batchItemFailures": ["a"]}', {"a", "b"}),
        (b'{"batchItemFailures": 1}', {"a", "b"}),
        (b'"fine"', {"a", "b"}),
        (b"[1]", {"a", "b"}),
        (b"not json", {"a", "b"}),
    ],
)
def test_a_batch_answer_means_what_lambda_says_it_means(answer: bytes, failed: set[str]) -> None:
    assert failed_ids(answer, {"a", "b"}) == failed


def test_a_batch_waits_for_its_window_but_not_when_it_is_full(line: Any) -> None:
    made = line(BatchSize=15, MaximumBatchingWindowInSeconds=60)
    made.send(*(f"{i}" for i in range(10)))
    made.send(*(f"{i}" for i in range(10, 15)))
    until(lambda: len(made.bodies()) == 15)
    assert len(made.events()) == 1


def test_a_blocked_fifo_group_keeps_its_order(line: Any) -> None:
    made = line(fifo=True, visibility=1, BatchSize=1, **PARTIAL)
    made.send("bad a1", "a2", MessageGroupId="a")
    made.send("b1", MessageGroupId="b")
    until(lambda: Counter(made.bodies())["bad a1"] >= 2)
    assert "b1" in made.bodies()
    assert "a2" not in made.bodies()


def test_a_filter_deletes_what_it_does_not_let_through(line: Any) -> None:
    pattern = json.dumps({"body": {"table": ["notes"]}})
    made = line(FilterCriteria={"Filters": [{"Pattern": pattern}]})
    made.send('{"table": "notes"}', '{"table": "other"}', "no json")
    until(lambda: made.events() and made.left() == 0)
    assert made.bodies() == ['{"table": "notes"}']


def test_a_disabled_mapping_rests_until_it_is_enabled(
    server: ApiServer, mappings: EventSourceMappings, line: Any
) -> None:
    made, other = line(), line()
    set_enabled(mappings, made, False)
    mark = server.log.mark()
    made.send("later")
    other.send("meanwhile")
    until(other.events)
    assert server.log.since(mark, lambda request: request.principal == f"mapping.{made.name}") == []
    server.endpoint.client("lambda").update_event_source_mapping(UUID=made.mapping, Enabled=True)  # no sync
    until(lambda: made.bodies() == ["later"])


def test_a_lost_delete_means_a_second_delivery(server: ApiServer, line: Any) -> None:
    made = line(visibility=1)

    def deletes(request: Any) -> bool:
        return bool(request.principal == f"mapping.{made.name}" and request.action == "DeleteMessageBatch")

    with server.faults.fault(deletes, refuse) as fault:
        made.send("twice")
        until(lambda: fault.struck)
        until(lambda: len(made.events()) >= 2)
    until(lambda: made.left() == 0)
    assert set(made.bodies()) == {"twice"}


def test_a_killed_worker_gives_its_batch_back(server: ApiServer, service: LambdaService, line: Any) -> None:
    made = line(visibility=3)

    def writes(request: Any) -> bool:
        return bool(request.principal == f"function.{made.name}" and request.method == "PUT")

    with server.faults.fault(writes, service.killing(made.name), times=1) as fault:
        made.send("survivor")
        until(lambda: made.events() and made.left() == 0)
    assert fault.struck == 1
    (record,) = made.events()[0]["Records"]
    assert int(record["attributes"]["ApproximateReceiveCount"]) >= 2


def test_an_idle_mapping_asks_nothing_and_costs_nothing(server: ApiServer, line: Any) -> None:
    made = line()
    warm_up(made)
    mine = psutil.Process()
    mark, busy = server.log.mark(), sum(mine.cpu_times()[:2])
    threading.Event().wait(1.0)  # idleness can only be seen by letting time pass
    assert server.log.since(mark, lambda request: request.principal == f"mapping.{made.name}") == []
    assert sum(mine.cpu_times()[:2]) - busy < 0.3


def test_a_message_is_with_its_function_within_milliseconds(server: ApiServer, line: Any) -> None:
    made = line()
    warm_up(made)
    delays = []
    for n in range(10):
        mark = server.log.mark()
        began = time.monotonic()
        made.send(f"{n}")
        until(lambda mark=mark: server.log.since(mark, lambda r: r.principal == f"function.{made.name}"))
        delays.append(time.monotonic() - began)
        until(lambda: made.left() == 0)
    assert statistics.median(delays) < 0.2


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
        deadline = time.monotonic() + 30
        while len(received) < expected.total() and time.monotonic() < deadline:
            for message in backend.receive_message("under-load", 3, 1, 30):
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
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in found] == ["other"]
