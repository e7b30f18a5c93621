"""A whole lake for the tests of change capture: its tables, its queue, and a sequencer that serves it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from catalog.events import parse_message
from catalog.lake import Lake, open_lake
from catalog.merkle.note import Ed25519Signer
from catalog.settings import Settings
from catalog.timeline.proofs import Timeline
from catalog.timeline.sequencer import Outcome
from catalog.timeline.sources import PublishedSource
from catalog.timeline.verification import Report, Verifier
from infra.local.server import ApiServer

ORIGIN = "strandline.test/changes"


@dataclass
class World:
    """One lake of its own on the server. `serve` is the sequencer's function, called when the test wants it."""

    server: ApiServer
    settings: Settings
    namespace: str
    signer: Ed25519Signer
    lake: Lake = field(init=False)
    lakes: list[Lake] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lake = self.another()

    def name(self, table: str = "t") -> str:
        return f"{self.namespace}.{table}"

    def another(self) -> Lake:
        """The same lake from another process, as far as it can be told."""
        self.lakes.append(open_lake(self.settings))
        return self.lakes[-1]

    def close(self) -> None:
        for lake in self.lakes:
            lake.close()

    def serve(self) -> Outcome | None:
        """Serves what is on the queue in one run; None if there is nothing."""
        sqs, url = self.lake.client("sqs"), self.settings.moved_queue_url
        found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        if not found:
            return None
        requests: list[Any] = [parse_message(message["Body"]) for message in found]
        outcome = self.lake.sequencer.handle(requests)
        for message in found:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return outcome

    def caught_up(self) -> Timeline:
        """Serves all there is; gives the timeline as strangers see it, which is never behind."""
        while self.serve() is not None:
            pass
        return self.public()

    def public(self) -> Timeline:
        source = PublishedSource(self.lake.s3, self.settings.bucket)
        return Timeline(source, ORIGIN, [self.signer.verifier_key])

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The sequencer at work in the background."""
        done = threading.Event()

        def run() -> None:
            while not done.is_set():
                if self.serve() is None:
                    done.wait(0.05)

        worker = threading.Thread(target=run)
        worker.start()
        try:
            yield
        finally:
            done.set()
            worker.join()

    def verify(self) -> Report:
        verifier: Verifier = self.lake.verifier
        return verifier.verify(deep=True)


def make_world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, value in (("AWS_ACCESS_KEY_ID", "person"), ("AWS_SECRET_ACCESS_KEY", "x")):
        monkeypatch.setenv(name, value)
    suffix = uuid4().hex[:12]
    bucket, signer = f"lake-{suffix}", Ed25519Signer.generate(ORIGIN)
    server.endpoint.client("s3", "person").create_bucket(Bucket=bucket)
    server.endpoint.client("secretsmanager", "person").create_secret(
        Name=f"key-{suffix}", SecretString=signer.private_key()
    )
    queue = server.endpoint.client("sqs", "person").create_queue(QueueName=f"moved-{suffix}")["QueueUrl"]
    settings = Settings(
        stage="dev",
        region="us-east-1",
        endpoint_url=server.endpoint.url,
        bucket=bucket,
        origin=ORIGIN,
        signer=f"secret:key-{suffix}",
        moved_queue_url=queue,
        store_timeout_s=20,
    )
    return World(server, settings, f"n{suffix}", signer)
