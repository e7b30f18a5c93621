"""Laws of every template: whatever the stacks grow into, these stay true, or infra/reasons.py says why not."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.core.sequencer_queue import GROUP
from infra.local.quotas import NEW_ACCOUNT
from infra.reasons import UNRESERVED, unexplained
from tests.infra.stages import STAGES, listed, of_type, resources, templates, text_of

pytestmark = pytest.mark.parametrize("stage", STAGES)

# A function's disk is memory that it shares with nobody; all else that keeps bytes is S3.
DISKS = (
    "EphemeralStorage",
    "FileSystemConfigs",
    "AWS::EFS",
    "AWS::FSx",
    "AWS::EC2::Volume",
    "BlockDeviceMappings",
    "WorkerTypeSpecifications",
    "InitialCapacity",
    '"Disk"',
)
SECRETS = re.compile(r"SECRET|PASSWORD|TOKEN|PRIVATE|CREDENTIAL", re.I)


def functions(stage: str) -> dict[str, dict[str, Any]]:
    """By the last word of their names."""
    return {one["FunctionName"].rpartition("-")[2]: one for one in of_type(stage, "AWS::Lambda::Function").values()}


def statements(stage: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every statement of every policy: of roles, buckets, queues, topics; and of keys, which are marked."""
    for name, body in resources(stage).items():
        properties = body.get("Properties", {})
        for key in ("PolicyDocument", "KeyPolicy", "AssumeRolePolicyDocument"):
            for statement in properties.get(key, {}).get("Statement", []):
                yield name, statement, key == "KeyPolicy"
        for inline in properties.get("Policies", []) if body["Type"] == "AWS::IAM::Role" else []:
            for statement in inline["PolicyDocument"]["Statement"]:
                yield name, statement, False


class TestFunctions:
    def test_there_are_some(self, stage: str) -> None:
        assert {"ingest", "sequencer", "api"} <= functions(stage).keys()

    def test_its_handler_exists(self, stage: str) -> None:
        for name, properties in functions(stage).items():
            module, _, handler = properties["ImageConfig"]["Command"][0].rpartition(".")
            assert callable(getattr(importlib.import_module(module), handler)), name

    def test_it_has_time_out_memory_and_a_log_that_ends(self, stage: str) -> None:
        logs = {name.rpartition("/")[2]: log for name, log in of_type(stage, "AWS::Logs::LogGroup").items()}
        for name, properties in functions(stage).items():
            assert 0 < properties["Timeout"] <= 900 and properties["MemorySize"] >= 128, name
            log = logs[properties["LoggingConfig"]["LogGroup"]["Ref"]]
            assert log["RetentionInDays"] <= 365, name
        assert all("RetentionInDays" in log for log in logs.values())

    def test_how_many_run_at_once_is_decided(self, stage: str) -> None:
        for name, properties in functions(stage).items():
            assert "ReservedConcurrentExecutions" in properties or UNRESERVED[name]

    def test_the_sequencer_is_alone(self, stage: str) -> None:
        """By its queue: Lambda has one batch of a FIFO queue's message group in flight."""
        (queue,) = [q for q in of_type(stage, "AWS::SQS::Queue").values() if q["QueueName"].endswith("-moved.fifo")]
        assert queue["FifoQueue"] is True
        (sweep,) = [s for name, s in of_type(stage, "AWS::Scheduler::Schedule").items() if "Sweep" in name]
        assert sweep["Target"]["SqsParameters"] == {"MessageGroupId": GROUP}

    def test_a_new_account_can_have_them(self, stage: str) -> None:
        """It has ten concurrent executions and may reserve none; ingestion leaves some for the others."""
        for name, properties in functions(stage).items():
            assert "ReservedConcurrentExecutions" not in properties, name
        limits = [
            mapping["ScalingConfig"]["MaximumConcurrency"]
            for mapping in of_type(stage, "AWS::Lambda::EventSourceMapping").values()
            if "ScalingConfig" in mapping
        ]
        assert sum(limits) <= NEW_ACCOUNT.lambda_concurrency // 2

    def test_its_environment_names_no_secret_and_is_encrypted_with_the_lakes_key_where_there_is_one(
        self, stage: str
    ) -> None:
        keyed = any("KeySpec" not in key for key in of_type(stage, "AWS::KMS::Key").values())
        for name, properties in functions(stage).items():
            assert not [key for key in properties["Environment"]["Variables"] if SECRETS.search(key)], name
            assert ("KmsKeyArn" in properties) == keyed, name

    def test_what_it_could_not_do_is_kept(self, stage: str) -> None:
        """Queues redrive, so functions behind them lose nothing; nothing else may invoke one asynchronously."""
        queues = {name.rpartition("/")[2]: queue for name, queue in of_type(stage, "AWS::SQS::Queue").items()}
        mappings = of_type(stage, "AWS::Lambda::EventSourceMapping")
        assert mappings
        for name, mapping in mappings.items():
            (source,) = [q for logical, q in queues.items() if logical in text_of(mapping["EventSourceArn"])]
            assert source["RedrivePolicy"]["maxReceiveCount"] >= 2, name
            assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"], name
        with_dead_letters = {name for name, one in functions(stage).items() if "DeadLetterConfig" in one}
        for name, permission in of_type(stage, "AWS::Lambda::Permission").items():
            assert permission["Principal"] == "apigateway.amazonaws.com" or name in with_dead_letters, name

    def test_its_queue_hides_a_message_for_as_long_as_it_may_run(self, stage: str) -> None:
        """Lambda refuses any other mapping: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html."""
        queues = {name.rpartition("/")[2]: queue for name, queue in of_type(stage, "AWS::SQS::Queue").items()}
        by_id = {name.rpartition("/")[2]: one for name, one in of_type(stage, "AWS::Lambda::Function").items()}
        for name, mapping in of_type(stage, "AWS::Lambda::EventSourceMapping").items():
            (source,) = [q for logical, q in queues.items() if logical in text_of(mapping["EventSourceArn"])]
            assert source["VisibilityTimeout"] >= by_id[mapping["FunctionName"]["Ref"]]["Timeout"], name

    def test_only_a_queues_own_function_changes_the_visibility_of_its_messages(self, stage: str) -> None:
        changing = {
            name: [text_of(resource) for resource in listed(statement["Resource"])]
            for name, statement, _ in statements(stage)
            if "sqs:ChangeMessageVisibility" in listed(statement["Action"])
        }
        erases = [("Erase", "Erasures")] if "erase" in functions(stage) else []
        assert len(changing) == 2 + len(erases)
        for role, queue in (("Ingest", "Landed"), ("Sequencer", "Moved"), *erases):
            ((name, granted),) = [(name, arns) for name, arns in changing.items() if role in name]
            assert len(granted) == 1 and queue in granted[0], name


class TestSchedules:
    def test_what_could_not_be_delivered_is_kept(self, stage: str) -> None:
        schedules = of_type(stage, "AWS::Scheduler::Schedule")
        assert schedules
        for name, schedule in schedules.items():
            assert schedule["Target"]["RetryPolicy"]["MaximumRetryAttempts"] > 0, name
            assert "Undelivered" in text_of(schedule["Target"]["DeadLetterConfig"]["Arn"]), name


class TestWhatKeepsBytes:
    def test_a_bucket_is_private_versioned_encrypted_and_tidied(self, stage: str) -> None:
        buckets = of_type(stage, "AWS::S3::Bucket")
        assert len(buckets) >= 2
        for name, properties in buckets.items():
            assert all(properties["PublicAccessBlockConfiguration"].values()), name
            assert len(properties["PublicAccessBlockConfiguration"]) == 4, name
            assert properties["VersioningConfiguration"] == {"Status": "Enabled"}, name
            assert "BucketEncryption" in properties, name
            rules = properties["LifecycleConfiguration"]["Rules"]
            assert any("NoncurrentVersionExpiration" in rule and "Prefix" not in rule for rule in rules), name
            assert any("AbortIncompleteMultipartUpload" in rule and "Prefix" not in rule for rule in rules), name

    def test_the_lakes_bucket_says_who_asked_for_what(self, stage: str) -> None:
        (lake,) = [one for name, one in of_type(stage, "AWS::S3::Bucket").items() if "/Lake" in name]
        assert "AccessLogs" in text_of(lake["LoggingConfiguration"]["DestinationBucketName"])

    def test_a_queue_is_encrypted_and_redrives_or_is_where_dead_letters_go(self, stage: str) -> None:
        queues = of_type(stage, "AWS::SQS::Queue")
        assert queues
        for name, queue in queues.items():
            assert queue.get("SqsManagedSseEnabled") or "KmsMasterKeyId" in queue, name
            dead = queue["QueueName"].removesuffix(".fifo").endswith(("-dead", "-undelivered"))
            assert ("RedrivePolicy" in queue) != dead, name
            assert not dead or queue["MessageRetentionPeriod"] == 14 * 24 * 3600, name

    @pytest.mark.parametrize(
        ("type_", "policy", "field"),
        [
            ("AWS::S3::Bucket", "AWS::S3::BucketPolicy", "Bucket"),
            ("AWS::SQS::Queue", "AWS::SQS::QueuePolicy", "Queues"),
            ("AWS::SNS::Topic", "AWS::SNS::TopicPolicy", "Topics"),
        ],
    )
    def test_it_is_reached_by_tls_only(self, stage: str, type_: str, policy: str, field: str) -> None:
        secured = {
            text_of(one).strip("${}")
            for properties in of_type(stage, policy).values()
            for one in listed(properties[field])
            if any(_denies_plain_http(statement) for statement in properties["PolicyDocument"]["Statement"])
        }
        assert {name.rpartition("/")[2] for name in of_type(stage, type_)} == secured

    def test_a_key_is_rotated(self, stage: str) -> None:
        """Or signs: KMS rotates no asymmetric key, and a new one is an entry of the published keyring."""
        for key in of_type(stage, "AWS::KMS::Key").values():
            assert key.get("EnableKeyRotation") or key["KeyUsage"] == "SIGN_VERIFY"

    def test_nothing_asks_for_a_disk(self, stage: str) -> None:
        text = json.dumps([template.body for template in templates(stage)])
        assert not [word for word in DISKS if word in text]


class TestPolicies:
    def test_a_wildcard_has_a_reason(self, stage: str) -> None:
        policy_statements = list(statements(stage))
        assert len(policy_statements) > 30
        wild = [
            (name, text, bad)
            for name, statement, in_key in policy_statements
            if statement["Effect"] == "Allow"
            for resource in listed(statement.get("Resource", ""))
            for text in [("key policy: " if in_key else "") + text_of(resource)]
            if (bad := unexplained(iter(listed(statement["Action"])), text))
        ]
        assert wild == []

    def test_nobody_unknown_is_trusted(self, stage: str) -> None:
        for name, statement, _ in statements(stage):
            if statement["Effect"] == "Allow" and "Principal" in statement:
                assert statement["Principal"] != "*", name
                assert "*" not in listed(statement["Principal"].get("AWS", "")), name

    def test_a_service_that_may_come_in_comes_from_this_account(self, stage: str) -> None:
        """Or any account's bucket, alarm or distribution could use ours: the confused deputy."""
        for name, statement, _ in statements(stage):
            if (
                statement["Effect"] == "Allow"
                and "Service" in statement.get("Principal", {})
                and "Resource" in statement
            ):
                said = json.dumps(statement.get("Condition", {}))
                assert "aws:SourceAccount" in said or "aws:SourceArn" in said, (name, statement)

    def test_a_service_that_sends_to_a_queue_is_named_by_what_sends(self, stage: str) -> None:
        """The account is not enough: any bucket or rule of it could send."""
        sending = [
            (name, json.dumps(statement.get("Condition", {})))
            for name, statement, _ in statements(stage)
            if statement["Effect"] == "Allow"
            and "Service" in statement.get("Principal", {})
            and "sqs:SendMessage" in listed(statement["Action"])
        ]
        assert sending
        assert [name for name, condition in sending if "aws:SourceArn" not in condition] == []


class TestStateful:
    def test_prod_keeps_and_protects_it_and_dev_removes_it(self, stage: str) -> None:
        kept = ("AWS::S3::Bucket", "AWS::SecretsManager::Secret", "AWS::Glue::Database", "AWS::KMS::Key")
        kept += ("AWS::Cognito::UserPool",)
        stateful = {name: body for name, body in resources(stage).items() if body["Type"] in kept}
        wanted = {"dev": "Delete", "prod": "Retain"}[stage]
        assert {name: body["DeletionPolicy"] for name, body in stateful.items()} == dict.fromkeys(stateful, wanted)
        assert {name: body["UpdateReplacePolicy"] for name, body in stateful.items()} == dict.fromkeys(stateful, wanted)

    def test_everything_that_takes_tags_says_whose_it_is(self, stage: str) -> None:
        for type_ in ("AWS::S3::Bucket", "AWS::Lambda::Function", "AWS::SQS::Queue", "AWS::KMS::Key", "AWS::IAM::Role"):
            for name, properties in of_type(stage, type_).items():
                tags = {tag["Key"]: tag["Value"] for tag in properties["Tags"]}
                assert tags == {"project": "strandline", "stage": stage}, name


def _denies_plain_http(statement: dict[str, Any]) -> bool:
    condition = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
    return statement["Effect"] == "Deny" and condition == "false"
