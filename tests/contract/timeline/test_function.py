"""The sequencer's function: one batch of messages is one run, and each message gets its own answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from catalog.core import metrics
from catalog.core.events import VerificationFailed
from functions import sequencer as function
from infra.local.faults import refuse
from tests.worlds.lake import ORIGIN
from tests.worlds.timeline import ROWS, SEQUENCER, World


@pytest.fixture
def deployed(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The function with its deployed environment, and nothing else: no tables of the tests before."""
    glue = world.client("glue")
    for database in glue.get_databases()["DatabaseList"]:
        glue.delete_database(Name=database["Name"])
    name = f"key-{world.bucket}"
    world.client("secretsmanager").create_secret(Name=name, SecretString=world.signer.private_key())
    variables = {
        "AWS_ENDPOINT_URL": world.server.endpoint.url,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "STRANDLINE_BUCKET": world.bucket,
        "STRANDLINE_ORIGIN": ORIGIN,
        "STRANDLINE_SIGNER": f"secret:{name}",
        "STRANDLINE_EVENT_BUS": "default",
        "STRANDLINE_FUNCTION": "sequencer",
    }
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    function.lake.cache_clear()
    yield world
    function.lake().sequencer.close()
    function.lake.cache_clear()


def deliver(*bodies: str) -> list[str]:
    """Delivers a batch; gives the ids of the messages that will come again."""
    records = [
        {
            "messageId": f"m{number}",
            "receiptHandle": "r",
            "body": body,
            "attributes": {},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:moved",
            "awsRegion": "us-east-1",
        }
        for number, body in enumerate(bodies)
    ]
    answer: dict[str, Any] = function.handler({"Records": records}, None)
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def moved(table: str) -> str:
    return json.dumps({"kind": "moved", "table": table, "correlation_id": "c1"})


def test_a_batch_is_served_and_only_the_bad_message_comes_again(deployed: World) -> None:
    made = deployed.table()
    made.append(ROWS)
    name, uuid = deployed.name("t"), str(made.metadata.table_uuid)
    asked = {"consumer": "c", "table": name, "table_uuid": uuid, "sequence": 1, "holder": "h"}
    mark = json.dumps({"kind": "mark", **asked})
    assert deliver(moved(name), "not json", moved(name), mark, json.dumps({"kind": "moved"})) == ["m1", "m4"]
    assert deployed.published().head().checkpoint.size == 2
    assert deliver(moved(name)) == []
    assert deployed.published().head().checkpoint.size == 2


class TestTheQueueIsHeldUpByNobody:
    """It is a FIFO queue with one group: while a refused message is invisible, nothing else is delivered."""

    @pytest.fixture
    def dead_letters(self, deployed: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
        sqs = deployed.client("sqs")
        name = f"dead-{deployed.bucket}.fifo"
        url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
        monkeypatch.setenv("STRANDLINE_MOVED_DEAD_QUEUE_URL", url)

        def received() -> list[dict[str, Any]]:
            messages: list[dict[str, Any]] = sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
            ).get("Messages", [])
            for message in messages:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            return messages

        return received

    def test_a_message_that_can_never_be_served_is_a_dead_letter_at_once(
        self, deployed: World, dead_letters: Callable[[], list[dict[str, Any]]]
    ) -> None:
        deployed.table()
        late = json.dumps({"kind": "name", "name": "n", "index": 99, "correlation_id": "c2"})
        assert deliver(moved(deployed.name("t")), "not json", late) == []
        kept = {letter["Body"]: letter["MessageAttributes"]["reason"]["StringValue"] for letter in dead_letters()}
        assert kept.keys() == {"not json", late} and "no index 99" in kept[late]
        assert deliver(moved(deployed.name("t")), "not json", late) == []  # Lambda may deliver a batch again
        assert dead_letters() == []
        assert deployed.published().head().checkpoint.size == 1

    def test_it_comes_again_if_it_cannot_be_kept(
        self, deployed: World, dead_letters: Callable[[], list[dict[str, Any]]]
    ) -> None:
        with deployed.server.faults.fault(lambda r: r.action == "SendMessage", refuse):
            assert deliver("not json") == ["m0"]
        assert dead_letters() == []

    def test_a_table_that_cannot_be_sequenced_is_left_to_the_sweep(
        self, deployed: World, dead_letters: Callable[[], list[dict[str, Any]]]
    ) -> None:
        deployed.table()

        def reads_metadata(request: Any) -> bool:
            return request.principal == SEQUENCER and request.touches(".metadata.json")

        with deployed.server.faults.fault(reads_metadata, refuse):
            assert deliver(moved(deployed.name("t"))) == []
        assert dead_letters() == []
        assert deliver(json.dumps({"kind": "sweep"})) == []
        assert deployed.published().head().checkpoint.size == 1


def test_when_the_store_is_away_every_message_comes_again_and_is_then_served(deployed: World) -> None:
    deployed.table().append(ROWS)
    function.lake().sequencer.catch_up([])
    with deployed.server.faults.fault(lambda r: r.principal == SEQUENCER and r.touches("slatedb"), refuse):
        assert deliver(moved(deployed.name("t")), moved(deployed.name("t"))) == ["m0", "m1"]
    assert deliver(moved(deployed.name("t"))) == []
    assert deployed.published().head().checkpoint.size == 2


def test_a_fenced_function_gives_its_messages_back_and_opens_again(deployed: World) -> None:
    table = deployed.table()
    assert deliver(moved(deployed.name("t"))) == []
    deployed.sequencer().catch_up([])
    table.append(ROWS)
    assert deliver(moved(deployed.name("t"))) == ["m0"]
    assert deliver(moved(deployed.name("t"))) == []
    assert deployed.published().head().checkpoint.size == 2


def test_the_schedule_sweeps_and_compacts_over_the_same_queue(deployed: World) -> None:
    deployed.table().append(ROWS)
    mark = deployed.server.log.mark()
    assert deliver(json.dumps({"kind": "sweep"}), json.dumps({"kind": "compact"})) == []
    assert deployed.published().head().checkpoint.size >= 2
    # Only a compaction writes sorted tables of its own.
    written = [r.path for r in deployed.server.log.since(mark) if r.method == "PUT" and r.touches("slatedb")]
    assert any("/compacted/" in path for path in written)


def test_a_sweep_that_fails_holds_nobody_up_and_is_counted(deployed: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Its message would hold up all others in the queue, and the schedule sends another."""
    deployed.table().append(ROWS)

    def lists(request: Any) -> bool:
        return request.principal == SEQUENCER and request.action == "GetDatabases"

    with deployed.server.faults.fault(lists, refuse):
        assert deliver(moved(deployed.name("t")), json.dumps({"kind": "sweep"})) == []
    (figure,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if metrics.UNSEQUENCED in line]
    assert figure[metrics.UNSEQUENCED] == [1.0]  # two of them ring
    assert deployed.published().head().checkpoint.size == 2


def test_each_refusal_and_each_batch_is_one_line_of_log_with_the_id_that_follows_the_work(
    deployed: World, capsys: pytest.CaptureFixture[str]
) -> None:
    function.lake.cache_clear()  # the log is set up with the lake, to the stderr of that moment
    deployed.table().append(ROWS)
    name = deployed.name("t")
    late = json.dumps({"kind": "name", "name": "n", "index": 99, "correlation_id": "c2"})
    assert deliver(moved(name), late, "{}") == ["m1", "m2"]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    named, unread = [line for line in lines if line["message"] == "message refused"]
    assert unread["message_id"] == "m2" and "kind" not in unread
    assert (named["message_id"], named["kind"], named["correlation_id"]) == ("m1", "name", "c2")
    assert "no index 99" in named["error"]["message"]
    (batch,) = [line for line in lines if line["message"] == "batch sequenced"]
    assert (batch["messages"], batch["refused"], batch["leaves"], batch["size"]) == (3, 2, 2, 2)
    assert batch["duration_ms"] > 0 and "correlation_id" not in batch

    assert deliver(moved(name)) == []
    (again,) = [json.loads(line) for line in capsys.readouterr().err.splitlines() if "batch" in line]
    assert (again["correlation_id"], again["leaves"]) == ("c1", 0)


def test_a_fault_that_a_verification_found_is_told_in_the_figures_and_nothing_else_is_done(
    deployed: World, capsys: pytest.CaptureFixture[str]
) -> None:
    function.lake.cache_clear()
    fault = VerificationFailed(subject="tables/a", what="tables/a: it was changed", count=3, correlation_id="c9")
    assert deliver(fault.model_dump_json()) == []
    heard = capsys.readouterr()
    (figure,) = [json.loads(line) for line in heard.out.splitlines() if '"_aws"' in line]
    assert (figure[metrics.UNVERIFIED], figure["service"]) == ([3.0], "sequencer")
    (said,) = [line for line in map(json.loads, heard.err.splitlines()) if line["message"] == "verification failed"]
    assert (said["subject"], said["faults"], said["correlation_id"]) == ("tables/a", 3, "c9")
    assert deployed.objects("timeline") == {}


def test_a_new_process_finds_by_itself_what_no_message_told_and_an_old_one_does_not_look(deployed: World) -> None:
    first = deployed.table("first")
    deployed.table("second")
    assert deliver(moved(deployed.name("second"))) == []
    assert [leaf.operation for _, leaf in deployed.published().commits_since(deployed.name("first"))] == ["create"]
    first.append(ROWS)
    mark = deployed.server.log.mark()
    assert deliver(moved(deployed.name("second"))) == []
    assert not [r for r in deployed.server.log.since(mark) if r.action == "GetTables"]
    function.lake().sequencer.close()
    function.lake.cache_clear()
    assert deliver(moved(deployed.name("second"))) == []
    assert len(list(deployed.published().commits_since(deployed.name("first")))) == 2


def test_a_first_sweep_that_fails_refuses_no_message_and_is_tried_again(deployed: World) -> None:
    deployed.table("first")
    deployed.table("second")

    def lists(request: Any) -> bool:
        return request.principal == SEQUENCER and request.action == "GetDatabases"

    with deployed.server.faults.fault(lists, refuse):
        assert deliver(moved(deployed.name("second"))) == []
    assert deliver(moved(deployed.name("second"))) == []
    assert [leaf.operation for _, leaf in deployed.published().commits_since(deployed.name("first"))] == ["create"]


def test_the_function_maintains_the_store_after_a_run_and_tells_how_many_files_there_are(
    deployed: World, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.table()
    assert deliver(moved(deployed.name("t"))) == []
    (figure,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if metrics.WAL_FILES in line]
    assert figure[metrics.WAL_FILES][0] >= 1
    assert deliver(moved(deployed.name("t"))) == []
    assert metrics.WAL_FILES not in capsys.readouterr().out


def test_a_maintenance_that_fails_refuses_no_message(deployed: World) -> None:
    deployed.table()

    def writes_an_sst(request: Any) -> bool:
        return request.principal == SEQUENCER and request.method == "PUT" and request.touches("/compacted/")

    with deployed.server.faults.fault(writes_an_sst, refuse) as fault:
        assert deliver(moved(deployed.name("t"))) == []
    assert fault.hits >= 1
    assert deliver(moved(deployed.name("t"))) == []
    assert deployed.published().head().checkpoint.size == 1
