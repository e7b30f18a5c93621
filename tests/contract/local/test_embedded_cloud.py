"""A CDK app of every kind of trigger, deployed into the embedded cloud: what is declared is what is wired."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.local.assembly import resources
from infra.local.clock import ManualClock
from infra.local.cloud import EmbeddedCloud
from tests.waiting import wait_until

START = datetime(2026, 1, 1, tzinfo=UTC)
AUDIENCE = "lake-api"


class Triggers(Stack):
    """bucket -> queue -> function, schedule -> queue, HTTP -> function; a queue with dead letters."""

    def __init__(self, scope: Construct, id: str, *, issuer: str) -> None:
        super().__init__(scope, id)
        seen = s3.Bucket(self, "Seen")
        self._role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        seen.grant_put(self._role)
        dead = sqs.Queue(self, "Dead", queue_name="dead")
        letters = sqs.DeadLetterQueue(queue=dead, max_receive_count=2)
        work = sqs.Queue(
            self, "Work", queue_name="work", visibility_timeout=Duration.seconds(1), dead_letter_queue=letters
        )
        keeper = self._function("keeper", "tests.handlers.batches.handler", {"BUCKET": seen.bucket_name})
        lambda_.CfnEventSourceMapping(
            self, "Mapping", function_name=keeper.ref, event_source_arn=work.queue_arn, batch_size=1
        )
        self._landing(work)
        scheduler.CfnSchedule(
            self,
            "Hourly",
            schedule_expression="cron(30 * * * ? *)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=work.queue_arn, role_arn=self._role.role_arn, input='{"tick": true}'
            ),
        )
        self._api(self._function("echo", "tests.handlers.echo.handler", {}), issuer)

    def _function(self, name: str, command: str, variables: dict[str, str]) -> lambda_.CfnFunction:
        return lambda_.CfnFunction(
            self,
            name.capitalize(),
            function_name=name,
            package_type="Image",
            code=lambda_.CfnFunction.CodeProperty(image_uri="registry/strandline:test"),
            image_config=lambda_.CfnFunction.ImageConfigProperty(command=[command]),
            role=self._role.role_arn,
            timeout=30,
            environment=lambda_.CfnFunction.EnvironmentProperty(variables=variables),
        )

    def _landing(self, queue: sqs.Queue) -> None:
        event = s3.CfnBucket.QueueConfigurationProperty(event="s3:ObjectCreated:*", queue=queue.queue_arn)
        s3.CfnBucket(
            self,
            "Landing",
            versioning_configuration=s3.CfnBucket.VersioningConfigurationProperty(status="Enabled"),
            notification_configuration=s3.CfnBucket.NotificationConfigurationProperty(queue_configurations=[event]),
        )

    def _api(self, function: lambda_.CfnFunction, issuer: str) -> None:
        api = apigateway.CfnApi(self, "Api", name="lake", protocol_type="HTTP")
        integration = apigateway.CfnIntegration(
            self,
            "Integration",
            api_id=api.ref,
            integration_type="AWS_PROXY",
            integration_uri=function.attr_arn,
            payload_format_version="2.0",
        )
        jwt = apigateway.CfnAuthorizer.JWTConfigurationProperty(audience=[AUDIENCE], issuer=issuer)
        authorizer = apigateway.CfnAuthorizer(
            self,
            "Authorizer",
            api_id=api.ref,
            authorizer_type="JWT",
            name="jwt",
            identity_source=["$request.header.Authorization"],
            jwt_configuration=jwt,
        )
        apigateway.CfnRoute(
            self,
            "Route",
            api_id=api.ref,
            route_key="GET /tables/{table}",
            target=f"integrations/{integration.ref}",
            authorization_type="JWT",
            authorizer_id=authorizer.ref,
        )
        apigateway.CfnStage(self, "Stage", api_id=api.ref, stage_name="$default", auto_deploy=True)


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmbeddedCloud]:
    def app(context: dict[str, Any], outdir: str) -> App:
        made = App(context=context, outdir=outdir, analytics_reporting=False)
        Triggers(made, "triggers", issuer=cloud.gateway.issuer.url)
        return made

    cloud = EmbeddedCloud(clock=ManualClock(START), app=app)
    with cloud:
        yield cloud


def seen_bodies(cloud: EmbeddedCloud) -> list[dict[str, Any]]:
    """The bodies of all SQS records that reached the function, in no order."""
    client, bucket = cloud.endpoint.client("s3"), resources(cloud.endpoint, "AWS::S3::Bucket")
    name = next(physical for logical, physical in bucket.items() if logical.startswith("Seen"))
    events = [
        json.loads(client.get_object(Bucket=name, Key=item["Key"])["Body"].read())
        for item in client.list_objects_v2(Bucket=name).get("Contents", [])
    ]
    return [json.loads(record["body"]) for event in events for record in event["Records"] if record["body"][0] == "{"]


def test_a_dropped_file_reaches_the_bound_function_as_aws_sends_it(cloud: EmbeddedCloud) -> None:
    bucket = resources(cloud.endpoint, "AWS::S3::Bucket")["Landing"]
    cloud.endpoint.client("s3", "person").put_object(Bucket=bucket, Key="landing/notes/tide pool.md", Body=b"# Tide")
    records = wait_until(
        lambda: [record for body in seen_bodies(cloud) for record in body.get("Records", [])], "the event of the file"
    )
    record, *again = records
    assert again == [record] * len(again)  # its queue delivers at least once, and on a loaded machine it does
    assert record["eventSource"] == "aws:s3"
    assert record["eventName"] == "ObjectCreated:Put"
    assert record["s3"]["bucket"]["name"] == bucket
    assert record["s3"]["object"]["key"] == "landing/notes/tide+pool.md"
    assert record["s3"]["object"]["size"] == 6


def test_a_schedule_fires_when_the_clock_passes_it(cloud: EmbeddedCloud) -> None:
    clock = cloud.clock
    assert isinstance(clock, ManualClock)
    assert {"tick": True} not in seen_bodies(cloud)
    clock.advance(timedelta(minutes=31))
    wait_until(lambda: {"tick": True} in seen_bodies(cloud), "the schedule's message")


def test_a_poisoned_message_is_a_dead_letter_after_its_receives(cloud: EmbeddedCloud) -> None:
    queues = resources(cloud.endpoint, "AWS::SQS::Queue")
    work, dead = (next(url for url in queues.values() if url.endswith(name)) for name in ("/work", "/dead"))
    client = cloud.endpoint.client("sqs")
    client.send_message(QueueUrl=work, MessageBody="raise")
    letters = wait_until(lambda: client.receive_message(QueueUrl=dead).get("Messages"), "the dead letter")
    assert [message["Body"] for message in letters] == ["raise"]

    def failures() -> list[str]:
        return [line for line in cloud.functions.logs("keeper") if "RuntimeError: told to fail" in line]

    wait_until(lambda: len(failures()) >= 2, "two failed calls")  # a slow one may still run when its message is moved
    assert len(failures()) == 2


class TestHttp:
    def get(self, cloud: EmbeddedCloud, token: str | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.get(f"{cloud.gateway.url}/tables/notes?limit=3", headers=headers, timeout=60)

    def test_a_request_becomes_a_v2_payload_behind_the_authorizer(self, cloud: EmbeddedCloud) -> None:
        token = cloud.gateway.issuer.token("ada", AUDIENCE, roles=["reader"])
        answer = self.get(cloud, token)
        assert answer.status_code == 200
        event = answer.json()["event"]
        assert event["version"] == "2.0"
        assert event["routeKey"] == "GET /tables/{table}"
        assert event["pathParameters"] == {"table": "notes"}
        assert event["queryStringParameters"] == {"limit": "3"}
        assert event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] == "ada"

    def test_without_a_token_there_is_no_way_in(self, cloud: EmbeddedCloud) -> None:
        assert self.get(cloud, None).status_code == 401
        assert self.get(cloud, cloud.gateway.issuer.token("ada", "another-api")).status_code == 401


def test_two_clouds_in_two_processes_and_nothing_left_behind(tmp_path: Path) -> None:
    """`strandline dev` twice at once, each on a port of its own; SIGTERM ends all their processes."""
    command = [sys.executable, "-X", "faulthandler", "-m", "cli.main", "--output", "json", "dev", "--port", "0"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    family: list[psutil.Process] = []
    try:
        told = [json.loads(process.stdout.readline()) for process in running if process.stdout]
        endpoints = {answer["environment"]["AWS_ENDPOINT_URL"] for answer in told}
        assert len(endpoints) == 2
        assert all(answer["environment"]["STRANDLINE_BUCKET"] for answer in told)
        for url in endpoints:
            assert httpx.get(f"{url}/_strandline/status", timeout=30).json()["stacks"]
        family = [child for process in running for child in psutil.Process(process.pid).children(recursive=True)]
    finally:
        for process in running:
            process.terminate()
        codes = [_exit_code(process) for process in running]
    assert codes == [0, 0]
    psutil.wait_procs(family, timeout=5)
    assert [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


def _exit_code(process: subprocess.Popen[str]) -> int:
    """A process that does not end is aborted, so that the failure shows where its threads were."""
    try:
        return process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        return process.wait(timeout=30)
