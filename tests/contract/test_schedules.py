"""Schedules and scheduled rules fire as on AWS: when, with what, to whom, and what becomes of a refusal."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.local.clock import ManualClock
from infra.local.emr.runner import JobRunner
from infra.local.endpoint import ACCOUNT, REGION
from infra.local.eventbridge.agenda import Agenda
from infra.local.eventbridge.bus import Bus
from infra.local.eventbridge.schedules import Schedules
from infra.local.eventbridge.targets import Targets
from infra.local.server import ApiServer

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FUNCTION = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:sweep"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/scheduler"


class RefusalError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(f"refused with {code}")
        self.code = code


class Cloud:
    """Schedules and bus over one API server, on a clock that stands still, with Lambda played by a list."""

    def __init__(self, server: ApiServer) -> None:
        self.client = server.endpoint.client
        self.clock = ManualClock(START)
        self.agenda = Agenda(self.clock)
        self.events: list[tuple[datetime, str, Any]] = []
        self.refusals: list[str] = []
        targets = Targets(server.endpoint, self.invoke_async, self.agenda)
        self.schedules = Schedules(server.endpoint, server.log, targets, self.agenda)
        self.bus = Bus(targets, self.clock)

    def invoke_async(self, function_name: str, payload: bytes, /) -> str:
        if self.refusals:
            raise RefusalError(self.refusals.pop(0))
        self.events.append((self.clock.now(), function_name, json.loads(payload)))
        return "request-id"

    def schedule(self, expression: str, target: dict[str, Any] | None = None, **more: Any) -> str:
        name = more.pop("Name", f"s-{uuid.uuid4().hex[:8]}")
        self.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": FUNCTION, "RoleArn": ROLE, **(target or {})},
            **more,
        )
        self.sync()
        return str(name)

    def rule(self, expression: str, *targets: dict[str, Any], **more: Any) -> str:
        name = f"r-{uuid.uuid4().hex[:8]}"
        events = self.client("events")
        events.put_rule(Name=name, ScheduleExpression=expression, **more)
        events.put_targets(Rule=name, Targets=[{"Id": str(at), **one} for at, one in enumerate(targets)])
        self.sync()
        return name

    def queue(self, **attributes: str) -> tuple[str, str]:
        name = f"q-{uuid.uuid4().hex[:8]}" + (".fifo" if attributes else "")
        url = self.client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return url, f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"

    def messages(self, url: str) -> list[dict[str, Any]]:
        answer = self.client("sqs").receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        return list(answer.get("Messages", []))

    def sync(self) -> None:
        self.schedules.sync()
        self.agenda.settle()

    def move(self, step: timedelta) -> None:
        self.clock.advance(step)
        self.agenda.settle()

    @property
    def times(self) -> list[str]:
        return [event["time"] for _, _, event in self.events]


@pytest.fixture
def cloud(server: ApiServer) -> Iterator[Cloud]:
    cloud = Cloud(server)
    cloud.agenda.start()
    cloud.schedules.start()
    cloud.bus.start()
    yield cloud
    cloud.bus.stop()
    cloud.schedules.stop()
    cloud.agenda.stop()
    scheduler, events = cloud.client("scheduler"), cloud.client("events")
    for one in scheduler.list_schedules()["Schedules"]:
        scheduler.delete_schedule(GroupName=one["GroupName"], Name=one["Name"])
    for rule in events.list_rules()["Rules"]:
        ids = [target["Id"] for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]]
        if ids:
            events.remove_targets(Rule=rule["Name"], Ids=ids)
        events.delete_rule(Name=rule["Name"])


def test_a_schedule_with_a_rate_fires_at_once_and_then_every_period(cloud: Cloud) -> None:
    name = cloud.schedule("rate(20 minutes)")
    assert cloud.times == ["2026-01-01T00:00:00Z"]
    cloud.move(20 * MINUTE)
    cloud.move(19 * MINUTE)
    assert cloud.times == ["2026-01-01T00:00:00Z", "2026-01-01T00:20:00Z"]
    _, function, event = cloud.events[0]
    assert function == "sweep"
    assert event["resources"] == [f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{name}"]
    assert (event["source"], event["detail-type"], event["detail"]) == (
        "aws.scheduler",
        "Scheduled Event",
        "{}",
    )


@pytest.mark.parametrize("expression", ["rate(20 minutes)", "cron(0/20 * * * ? *)"])
def test_a_jump_over_several_ticks_fires_each_of_them_in_order(cloud: Cloud, expression: str) -> None:
    cloud.schedule(expression)
    cloud.events.clear()
    cloud.move(65 * MINUTE)
    assert cloud.times == ["2026-01-01T00:20:00Z", "2026-01-01T00:40:00Z", "2026-01-01T01:00:00Z"]


def test_two_schedules_fire_in_the_order_of_their_instants(cloud: Cloud) -> None:
    cloud.schedule("cron(30 * * * ? *)", {"Input": '{"time": "half"}'})
    cloud.schedule("cron(0 * * * ? *)", {"Input": '{"time": "full"}'})
    cloud.move(timedelta(hours=2))
    assert cloud.times == ["half", "full", "half", "full"]


def test_a_rule_with_a_rate_fires_first_after_one_period(cloud: Cloud) -> None:
    name = cloud.rule("rate(5 minutes)", {"Arn": FUNCTION})
    assert cloud.events == []
    cloud.move(5 * MINUTE)
    [(_, function, event)] = cloud.events
    assert function == "sweep"
    assert uuid.UUID(event.pop("id"))
    assert event == {
        "version": "0",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": "2026-01-01T00:05:00Z",
        "region": REGION,
        "resources": [f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{name}"],
        "detail": {},
    }


def test_a_rule_fires_every_target_with_the_input_of_each(cloud: Cloud) -> None:
    cloud.rule(
        "rate(1 hour)",
        {"Arn": FUNCTION, "Input": '{"time": "constant"}'},
        {"Arn": FUNCTION, "InputPath": "$.resources"},
    )
    cloud.move(timedelta(hours=1))
    [constant, path] = [event for _, _, event in cloud.events]
    assert constant == {"time": "constant"}
    assert path[0].startswith("arn:aws:events:")


def test_a_cron_in_a_time_zone_fires_by_that_zones_wall_clock(cloud: Cloud) -> None:
    cloud.schedule("cron(0 3 * * ? *)", ScheduleExpressionTimezone="Europe/Helsinki")
    cloud.move(timedelta(hours=2))
    assert cloud.times == ["2026-01-01T01:00:00Z"]


def test_a_one_time_schedule_fires_once_and_is_deleted_when_asked(cloud: Cloud) -> None:
    name = cloud.schedule("at(2026-01-01T06:00:00)", ActionAfterCompletion="DELETE")
    kept = cloud.schedule("at(2026-01-01T07:00:00)")
    cloud.move(timedelta(hours=12))
    cloud.sync()
    cloud.move(timedelta(days=400))
    assert cloud.times == ["2026-01-01T06:00:00Z", "2026-01-01T07:00:00Z"]
    left = [one["Name"] for one in cloud.client("scheduler").list_schedules()["Schedules"]]
    assert kept in left and name not in left


def test_start_and_end_dates_bound_a_schedule(cloud: Cloud) -> None:
    cloud.schedule("rate(10 minutes)", StartDate=START + 25 * MINUTE, EndDate=START + 45 * MINUTE)
    cloud.move(timedelta(hours=3))
    assert cloud.times == ["2026-01-01T00:25:00Z", "2026-01-01T00:35:00Z", "2026-01-01T00:45:00Z"]


def test_a_disabled_schedule_is_silent_until_it_is_enabled(cloud: Cloud) -> None:
    name = cloud.schedule("cron(0 * * * ? *)", State="DISABLED")
    cloud.move(timedelta(hours=2))
    assert cloud.events == []
    update(cloud, name, State="ENABLED")
    cloud.sync()
    cloud.move(timedelta(hours=1))
    assert cloud.times == ["2026-01-01T03:00:00Z"]


def test_what_is_disabled_or_deleted_before_its_tick_does_not_fire(cloud: Cloud) -> None:
    disabled, deleted = cloud.schedule("cron(0 * * * ? *)"), cloud.schedule("cron(0 * * * ? *)")
    rule = cloud.rule("cron(0 * * * ? *)", {"Arn": FUNCTION})
    cloud.move(timedelta(minutes=59, seconds=59, milliseconds=500))
    update(cloud, disabled, State="DISABLED")
    cloud.client("scheduler").delete_schedule(Name=deleted)
    cloud.client("events").disable_rule(Name=rule)
    cloud.move(timedelta(milliseconds=500))  # nobody called sync: the tick itself looks
    assert cloud.events == []


def test_a_new_schedule_is_noticed_without_being_told(cloud: Cloud) -> None:
    cloud.client("scheduler").create_schedule(
        Name="unannounced",
        ScheduleExpression="rate(1 hour)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": FUNCTION, "RoleArn": ROLE},
    )
    cloud.move(timedelta(seconds=1))
    assert cloud.times == ["2026-01-01T00:00:01Z"]


def test_another_target_keeps_the_rhythm_and_another_rate_starts_anew(cloud: Cloud) -> None:
    name = cloud.schedule("rate(1 hour)")
    cloud.move(30 * MINUTE)
    update(cloud, name, Target={"Arn": FUNCTION, "RoleArn": ROLE, "Input": '{"time": "new target"}'})
    cloud.sync()
    assert len(cloud.events) == 1
    cloud.move(30 * MINUTE)
    assert cloud.times[1:] == ["new target"]
    cloud.events.clear()
    cloud.move(30 * MINUTE)
    update(cloud, name, ScheduleExpression="rate(2 hours)")
    cloud.sync()
    cloud.move(timedelta(hours=2))
    assert [at for at, _, _ in cloud.events] == [START + 90 * MINUTE, START + 210 * MINUTE]


def update(cloud: Cloud, name: str, **changes: Any) -> None:
    scheduler = cloud.client("scheduler")
    now = scheduler.get_schedule(Name=name)
    kept = {key: now[key] for key in ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target", "State")}
    scheduler.update_schedule(**{**kept, **changes})


def test_schedules_of_the_same_name_in_two_groups_are_two(cloud: Cloud) -> None:
    cloud.client("scheduler").create_schedule_group(Name="night")
    cloud.schedule("cron(0 1 * * ? *)", {"Input": '{"time": "default"}'}, Name="same")
    cloud.schedule("cron(0 2 * * ? *)", {"Input": '{"time": "night"}'}, Name="same", GroupName="night")
    cloud.move(timedelta(hours=3))
    assert cloud.times == ["default", "night"]


def test_the_input_carries_the_context_of_this_execution(cloud: Cloud) -> None:
    given = {
        key: f"<aws.scheduler.{key}>" for key in ("schedule-arn", "scheduled-time", "execution-id", "attempt-number")
    }
    name = cloud.schedule("rate(1 hour)", {"Input": json.dumps(given)})
    cloud.move(timedelta(hours=1))
    first, second = (event for _, _, event in cloud.events)
    assert first["schedule-arn"].endswith(f":schedule/default/{name}")
    assert (first["scheduled-time"], second["scheduled-time"]) == (
        "2026-01-01T00:00:00Z",
        "2026-01-01T01:00:00Z",
    )
    assert first["execution-id"] != second["execution-id"]
    assert first["attempt-number"] == "1"


def test_a_queue_receives_the_input(cloud: Cloud) -> None:
    url, arn = cloud.queue()
    cloud.schedule("rate(1 hour)", {"Arn": arn, "Input": "plain text"})
    assert [message["Body"] for message in cloud.messages(url)] == ["plain text"]


def test_a_fifo_queue_receives_the_input_in_its_group(cloud: Cloud) -> None:
    url, arn = cloud.queue(FifoQueue="true", ContentBasedDeduplication="true")
    cloud.schedule("rate(1 hour)", {"Arn": arn, "Input": "x", "SqsParameters": {"MessageGroupId": "lane"}})
    [message] = cloud.messages(url)
    assert message["Attributes"]["MessageGroupId"] == "lane"


def test_an_event_bus_receives_an_event_of_the_schedules_kind(cloud: Cloud) -> None:
    url, queue = cloud.queue()
    events = cloud.client("events")
    events.put_rule(Name="compaction", EventPattern=json.dumps({"source": ["lake"], "detail-type": ["Due"]}))
    events.put_targets(Rule="compaction", Targets=[{"Id": "q", "Arn": queue}])
    bus = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default"
    kind = {"Source": "lake", "DetailType": "Due"}
    cloud.schedule("rate(1 hour)", {"Arn": bus, "EventBridgeParameters": kind, "Input": '{"table": "notes"}'})
    [message] = cloud.messages(url)
    assert json.loads(message["Body"])["detail"] == {"table": "notes"}


@pytest.fixture
def jobs(server: ApiServer) -> Iterator[JobRunner]:
    """StartJobRun wants somebody who runs jobs; what becomes of the job is not this file's concern."""
    runner = JobRunner(server.endpoint)
    yield runner
    runner.stop()


@pytest.mark.usefixtures("jobs")
def test_a_universal_target_calls_the_api_with_the_models_own_names(cloud: Cloud) -> None:
    emr = cloud.client("emr-serverless")
    application = emr.create_application(name="spark", releaseLabel="emr-7.0.0", type="SPARK")["applicationId"]
    spark = {"EntryPoint": "s3://code/compact.py", "EntryPointArguments": ["--table", "notes"]}
    given = {"ApplicationId": application, "ExecutionRoleArn": ROLE, "JobDriver": {"SparkSubmit": spark}}
    cloud.schedule(
        "rate(1 hour)",
        {"Arn": "arn:aws:scheduler:::aws-sdk:emrserverless:startJobRun", "Input": json.dumps(given)},
    )
    [run] = emr.list_job_runs(applicationId=application)["jobRuns"]
    job = emr.get_job_run(applicationId=application, jobRunId=run["id"])["jobRun"]
    assert job["jobDriver"]["sparkSubmit"]["entryPoint"] == "s3://code/compact.py"
    assert job["jobDriver"]["sparkSubmit"]["entryPointArguments"] == ["--table", "notes"]


def test_a_universal_target_names_services_as_the_sdk_does(cloud: Cloud) -> None:
    url, queue = cloud.queue()
    events = cloud.client("events")
    events.put_rule(Name="universal", EventPattern=json.dumps({"source": ["universal"]}))
    events.put_targets(Rule="universal", Targets=[{"Id": "q", "Arn": queue}])
    entry = {"Source": "universal", "DetailType": "Due", "Detail": "{}"}
    cloud.schedule(
        "rate(1 hour)",
        {
            "Arn": "arn:aws:scheduler:::aws-sdk:eventbridge:putEvents",
            "Input": json.dumps({"Entries": [entry]}),
        },
    )
    assert len(cloud.messages(url)) == 1


def attributes(message: dict[str, Any]) -> dict[str, str]:
    return {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}


def test_a_target_that_refuses_is_tried_again_and_told_the_attempt(cloud: Cloud) -> None:
    cloud.refusals = ["TooManyRequestsException", "ServiceException"]
    cloud.schedule("rate(1 day)", {"Input": '{"attempt": <aws.scheduler.attempt-number>}'})
    assert cloud.events == []
    cloud.move(timedelta(seconds=1))
    assert cloud.events == []
    cloud.move(timedelta(seconds=1))
    assert cloud.events == []
    cloud.move(timedelta(seconds=1))
    assert [event for _, _, event in cloud.events] == [{"attempt": 3}]


def test_after_its_retries_an_event_is_a_dead_letter_with_the_reason(cloud: Cloud) -> None:
    url, queue = cloud.queue()
    cloud.refusals = ["ServiceException"] * 9
    policy = {"MaximumRetryAttempts": 2, "MaximumEventAgeInSeconds": 3600}
    name = cloud.schedule(
        "rate(1 day)",
        {"Input": '{"table": "notes"}', "RetryPolicy": policy, "DeadLetterConfig": {"Arn": queue}},
    )
    cloud.move(timedelta(seconds=1))
    assert cloud.messages(url) == []
    cloud.move(timedelta(seconds=2))
    [message] = cloud.messages(url)
    assert len(cloud.refusals) == 6
    assert message["Body"] == '{"table": "notes"}'
    told = attributes(message)
    assert uuid.UUID(told.pop("EXECUTION_ID"))
    assert told == {
        "ERROR_CODE": "ServiceException",
        "ERROR_MESSAGE": "refused with ServiceException",
        "EXHAUSTED_RETRY_CONDITION": "MaximumRetryAttempts",
        "IS_PAYLOAD_TRUNCATED": "false",
        "RETRY_ATTEMPTS": "2",
        "SCHEDULED_TIME": "2026-01-01T00:00:00Z",
        "SCHEDULE_ARN": f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{name}",
        "TARGET_ARN": FUNCTION,
    }


def test_an_event_too_old_to_try_again_is_a_dead_letter(cloud: Cloud) -> None:
    url, queue = cloud.queue()
    cloud.refusals = ["ServiceException"] * 50
    policy = {"MaximumRetryAttempts": 185, "MaximumEventAgeInSeconds": 60}
    cloud.schedule("rate(1 day)", {"RetryPolicy": policy, "DeadLetterConfig": {"Arn": queue}})
    for _ in range(60):
        cloud.move(timedelta(seconds=1))
    [message] = cloud.messages(url)
    assert attributes(message)["EXHAUSTED_RETRY_CONDITION"] == "MaximumEventAgeInSeconds"
    assert attributes(message)["RETRY_ATTEMPTS"] == "5"  # after 1, 3, 7, 15 and 31 s; the next would be at 63 s


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ({"Arn": FUNCTION}, "ResourceNotFoundException"),
        ({"Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:nowhere"}, "AWS.SimpleQueueService.NonExistentQueue"),
        ({"Arn": f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:x"}, "InvalidParameterException"),
        ({"Arn": "arn:aws:scheduler:::aws-sdk:sqs:fly"}, "ValidationException"),
        ({"Arn": "arn:aws:scheduler:::aws-sdk:sqs:sendMessage", "Input": "not JSON"}, "ValidationException"),
        (
            {"Arn": "arn:aws:scheduler:::aws-sdk:sqs:sendMessage", "Input": '{"Boy": 1}'},
            "ValidationException",
        ),
    ],
)
def test_what_no_retry_can_mend_is_a_dead_letter_at_once(cloud: Cloud, target: dict[str, str], code: str) -> None:
    url, queue = cloud.queue()
    cloud.refusals = ["ResourceNotFoundException"]
    cloud.schedule("rate(1 day)", {**target, "DeadLetterConfig": {"Arn": queue}})
    [message] = cloud.messages(url)
    told = attributes(message)
    assert (told["ERROR_CODE"], told["RETRY_ATTEMPTS"]) == (code, "0")
    assert "EXHAUSTED_RETRY_CONDITION" not in told


def test_an_expression_that_aws_would_not_take_is_named_and_stops_nobody_else(cloud: Cloud) -> None:
    cloud.schedule("cron(0 1 * * ? *)")
    with pytest.raises(ValueError, match=r"schedule/default/broken.*every day"):
        cloud.schedule("every day", Name="broken")
    cloud.move(timedelta(hours=1))
    assert cloud.times == ["2026-01-01T01:00:00Z"]
