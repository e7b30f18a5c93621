"""What Lambda does with a batch that failed: partial answers, redelivery, dead letters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from infra.local.awslambda.service import LambdaService
from infra.local.faults import refuse
from infra.local.server import ApiServer
from infra.local.sqs.events import failed_ids
from infra.local.sqs.mappings import EventSourceMappings
from tests.waiting import wait_until
from tests.worlds.queues import PARTIAL, set_enabled


def test_of_ten_messages_the_two_that_failed_come_back_alone(mappings: EventSourceMappings, line: Any) -> None:
    made = line(visibility=2, max_receives=2, **PARTIAL)
    set_enabled(mappings, made, False)
    made.send(*(f"{'bad' if i in (3, 7) else 'good'} {i}" for i in range(10)))
    set_enabled(mappings, made, True)
    wait_until(lambda: made.left(made.dead_letters) == 2 and made.left() == 0, "two dead letters and an empty queue")
    assert Counter(made.bodies()) == {f"good {i}": 1 for i in range(10) if i not in (3, 7)} | {
        "bad 3": 2,
        "bad 7": 2,
    }
    assert max(len(event["Records"]) for event in made.events()) == 10


def test_a_poison_message_is_a_dead_letter_after_exactly_its_receives(server: ApiServer, line: Any) -> None:
    made = line(visibility=1, max_receives=3)
    (sent,) = made.send("raise")
    wait_until(lambda: made.left(made.dead_letters) == 1, "the dead letter")

    def receives() -> list[str]:
        return [event["Records"][0]["attributes"]["ApproximateReceiveCount"] for event in made.events()]

    wait_until(lambda: len(receives()) >= 3, "three calls")  # a slow one may still run when its message is moved
    assert receives() == ["1", "2", "3"]
    (dead,) = server.endpoint.client("sqs").receive_message(QueueUrl=made.dead_letters)["Messages"]
    assert (dead["MessageId"], dead["Body"]) == (sent, "raise")
    assert made.left() == 0


def test_a_failed_batch_stays_in_flight_until_its_visibility_timeout(
    server: ApiServer, service: LambdaService, line: Any
) -> None:
    made = line(visibility=3600, max_receives=2)
    mark = server.log.mark()
    made.send("raise")
    wait_until(lambda: any("told to fail" in text for text in service.logs(made.name)), "the function to fail")
    made.send("good")  # the mapping goes on, and deletes this one
    wait_until(lambda: made.left() == 1, "the second message to be deleted")
    assert (made.counts(), made.left(made.dead_letters)) == ((0, 1), 0)
    assert made.calls(mark, "ChangeMessageVisibility") == made.calls(mark, "ChangeMessageVisibilityBatch") == []
    assert Counter(made.bodies()) == {"raise": 1, "good": 1}


def test_without_partial_answers_a_report_is_ignored(line: Any) -> None:
    made = line()
    made.send("bad but not reported")
    wait_until(made.served, "the message to be deleted")


@pytest.mark.parametrize(
    "answer", ['{"batchItemFailures": [{"id": "x"}]}', '{"batchItemFailures": [{"itemIdentifier": ""}]}']
)
def test_a_malformed_answer_fails_the_whole_batch(line: Any, answer: str) -> None:
    made = line(visibility=1, max_receives=1, variables={"ANSWER": answer}, **PARTIAL)
    made.send("one", "two")
    wait_until(lambda: made.left(made.dead_letters) == 2, "both messages as dead letters")


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


def test_a_blocked_fifo_group_keeps_its_order(line: Any) -> None:
    made = line(fifo=True, visibility=1, BatchSize=1, **PARTIAL)
    made.send("bad a1", "a2", MessageGroupId="a")
    made.send("b1", MessageGroupId="b")
    wait_until(
        lambda: made.bodies().count("bad a1") >= 2 and "b1" in made.bodies(),
        "a redelivery, and the other group's message",
    )
    assert "a2" not in made.bodies()


def test_a_lost_delete_means_a_second_delivery(server: ApiServer, line: Any) -> None:
    made = line(visibility=1)

    def deletes(request: Any) -> bool:
        return bool(request.principal == f"mapping.{made.name}" and request.action == "DeleteMessageBatch")

    with server.faults.fault(deletes, refuse) as fault:
        made.send("twice")
        wait_until(lambda: fault.hits, "a delete that is refused")
        wait_until(lambda: len(made.events()) >= 2, "the second delivery")
    wait_until(lambda: made.left() == 0, "an empty queue")
    assert set(made.bodies()) == {"twice"}


def test_a_killed_worker_gives_its_batch_back(server: ApiServer, service: LambdaService, line: Any) -> None:
    made = line(visibility=3)

    def writes(request: Any) -> bool:
        return bool(request.principal == f"function.{made.name}" and request.method == "PUT")

    with server.faults.fault(writes, service.killing(made.name), times=1) as fault:
        made.send("survivor")
        wait_until(made.served, "the batch to be served by another worker")
    assert fault.hits == 1
    (record,) = made.events()[0]["Records"]
    assert int(record["attributes"]["ApproximateReceiveCount"]) >= 2
