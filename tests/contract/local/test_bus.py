"""EventBridge rules with a pattern deliver as on AWS: to whom, in which form, and not in the caller's way."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from moto.events.models import Rule

from infra.local.clock import ManualClock
from infra.local.endpoint import ACCOUNT, REGION
from infra.local.eventbridge.agenda import Agenda
from infra.local.eventbridge.bus import Bus
from infra.local.eventbridge.inputs import fill
from infra.local.eventbridge.targets import Targets
from infra.local.server import ApiServer

FUNCTION = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:announce"


class Wiring:
    """The bus over one API server; Lambda is a list, refuses while `refuse` is set, and waits at `gate`."""

    def __init__(self, server: ApiServer) -> None:
        self.client = server.endpoint.client
        self.clock = ManualClock()
        self.agenda = Agenda(self.clock)
        self.received: list[Any] = []
        self.refuse = False
        self.gate = threading.Event()
        self.gate.set()
        self.bus = Bus(Targets(server.endpoint, self.invoke_async, self.agenda), self.clock)
        self.rules: list[tuple[str, str]] = []

    def invoke_async(self, function_name: str, payload: bytes, /) -> None:
        self.gate.wait(10)
        if self.refuse:
            raise RuntimeError("Lambda is away")
        self.received.append(json.loads(payload))

    def rule(self, pattern: dict[str, Any] | None, bus: str = "default", state: str = "ENABLED", **target: Any) -> str:
        name = f"r-{uuid.uuid4().hex[:8]}"
        what = {"EventPattern": json.dumps(pattern)} if pattern else {"ScheduleExpression": "rate(1 hour)"}
        self.client("events").put_rule(Name=name, EventBusName=bus, State=state, **what)
        one = {"Id": "target", "Arn": FUNCTION, **target}
        answer = self.client("events").put_targets(Rule=name, EventBusName=bus, Targets=[one])
        assert answer["FailedEntryCount"] == 0
        self.rules.append((name, bus))
        return name

    def put(self, detail: dict[str, Any], bus: str = "default", kind: str = "Sequenced") -> str:
        entry = {"Source": "lake", "DetailType": kind, "Detail": json.dumps(detail), "EventBusName": bus}
        answer = self.client("events").put_events(Entries=[entry])
        assert answer["FailedEntryCount"] == 0
        return str(answer["Entries"][0]["EventId"])

    def queue(self) -> tuple[str, str]:
        name = f"q-{uuid.uuid4().hex[:8]}"
        return (
            self.client("sqs").create_queue(QueueName=name)["QueueUrl"],
            f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}",
        )

    def messages(self, url: str) -> list[dict[str, Any]]:
        self.agenda.wait_until_idle()
        answer = self.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        return list(answer.get("Messages", []))

    def events(self) -> list[Any]:
        self.agenda.wait_until_idle()
        return self.received


@pytest.fixture
def wiring(server: ApiServer) -> Iterator[Wiring]:
    wiring = Wiring(server)
    wiring.agenda.start()
    wiring.bus.start()
    yield wiring
    wiring.gate.set()
    wiring.bus.stop()
    wiring.agenda.stop()
    for name, bus in wiring.rules:
        wiring.client("events").remove_targets(Rule=name, EventBusName=bus, Ids=["target"])
        wiring.client("events").delete_rule(Name=name, EventBusName=bus)


def test_a_function_receives_the_whole_event(wiring: Wiring) -> None:
    wiring.rule({"source": ["lake"]})
    put_id = wiring.put({"table": "notes", "rows": [1, 2]})
    [event] = wiring.events()
    assert event.pop("time").endswith("Z")
    assert event == {
        "version": "0",
        "id": put_id,
        "detail-type": "Sequenced",
        "source": "lake",
        "account": ACCOUNT,
        "region": REGION,
        "resources": [],
        "detail": {"table": "notes", "rows": [1, 2]},
    }


def test_only_what_the_pattern_asks_for_is_delivered(wiring: Wiring) -> None:
    wiring.rule({"source": ["lake"], "detail": {"table": [{"prefix": "no"}]}})
    wiring.put({"table": "notes"})
    wiring.put({"table": "other"})
    assert [event["detail"]["table"] for event in wiring.events()] == ["notes"]


def test_a_disabled_rule_gets_nothing(wiring: Wiring) -> None:
    wiring.rule({"source": ["lake"]}, state="DISABLED")
    wiring.put({})
    assert wiring.events() == []


def test_a_rule_that_only_has_a_schedule_gets_no_events(wiring: Wiring) -> None:
    wiring.rule(None)
    wiring.put({})
    assert wiring.events() == []


def test_putting_an_event_never_waits_for_a_target(wiring: Wiring) -> None:
    wiring.rule({"source": ["lake"]})
    wiring.gate.clear()
    wiring.put({"first": True})
    wiring.put({"second": True})
    assert wiring.received == []
    wiring.gate.set()
    assert [event["detail"] for event in wiring.events()] == [{"first": True}, {"second": True}]


def test_a_target_that_is_away_is_tried_again(wiring: Wiring) -> None:
    wiring.rule({"source": ["lake"]})
    wiring.refuse = True
    wiring.put({})
    assert wiring.events() == []
    wiring.refuse = False
    wiring.clock.advance(timedelta(seconds=1))
    assert len(wiring.events()) == 1


def test_what_cannot_be_delivered_is_a_dead_letter(wiring: Wiring) -> None:
    url, queue = wiring.queue()
    name = wiring.rule(
        {"source": ["lake"]},
        RetryPolicy={"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60},
        DeadLetterConfig={"Arn": queue},
    )
    wiring.refuse = True
    wiring.put({"table": "notes"})
    [message] = wiring.messages(url)
    assert json.loads(message["Body"])["detail"] == {"table": "notes"}
    told = {key: value["StringValue"] for key, value in message["MessageAttributes"].items()}
    assert told == {
        "RULE_ARN": f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{name}",
        "TARGET_ARN": FUNCTION,
        "ERROR_CODE": "RuntimeError",
        "ERROR_MESSAGE": "Lambda is away",
        "RETRY_ATTEMPTS": "0",
        "EXHAUSTED_RETRY_CONDITION": "MaximumRetryAttempts",
    }


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"Input": '{"constant": true}'}, {"constant": True}),
        ({"InputPath": "$.detail"}, {"table": 'the "notes"', "count": 3}),
        ({"InputPath": "$.detail.table"}, 'the "notes"'),
        (
            {
                "InputTransformer": {
                    "InputPathsMap": {"t": "$.detail.table", "n": "$.detail.count", "none": "$.detail.none"},
                    "InputTemplate": '{"table": <t>, "text": "<n> in <t>", "count": <n>, "none": <none>}',
                }
            },
            {"table": 'the "notes"', "text": '3 in the "notes"', "count": 3, "none": None},
        ),
    ],
    ids=["constant", "path", "path to text", "template"],
)
def test_a_target_receives_the_form_it_asked_for(wiring: Wiring, shape: dict[str, Any], expected: Any) -> None:
    wiring.rule({"source": ["lake"]}, **shape)
    wiring.put({"table": 'the "notes"', "count": 3})
    assert wiring.events() == [expected]


def test_a_template_knows_the_rule_and_the_event(wiring: Wiring) -> None:
    template = '{"rule": "<aws.events.rule-name>", "arn": <aws.events.rule-arn>, "event": <aws.events.event.json>}'
    name = wiring.rule({"source": ["lake"]}, InputTransformer={"InputTemplate": template})
    put_id = wiring.put({"table": "notes"})
    [shaped] = wiring.events()
    assert shaped["rule"] == name
    assert shaped["arn"].endswith(f":rule/{name}")
    assert (shaped["event"]["id"], shaped["event"]["detail"]) == (put_id, {"table": "notes"})


def test_a_value_is_never_read_as_a_template() -> None:
    assert fill('{"a": <a>, "b": "<b>"}', {"a": "<b>", "b": "x"}) == '{"a": "<b>", "b": "x"}'


def test_an_undeclared_name_stays_as_it_is_written() -> None:
    assert fill('"a <b> c"', {}) == '"a <b> c"'


def test_a_queue_receives_the_event_too(wiring: Wiring) -> None:
    url, queue = wiring.queue()
    wiring.rule({"source": ["lake"]}, Arn=queue)
    wiring.put({"table": "notes"}, kind='with "quotes"')
    [message] = wiring.messages(url)
    body = json.loads(message["Body"])
    assert (body["account"], body["detail-type"]) == (ACCOUNT, 'with "quotes"')


def test_an_event_forwarded_to_another_bus_meets_the_rules_there(wiring: Wiring) -> None:
    arn = wiring.client("events").create_event_bus(Name="audit")["EventBusArn"]
    wiring.rule({"source": ["lake"]}, Arn=arn)
    wiring.rule({"source": ["lake"]}, bus="audit")
    wiring.put({"table": "notes"})
    wiring.agenda.wait_until_idle()
    assert [event["detail"] for event in wiring.events()] == [{"table": "notes"}]


def test_objects_put_to_s3_are_events_with_ids_of_their_own_on_the_default_bus_only(wiring: Wiring) -> None:
    s3 = wiring.client("s3")
    s3.create_bucket(Bucket="landing")
    s3.put_bucket_notification_configuration(
        Bucket="landing", NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    wiring.client("events").create_event_bus(Name="other")
    pattern = {"source": ["aws.s3"], "detail-type": ["Object Created"]}
    wiring.rule(pattern)
    wiring.rule(pattern, InputPath="$.id")
    wiring.rule(pattern, bus="other")
    s3.put_object(Bucket="landing", Key="a.md", Body=b"1")
    s3.put_object(Bucket="landing", Key="b.md", Body=b"2")
    first, first_id, second, second_id = wiring.events()
    assert [event["detail"]["object"]["key"] for event in (first, second)] == ["a.md", "b.md"]
    assert (first_id, second_id) == (first["id"], second["id"])
    assert first["id"] != second["id"]


def test_a_stopped_bus_leaves_moto_as_it_was(wiring: Wiring) -> None:
    started = Rule.send_to_targets
    wiring.bus.stop()
    assert Rule.send_to_targets is not started
    assert Rule.send_to_targets.__module__ == "moto.events.models"
    assert not hasattr(Rule.send_to_targets, "__wrapped__")
