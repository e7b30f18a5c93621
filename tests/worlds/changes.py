"""A whole lake for the tests of change capture: its tables, its queue, and a sequencer that serves it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from catalog.core.events import parse_message
from catalog.core.settings import Settings, load_settings
from catalog.lake import Lake, open_lake
from catalog.merkle.note import Ed25519Signer
from catalog.timeline.reader.sources import PublishedSource
from catalog.timeline.reader.timeline import Timeline
from catalog.timeline.sequencer.sequencer import SequencerResult
from catalog.timeline.verify.verifier import Report, Verifier
from infra.local.server import ApiServer
from tests.worlds.lake import ORIGIN, provision
from tests.worlds.warehouse import Warehouse


@dataclass
class World(Warehouse):
    """One lake of its own on the server. `serve` is the sequencer's function, called when the test wants it."""

    settings: Settings
    signer: Ed25519Signer
    lake: Lake = field(init=False)
    lakes: list[Lake] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lake = self.another()

    def another(self) -> Lake:
        """The same lake from another process, as far as it can be told."""
        self.lakes.append(open_lake(self.settings))
        return self.lakes[-1]

    def close(self) -> None:
        for lake in self.lakes:
            lake.close()

    def serve(self, wait_s: int = 0) -> SequencerResult | None:
        """Serves what is on the queue in one run; None if nothing comes within `wait_s`."""
        sqs, url = self.lake.client("sqs"), self.settings.moved_queue_url
        received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=wait_s)
        messages = received.get("Messages", [])
        if not messages:
            return None
        requests: list[Any] = [parse_message(message["Body"]) for message in messages]
        outcome = self.lake.sequencer.handle(requests)
        for message in messages:
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
                self.serve(wait_s=1)

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
    signer = Ed25519Signer.generate(ORIGIN)
    settings = load_settings({**provision(server, signer, queue=True), "STRANDLINE_STORE_TIMEOUT_S": "20"})
    return World(server, settings.bucket, settings.bucket.replace("lake-", "n"), settings, signer)
