"""Rows are erased through the API by who has the role for it, and by nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from catalog.core.errors import Unavailable
from catalog.core.events import parse_message
from catalog.erasure.eraser import Eraser
from functions import erase as erase_function
from tests.worlds.api import Function
from tests.worlds.lake import running_lake

COLUMNS = {"id": "long", "name": "string", "strandline_salt": "fixed[16]"}
ROWS = {"rows": [{"id": 1, "name": "one"}, {"id": 7, "name": "seven"}]}
ERASER = ["strandline:eraser:silver.*"]
BODY = {"keys": [{"id": 7}], "reason": "request 12"}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Function]:
    with running_lake() as lake:
        lake.s3.put_bucket_versioning(Bucket=lake.settings.bucket, VersioningConfiguration={"Status": "Enabled"})
        url = lake.client("sqs").create_queue(
            QueueName=f"erasures-{uuid4().hex[:8]}.fifo", Attributes={"FifoQueue": "true"}
        )["QueueUrl"]
        monkeypatch.setenv("STRANDLINE_ERASE_QUEUE_URL", url)
        function = Function(lake)
        erase_function.lake.cache_clear()
        yield function
        function.restart()
        erase_function.lake.cache_clear()


def made(api: Function) -> str:
    name = f"silver.t{uuid4().hex[:10]}"
    assert api("POST", "/tables", {"name": name, "columns": COLUMNS, "key": ["id"]}).status == 201
    assert api("POST", f"/tables/{name}/rows", ROWS).status == 200
    return name


def messages(api: Function) -> list[dict[str, Any]]:
    """What is on the queue, as Lambda gives it to the function."""
    sqs, url = api.lake.client("sqs"), erase_function.load_settings().erase_queue_url
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600).get("Messages", [])
    return [
        {
            "messageId": one["MessageId"],
            "receiptHandle": one["ReceiptHandle"],
            "body": one["Body"],
            "attributes": {"ApproximateReceiveCount": "1"},
            "eventSource": "aws:sqs",
        }
        for one in received
    ]


def serve(api: Function, records: list[dict[str, Any]]) -> Any:
    """The function at work, and the sequencer beside it."""
    done = threading.Event()

    def sequence() -> None:
        sqs, url = api.lake.client("sqs"), api.lake.settings.moved_queue_url
        while not done.is_set():
            received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            for message in received.get("Messages", []):
                api.lake.sequencer.handle([parse_message(message["Body"])])
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    worker = threading.Thread(target=sequence)
    worker.start()
    try:
        return erase_function.handler({"Records": records}, None)
    finally:
        done.set()
        worker.join()


def test_an_erasure_is_requested_served_once_and_its_status_read(api: Function) -> None:
    name, key = made(api), uuid4().hex
    first = api("POST", f"/tables/{name}/erasures", BODY, key=key, roles=ERASER)
    assert (first.status, first.body["state"]) == (202, "requested")
    again = api("POST", f"/tables/{name}/erasures", BODY, key=key, roles=ERASER)
    assert (again.status, again.body) == (202, first.body)
    (record,) = messages(api)
    status = f"/tables/{name}/erasures/{first.body['id']}"
    assert api("GET", status, roles=ERASER).body["state"] == "requested"
    assert serve(api, [record])["batchItemFailures"] == []
    shown = api("GET", status, roles=ERASER).body
    assert (shown["state"], shown["rows"], shown["requested_by"]) == ("complete", 1, "https://issuer.test#tester")
    assert shown["index"] is not None
    table = api.lake.tables.load(name)
    scans = [table.scan(snapshot_id=one.snapshot_id).to_arrow() for one in table.metadata.snapshots]
    assert all(7 not in rows["id"].to_pylist() for rows in scans)
    assert serve(api, [record])["batchItemFailures"] == []  # delivered twice
    assert api("GET", status, roles=ERASER).body == shown
    objects = api.lake.s3.list_objects_v2(Bucket=api.lake.settings.bucket, Prefix="erase-requests/")["Contents"]
    stored = api.lake.s3.get_object(Bucket=api.lake.settings.bucket, Key=objects[0]["Key"])["Body"].read()
    assert b"keys" not in stored and b'"7"' not in stored


@pytest.mark.parametrize("roles", [["strandline:admin"], ["strandline:writer:silver.*"], ["strandline:eraser:gold.*"]])
def test_nobody_erases_without_the_role(api: Function, roles: list[str]) -> None:
    name = made(api)
    answer = api("POST", f"/tables/{name}/erasures", BODY, roles=roles)
    assert answer.status == (404 if "gold" in roles[0] else 403)
    assert api("GET", f"/tables/{name}/erasures/{'0' * 32}", roles=roles).status == answer.status
    assert messages(api) == []


def test_the_role_to_erase_reads_and_writes_nothing(api: Function) -> None:
    name = made(api)
    for method, path, body in (
        ("GET", f"/tables/{name}", None),
        ("GET", f"/tables/{name}/rows", None),
        ("POST", f"/tables/{name}/rows", ROWS),
        ("POST", f"/tables/{name}/delete", {"where": "id = 7"}),
        ("DELETE", f"/tables/{name}", None),
    ):
        assert api(method, path, body, roles=ERASER).status == 404, path
    assert api("GET", "/tables", roles=["strandline:eraser:*"]).body["tables"] == []
    assert api("POST", "/query", {"sql": "SELECT 1"}, roles=["strandline:eraser:*"]).status == 403
    assert api("GET", "/timeline/tile/entries/000", roles=["strandline:eraser:*"]).status == 403


def test_a_request_that_cannot_be_is_refused_at_once_or_in_its_status(api: Function) -> None:
    name = made(api)
    for body in ({"reason": "x"}, {**BODY, "where": "id = 7"}, {"keys": [{"id": 7}]}, {**BODY, "keys": []}):
        assert api("POST", f"/tables/{name}/erasures", body, roles=ERASER).status == 400
    assert api("POST", "/tables/silver.nothing/erasures", BODY, roles=ERASER).status == 404
    api.lake.tables.hold(name, "case 12")
    held = api("POST", f"/tables/{name}/erasures", BODY, roles=ERASER)
    assert held.status == 403 and "case 12" in held.body["detail"]
    api.lake.tables.lift_hold(name)
    wrong = api("POST", f"/tables/{name}/erasures", {"keys": [{"name": "x"}], "reason": "x"}, roles=ERASER)
    assert serve(api, messages(api))["batchItemFailures"] == []
    status = api("GET", f"/tables/{name}/erasures/{wrong.body['id']}", roles=ERASER).body
    assert status["state"] == "refused" and "the key of" in status["error"]


def test_an_outage_leaves_the_message_and_a_stranger_becomes_a_dead_letter(
    api: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = made(api)
    asked = api("POST", f"/tables/{name}/erasures", BODY, roles=ERASER)
    (record,) = messages(api)

    def fail(*arguments: Any, **options: Any) -> Any:
        raise Unavailable("S3 is down")

    with monkeypatch.context() as patch:
        patch.setattr(Eraser, "erase", fail)
        failed = serve(api, [record, {**record, "messageId": "stranger", "body": "{}"}])
    assert {one["itemIdentifier"] for one in failed["batchItemFailures"]} == {record["messageId"], "stranger"}
    status = f"/tables/{name}/erasures/{asked.body['id']}"
    assert api("GET", status, roles=ERASER).body["state"] == "requested"
    assert serve(api, [record])["batchItemFailures"] == []
    assert api("GET", status, roles=ERASER).body["state"] == "complete"
