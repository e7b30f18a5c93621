"""The stacks on a second, independent emulator: what they say of S3, SQS, KMS, Secrets Manager and SNS holds there too.

Prod's stacks, since only prod has a key, but with a secret that signs: its KMS has no Ed25519. What of them is left
out, and why, is in supported.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from catalog.core import s3_layout
from catalog.core.settings import Settings, load_settings
from catalog.ingest.dead_letters import DeadLetters
from catalog.ingest.ledger import Ledger
from catalog.ingest.s3_events import parse_event
from catalog.timeline.log.signer import signer_from
from catalog.timeline.log.store import Fenced, StoreLocation, StoreReader, StoreWriter
from catalog.vectors.lance import Lance
from infra.local.endpoint import ACCOUNT, REGION
from tests.infra.localstack import LocalStack
from tests.infra.stages import PROD_WITH_SECRET as PROD
from tests.infra.stages import STAGES, of_type, resources, templates
from tests.infra.supported import KEPT, LEFT_OUT, delete, deploy, finish_bucket, supported_part
from tests.waiting import wait_until
from tests.worlds.racing import stored, winners

CREATIONS, SWAPS = 25, 10
WRITERS, APPENDS = 2, 6
SOON_S = 120


class Stacks:
    """What was deployed, found by CloudFormation's own answers."""

    def __init__(self, localstack: LocalStack) -> None:
        self.localstack, self.client = localstack, localstack.client
        deploy(self.client, supported_part(templates(PROD)))
        self.bucket = self.one("AWS::S3::Bucket", "Lake")
        self.key_arn: str = self.client("kms").describe_key(KeyId=self.one("AWS::KMS::Key", "Key"))["KeyMetadata"][
            "Arn"
        ]
        for name, properties in of_type(PROD, "AWS::S3::Bucket").items():
            bucket = self.one("AWS::S3::Bucket", name.rpartition("/")[2])
            finish_bucket(self.client, bucket, properties, self.key_arn)

    def all(self, type_: str) -> dict[str, str]:
        """Logical id -> physical id."""
        cloudformation = self.client("cloudformation")
        return {
            one["LogicalResourceId"]: one["PhysicalResourceId"]
            for stack in templates(PROD)
            for one in cloudformation.describe_stack_resources(StackName=stack.stack)["StackResources"]
            if one["ResourceType"] == type_
        }

    def one(self, type_: str, logical: str) -> str:
        (physical_id,) = [physical for name, physical in self.all(type_).items() if name.startswith(logical)]
        return physical_id

    def receive(self, queue: str, **options: Any) -> list[dict[str, Any]]:
        answer = self.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10, **options)
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages


@pytest.fixture(scope="module")
def stacks() -> Iterator[Stacks]:
    with LocalStack() as localstack:
        yield Stacks(localstack)
    assert localstack.process.poll() is not None and not localstack.files.exists()


@pytest.fixture
def settings(stacks: Stacks, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The lake's own, for the deployed bucket: what a function would be told."""
    variables = stacks.localstack.endpoint.environment(ACCOUNT)
    variables |= {
        "STRANDLINE_BUCKET": stacks.bucket,
        "STRANDLINE_SIGNER": f"secret:{stacks.one('AWS::SecretsManager::Secret', 'SigningKey')}",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def test_each_type_of_the_templates_is_deployed_there_or_left_out_for_a_reason() -> None:
    used = {body["Type"] for stage in STAGES for body in resources(stage).values()}
    assert not KEPT & LEFT_OUT.keys()
    assert used - KEPT - LEFT_OUT.keys() == set(), "say in tests/infra/supported.py whether LocalStack has it"
    assert (KEPT | LEFT_OUT.keys()) - used == set(), "no stack has these any more"


def test_cloudformation_made_all_of_the_supported_part(stacks: Stacks) -> None:
    wanted = {name for name, body in resources(PROD).items() if body["Type"] in KEPT}
    made = {name for type_ in KEPT for name in stacks.all(type_)}
    assert made == {name.rpartition("/")[2] for name in wanted}
    assert len(made) > 50


class TestBuckets:
    def test_they_are_versioned_private_and_reached_by_tls_only(self, stacks: Stacks) -> None:
        s3, buckets = stacks.client("s3"), stacks.all("AWS::S3::Bucket")
        assert len(buckets) == 2
        for bucket in buckets.values():
            assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
            assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
            policy = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])
            deny, *others = [one for one in policy["Statement"] if one["Effect"] == "Deny"]
            assert [one["Resource"] for one in others] in (
                [],
                [f"arn:aws:s3:::{bucket}/{s3_layout.TIMELINE_ENTRIES}*"],
            )
            assert deny["Action"] == "s3:*" and deny["Principal"] == {"AWS": "*"}
            assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            assert sorted(deny["Resource"]) == [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]

    def test_s3_takes_the_lifecycle(self, stacks: Stacks) -> None:
        rules = stacks.client("s3").get_bucket_lifecycle_configuration(Bucket=stacks.bucket)["Rules"]
        (lake,) = [one for name, one in of_type(PROD, "AWS::S3::Bucket").items() if "/Lake" in name]
        assert len(rules) == len(lake["LifecycleConfiguration"]["Rules"])

    def test_an_object_is_encrypted_with_the_lakes_key_unasked(self, stacks: Stacks) -> None:
        s3 = stacks.client("s3")
        s3.put_object(Bucket=stacks.bucket, Key="tables/a", Body=b"rows")
        stored = s3.get_object(Bucket=stacks.bucket, Key="tables/a")
        assert (stored["ServerSideEncryption"], stored["SSEKMSKeyId"]) == ("aws:kms", stacks.key_arn)
        assert stored["Body"].read() == b"rows"
        logs = stacks.one("AWS::S3::Bucket", "AccessLogs")
        assert s3.put_object(Bucket=logs, Key="lake/a", Body=b"")["ServerSideEncryption"] == "AES256"

    def test_what_was_replaced_or_deleted_is_still_there(self, stacks: Stacks) -> None:
        s3, key = stacks.client("s3"), "tables/kept"
        first = s3.put_object(Bucket=stacks.bucket, Key=key, Body=b"1")["VersionId"]
        s3.put_object(Bucket=stacks.bucket, Key=key, Body=b"2")
        s3.delete_object(Bucket=stacks.bucket, Key=key)
        with pytest.raises(ClientError, match="NoSuchKey"):
            s3.get_object(Bucket=stacks.bucket, Key=key)
        assert s3.get_object(Bucket=stacks.bucket, Key=key, VersionId=first)["Body"].read() == b"1"


class TestLanding:
    def landed(self, stacks: Stacks, name: str) -> Iterator[dict[str, Any]]:
        """Messages of the deployed queue that tell of a file of this name."""
        for message in stacks.receive(stacks.one("AWS::SQS::Queue", "LandedQueue"), VisibilityTimeout=0):
            if any(file.key.endswith(name) for file in parse_event(message["Body"])):
                yield message

    def test_a_put_under_landing_reaches_the_queue_in_s3s_shape(self, stacks: Stacks) -> None:
        s3, name = stacks.client("s3"), f"ü b+{uuid4().hex}.md"
        key = f"{s3_layout.LANDING}bronze/notes/{name}"
        s3.put_object(Bucket=stacks.bucket, Key=f"{s3_layout.QUARANTINE}{name}", Body=b"not announced")
        put = s3.put_object(Bucket=stacks.bucket, Key=key, Body=b"12345")
        (message,) = wait_until(lambda: list(self.landed(stacks, name)), "the event of the landed file", SOON_S)
        (file,) = parse_event(message["Body"])
        assert (file.bucket, file.key, file.version_id) == (stacks.bucket, key, put["VersionId"])
        (record,) = json.loads(message["Body"])["Records"]
        assert (record["eventVersion"], record["eventSource"]) == ("2.1", "aws:s3")
        assert (record["eventName"], record["awsRegion"]) == ("ObjectCreated:Put", REGION)
        assert record["s3"]["bucket"]["arn"] == f"arn:aws:s3:::{stacks.bucket}"
        assert (record["s3"]["object"]["size"], record["s3"]["object"]["eTag"]) == (5, put["ETag"].strip('"'))
        assert record["s3"]["object"]["sequencer"]

    def test_a_file_that_nobody_could_serve_is_a_dead_letter_and_can_be_sent_back(self, stacks: Stacks) -> None:
        sqs, queue = stacks.client("sqs"), stacks.one("AWS::SQS::Queue", "LandedQueue")
        attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        redrive = json.loads(attributes["RedrivePolicy"])
        assert redrive["deadLetterTargetArn"].endswith(":strandline-prod-landed-dead")
        assert attributes["SqsManagedSseEnabled"] == "true" and int(attributes["VisibilityTimeout"]) == 300
        sqs.purge_queue(QueueUrl=queue)
        name = f"{uuid4().hex}.md"
        key = f"{s3_layout.LANDING}bronze/notes/{name}"
        stacks.client("s3").put_object(Bucket=stacks.bucket, Key=key, Body=b"x")
        letters = DeadLetters(sqs, queue, Ledger(stacks.client("s3"), stacks.bucket))
        received = 0

        def given_up() -> bool:
            nonlocal received
            received += len(list(self.landed(stacks, name)))
            return any(key in letter.keys for letter in letters.peek())

        wait_until(given_up, "the dead letter", SOON_S)
        assert received == redrive["maxReceiveCount"]
        assert [letter.keys for letter in letters.redrive()] == [(key,)]
        assert letters.peek() == []
        assert wait_until(lambda: list(self.landed(stacks, name)), "the event of the landed file", SOON_S)


class TestKeyAndSecret:
    def test_the_key_is_rotated_and_what_it_encrypted_before_stays_readable(self, stacks: Stacks) -> None:
        kms, alias = stacks.client("kms"), "alias/strandline-prod-lake"
        assert kms.get_key_rotation_status(KeyId=stacks.key_arn)["KeyRotationEnabled"]
        assert kms.describe_key(KeyId=alias)["KeyMetadata"]["Arn"] == stacks.key_arn
        context = {"table": "silver.notes"}
        before = kms.encrypt(KeyId=alias, Plaintext=b"seed", EncryptionContext=context)["CiphertextBlob"]
        kms.rotate_key_on_demand(KeyId=stacks.key_arn)
        assert kms.decrypt(CiphertextBlob=before, EncryptionContext=context)["Plaintext"] == b"seed"
        with pytest.raises(ClientError, match="InvalidCiphertext"):
            kms.decrypt(CiphertextBlob=before, EncryptionContext={"table": "gold.notes"})
        data = kms.generate_data_key(KeyId=alias, KeySpec="AES_256")
        assert kms.decrypt(CiphertextBlob=data["CiphertextBlob"])["Plaintext"] == data["Plaintext"]

    def test_the_generated_secret_signs_checkpoints(self, stacks: Stacks, settings: Settings) -> None:
        secret = stacks.one("AWS::SecretsManager::Secret", "SigningKey")
        assert stacks.client("secretsmanager").describe_secret(SecretId=secret)["KmsKeyId"] == stacks.key_arn
        signer = signer_from(settings)
        assert signer.verifier_key.verify(b"a checkpoint", signer.sign(b"a checkpoint"))
        assert str(signer.verifier_key) == str(signer_from(settings).verifier_key)


def test_an_alarm_is_told_to_who_listens_at_the_topic(stacks: Stacks) -> None:
    sqs, sns = stacks.client("sqs"), stacks.client("sns")
    pager = sqs.create_queue(QueueName="pager")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=pager, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=stacks.one("AWS::SNS::Topic", "Alarms"), Protocol="sqs", Endpoint=arn)
    alarm = stacks.one("AWS::CloudWatch::Alarm", "Unverified")
    stacks.client("cloudwatch").set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a test says so")
    (message,) = wait_until(lambda: stacks.receive(pager), "the alarm", SOON_S)
    told = json.loads(json.loads(message["Body"])["Message"])
    assert (told["AlarmName"], told["NewStateValue"]) == (alarm, "ALARM")


class TestConditionalWrites:
    def test_of_sixteen_creators_exactly_one_wins(self, stacks: Stacks) -> None:
        s3, place = stacks.client("s3"), f"requests/{uuid4().hex}"
        for number in range(CREATIONS):
            key = f"{place}/{number}"

            def create(who: int, key: str = key) -> bool:
                return stored(lambda: s3.put_object(Bucket=stacks.bucket, Key=key, Body=b"%d" % who, IfNoneMatch="*"))

            assert winners(create) == 1, f"round {number}"

    def test_of_sixteen_swappers_exactly_one_wins(self, stacks: Stacks) -> None:
        s3, key = stacks.client("s3"), f"requests/{uuid4().hex}"
        etag = s3.put_object(Bucket=stacks.bucket, Key=key, Body=b"start")["ETag"]
        for number in range(SWAPS):

            def swap(who: int, number: int = number, etag: str = etag) -> bool:
                body = b"%d/%d" % (number, who)
                return stored(lambda: s3.put_object(Bucket=stacks.bucket, Key=key, Body=body, IfMatch=etag))

            assert winners(swap) == 1, f"round {number}"
            etag = s3.head_object(Bucket=stacks.bucket, Key=key)["ETag"]


def test_slatedb_fences_the_older_writer_and_loses_nothing_that_was_flushed(settings: Settings) -> None:
    place = StoreLocation.from_settings(settings)
    older = StoreWriter.open(place)
    first = [(b"leaf/%04d" % number, b"one") for number in range(500)]
    older.write(first)
    newer = StoreWriter.open(place)
    assert newer.get(b"leaf/0499") == b"one"
    newer.write([(b"head", b"two")], deletes=[b"leaf/0000"])
    with pytest.raises(Fenced):
        older.write([(b"head", b"of the fenced")])
    older.close()
    newer = newer.compact()
    newer.close()
    again = StoreWriter.open(place)
    assert list(again.scan(b"leaf/", b"leaf0")) == first[1:]
    assert again.get(b"head") == b"two"
    reader = StoreReader.open(place)
    assert reader.get(b"head") == b"two" and reader.get(b"leaf/0000") is None
    reader.close()
    again.close()


def test_two_writers_of_one_lance_table_lose_nothing(stacks: Stacks, settings: Settings) -> None:
    schema, id_ = pa.schema([("writer", pa.int64()), ("number", pa.int64())]), "race.rows.text"
    first = Lance(settings, stacks.client("s3")).create(id_, schema)
    together = threading.Barrier(WRITERS)

    def append(writer: int) -> list[int]:
        table = Lance(settings, stacks.client("s3")).open(id_)  # a connection of its own
        together.wait(SOON_S)
        return [table.add(pa.table({"writer": [writer], "number": [n]})).version for n in range(APPENDS)]

    with ThreadPoolExecutor(WRITERS) as pool:
        made = list(pool.map(append, range(WRITERS)))
    versions = sorted(version for each in made for version in each)
    assert versions == list(range(first + 1, first + 1 + WRITERS * APPENDS))
    rows = Lance(settings, stacks.client("s3")).open(id_).to_arrow().to_pylist()
    expected = [{"writer": writer, "number": number} for writer in range(WRITERS) for number in range(APPENDS)]
    assert sorted(rows, key=lambda row: (row["writer"], row["number"])) == expected


def test_deleting_the_stacks_that_keep_nothing_leaves_what_the_lake_keeps(stacks: Stacks) -> None:
    """The last of the file, as it takes away what the others stand on.

    Not the storage stack: LocalStack's CloudFormation deletes what a template says to retain, or stops half-way.
    """
    storage, *others = [template.stack for template in templates(PROD)]
    kinds = ("AWS::S3::Bucket", "AWS::SecretsManager::Secret", "AWS::KMS::Key", "AWS::SQS::Queue")
    here = {name.rpartition("/")[2] for name in resources(PROD) if name.startswith(f"{storage}/")}
    kept = {physical for type_ in kinds for name, physical in stacks.all(type_).items() if name in here}
    delete(stacks.client, others)
    client = stacks.client
    left = {
        *(one["Name"] for one in client("s3").list_buckets()["Buckets"]),
        *(one["ARN"] for one in client("secretsmanager").list_secrets()["SecretList"]),
        *(one["KeyId"] for one in client("kms").list_keys()["Keys"]),
        *(one["RoleName"] for one in client("iam").list_roles()["Roles"]),
        *(one["AlarmName"] for one in client("cloudwatch").describe_alarms()["MetricAlarms"]),
        *(one["TopicArn"] for one in client("sns").list_topics()["Topics"]),
        *(one["Name"] for one in client("scheduler").list_schedules()["Schedules"]),
        *(one["logGroupName"] for one in client("logs").describe_log_groups()["logGroups"]),
        *(one["Name"] for one in client("events").list_event_buses()["EventBuses"] if one["Name"] != "default"),
        *(url for url in client("sqs").list_queues().get("QueueUrls", []) if not url.endswith("/pager")),
    }
    assert left == kept
