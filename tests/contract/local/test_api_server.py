"""The embedded cloud's AWS API keeps the promises of AWS that the lake is built on."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from infra.local.faults import disconnect, refuse
from infra.local.latency import Latency
from infra.local.server import ApiServer
from tests.worlds.glue_writer import append, glue_catalog
from tests.worlds.racing import BarePuts, winners

ROUNDS = 200
WRITERS, APPENDS = 8, 10


@pytest.fixture
def bucket(server: ApiServer, request: pytest.FixtureRequest) -> str:
    name = "b" + "".join(c for c in request.node.name.lower() if c.isalnum())[:50]
    server.endpoint.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """The server's threads change places as often as they can, so that a gap between check and store shows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_threads")
def test_of_sixteen_creators_exactly_one_wins(server: ApiServer, bucket: str) -> None:
    puts = BarePuts(server.endpoint.url)
    for round_ in range(ROUNDS):
        won = winners(lambda n, r=round_: puts.stored(f"{bucket}/k{r}", b"%d" % n, if_none_match="*"))
        assert won == 1, f"round {round_} had {won} winners"


@pytest.mark.usefixtures("eager_threads")
def test_of_sixteen_swappers_exactly_one_wins(server: ApiServer, bucket: str) -> None:
    s3, puts = server.endpoint.client("s3", "racer"), BarePuts(server.endpoint.url)
    etag = s3.put_object(Bucket=bucket, Key="head", Body=b"start")["ETag"]
    for round_ in range(ROUNDS // 4):
        won = winners(lambda n, r=round_, e=etag: puts.stored(f"{bucket}/head", b"%d/%d" % (r, n), if_match=e))
        assert won == 1, f"round {round_} had {won} winners"
        etag = s3.head_object(Bucket=bucket, Key="head")["ETag"]


def test_eight_processes_appending_through_glue_lose_nothing(server: ApiServer, bucket: str) -> None:
    place = (server.endpoint.url, server.endpoint.region, bucket)
    catalog = glue_catalog(*place)
    catalog.create_namespace("race")
    schema = pa.schema([("writer", pa.int64()), ("number", pa.int64())])
    retries = {
        "commit.retry.num-retries": "200",
        "commit.retry.min-wait-ms": "5",
        "commit.retry.max-wait-ms": "200",
    }
    catalog.create_table("race.rows", schema=schema, properties=retries)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([append.__module__])
    writers = [context.Process(target=append, args=(*place, "race.rows", n, APPENDS)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=600)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    rows = catalog.load_table("race.rows").scan().to_arrow().to_pylist()
    expected = {(writer, number) for writer in range(WRITERS) for number in range(APPENDS)}
    assert sorted((row["writer"], row["number"]) for row in rows) == sorted(expected)


def test_a_stale_glue_version_is_refused(server: ApiServer) -> None:
    glue = server.endpoint.client("glue")
    glue.create_database(DatabaseInput={"Name": "versions"})
    glue.create_table(DatabaseName="versions", TableInput={"Name": "t"})
    stale = glue.get_table(DatabaseName="versions", Name="t")["Table"]["VersionId"]
    glue.update_table(DatabaseName="versions", TableInput={"Name": "t"}, VersionId=stale)
    with pytest.raises(ClientError, match="ConcurrentModificationException"):
        glue.update_table(DatabaseName="versions", TableInput={"Name": "t"}, VersionId=stale)


class TestS3Events:
    """Records as AWS documents them (event version 2.1), through a queue."""

    @pytest.fixture
    def receive(self, server: ApiServer, bucket: str) -> Callable[[], list[dict[str, Any]]]:
        sqs, s3 = server.endpoint.client("sqs"), server.endpoint.client("s3")
        url = sqs.create_queue(QueueName=bucket)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        rule = {"Id": "landed", "QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}
        s3.put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [rule]}
        )

        def records() -> list[dict[str, Any]]:
            messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
            bodies = [json.loads(message["Body"]) for message in messages]
            return [record for body in bodies for record in body.get("Records", [])]

        return records

    def test_a_put_is_one_record_in_the_documented_shape(
        self, server: ApiServer, bucket: str, receive: Callable[[], list[dict[str, Any]]]
    ) -> None:
        put = server.endpoint.client("s3").put_object(Bucket=bucket, Key="landing/a b/ü%.md", Body=b"12345")
        (record,) = receive()
        assert (record["eventVersion"], record["eventSource"], record["eventName"]) == (
            "2.1",
            "aws:s3",
            "ObjectCreated:Put",
        )
        assert set(record) == {
            *("eventVersion", "eventSource", "awsRegion", "eventTime", "eventName", "userIdentity"),
            *("requestParameters", "responseElements", "s3"),
        }
        assert record["responseElements"]["x-amz-request-id"]
        assert record["s3"]["configurationId"] == "landed"
        assert record["s3"]["bucket"]["name"] == bucket
        stored = record["s3"]["object"]
        assert stored["key"] == "landing/a+b/%C3%BC%25.md"
        assert (stored["size"], stored["eTag"]) == (5, put["ETag"].strip('"'))
        assert stored["versionId"] == put["VersionId"]

    def test_sequencers_of_one_key_grow(
        self, server: ApiServer, bucket: str, receive: Callable[[], list[dict[str, Any]]]
    ) -> None:
        for body in (b"1", b"2", b"3"):
            server.endpoint.client("s3").put_object(Bucket=bucket, Key="k", Body=body)
        sequencers = [record["s3"]["object"]["sequencer"] for record in receive()]
        assert len(sequencers) == 3
        assert sequencers == sorted(set(sequencers))

    def test_a_multipart_upload_is_one_record(
        self, server: ApiServer, bucket: str, receive: Callable[[], list[dict[str, Any]]]
    ) -> None:
        s3 = server.endpoint.client("s3")
        where = {"Bucket": bucket, "Key": "big"}
        upload = s3.create_multipart_upload(**where)["UploadId"]
        etag = s3.upload_part(**where, UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload=parts)
        assert [record["eventName"] for record in receive()] == ["ObjectCreated:CompleteMultipartUpload"]


class TestPolicies:
    def test_a_bucket_that_wants_tls_can_be_used_over_loopback(self, server: ApiServer, bucket: str) -> None:
        s3 = server.endpoint.client("s3")
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": [deny(bucket, tls_only=True)]}))
        s3.put_object(Bucket=bucket, Key="k", Body=b"")

    def test_a_plain_deny_still_denies(self, server: ApiServer, bucket: str) -> None:
        s3 = server.endpoint.client("s3")
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": [deny(bucket, tls_only=False)]}))
        with pytest.raises(ClientError, match="403"):
            s3.put_object(Bucket=bucket, Key="k", Body=b"")


def deny(bucket: str, *, tls_only: bool) -> dict[str, Any]:
    statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}/*"}
    return statement | ({"Condition": {"Bool": {"aws:SecureTransport": "false"}}} if tls_only else {})


class TestGate:
    """Who called what is known, and any request can be made to fail before or after its effect."""

    def test_requests_are_logged_with_their_principal(self, server: ApiServer, bucket: str) -> None:
        mark = server.log.mark()
        server.endpoint.client("s3", "function/ingest").put_object(Bucket=bucket, Key="k", Body=b"")
        server.endpoint.client("glue", "person").get_databases()
        assert [(r.principal, r.service, r.action, r.status) for r in server.log.since(mark)] == [
            ("function.ingest", "s3", "PUT", 200),
            ("person", "glue", "GetDatabases", 200),
        ]

    def test_a_refused_request_has_no_effect(self, server: ApiServer, bucket: str) -> None:
        s3 = server.endpoint.client("s3", "person")
        with server.faults.fault(lambda r: r.method == "PUT" and r.touches("/k"), refuse) as fault:
            with pytest.raises(ClientError, match="503"):
                s3.put_object(Bucket=bucket, Key="k", Body=b"")
        assert fault.hits >= 1
        assert "Contents" not in s3.list_objects_v2(Bucket=bucket)

    def test_a_lost_answer_has_its_effect(self, server: ApiServer, bucket: str) -> None:
        s3 = server.endpoint.client("s3", "person")
        lost = server.faults.fault(lambda r: r.method == "PUT" and r.touches("/k"), disconnect, when="after", times=1)
        with lost:
            # The client's own retry meets the object its first try has made.
            with pytest.raises(ClientError, match="PreconditionFailed"):
                s3.put_object(Bucket=bucket, Key="k", Body=b"mine", IfNoneMatch="*")
        assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"mine"


def test_one_cloud_per_process(server: ApiServer) -> None:
    with pytest.raises(RuntimeError, match="already"):
        ApiServer()


def test_with_latency_every_request_takes_its_time_and_is_recorded(server: ApiServer) -> None:
    waits: list[float] = []
    server.latency = Latency(sleep=waits.append)
    try:
        server.endpoint.client("s3", "slow").list_buckets()
    finally:
        latency, server.latency = server.latency, None
    assert [entry.request.service for entry in latency.take()] == ["s3"]
    assert len(waits) == 2 and 0.015 <= sum(waits) <= 0.04
    server.endpoint.client("s3", "slow").list_buckets()
    assert len(waits) == 2, "without it, a request waits for nothing"
