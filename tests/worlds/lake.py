"""A whole lake on the tests' server: a bucket, a signer, perhaps a queue, found by its environment.

Nothing is sequenced unless the test does so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import boto3
import pytest

from catalog.core.settings import load_settings
from catalog.lake import Lake, open_lake
from catalog.merkle.note import Ed25519Signer
from catalog.timeline.log.publisher import Publisher
from catalog.timeline.log.store import StoreLocation, StoreReader
from infra.local.server import ApiServer
from tests.waiting import wait_until

ORIGIN = "strandline.test/lake"
POLL_MS = 200  # each poll costs requests for as long as the reader is open


def provision(server: ApiServer, signer: Ed25519Signer, *, queue: bool) -> dict[str, str]:
    """Makes a lake's resources; returns the variables by which a person's command finds it."""
    suffix, client = uuid4().hex[:12], server.endpoint.client
    client("s3", "person").create_bucket(Bucket=f"lake-{suffix}")
    client("secretsmanager", "person").create_secret(Name=f"key-{suffix}", SecretString=signer.private_key())
    variables = {
        "STRANDLINE_BUCKET": f"lake-{suffix}",
        "STRANDLINE_ORIGIN": ORIGIN,
        "STRANDLINE_SIGNER": f"secret:key-{suffix}",
        **server.endpoint.environment("person"),
    }
    if queue:
        url = client("sqs", "person").create_queue(
            QueueName=f"moved-{suffix}.fifo", Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        )["QueueUrl"]
        variables["STRANDLINE_MOVED_QUEUE_URL"] = url
    return variables


@contextmanager
def lake_on(server: ApiServer, *, queue: bool = False) -> Iterator[Lake]:
    """A lake of its own; the environment names it while it is there, as a command would find it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in provision(server, Ed25519Signer.generate(ORIGIN), queue=queue).items():
            patch.setenv(name, value)
        patch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials that it saw first
        patch.setattr(StoreReader, "open", _open_reader)
        lake = open_lake(load_settings())
        try:
            yield lake
        finally:
            lake.close()


@contextmanager
def running_lake() -> Iterator[Lake]:
    """The same, with a queue, on a server of its own."""
    server = ApiServer()
    server.start()
    try:
        with lake_on(server, queue=True) as lake:
            yield lake
    finally:
        server.stop()


def sequence(lake: Lake, *tables: str) -> int:
    """Sequences the tables and waits until the reader sees it: the newest index."""
    lake.sequencer.catch_up(list(tables))
    size = Publisher(lake.s3, lake.settings.bucket).published().size
    wait_until(lambda: lake.timeline.head().checkpoint.size >= size, f"the reader to see {size} leaves")
    return size - 1


_open = StoreReader.open


def _open_reader(location: StoreLocation, poll_ms: int = POLL_MS) -> StoreReader:
    """A lake's reader polls once a second by default; `sequence` would wait for that each time."""
    return _open(location, min(poll_ms, POLL_MS))
