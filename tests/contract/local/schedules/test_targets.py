"""A schedule delivers as on AWS: to functions, queues, buses and any API, and what becomes of a refusal."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from infra.local.emr.runner import JobRunner
from infra.local.endpoint import ACCOUNT, REGION
from infra.local.server import ApiServer
from tests.worlds.schedules import FUNCTION, ROLE, Cloud, attributes


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
