"""Witnesses over loopback, honest and hostile, and a log that is published without a database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.cosignature import WitnessKey, WitnessSigner
from catalog.merkle.note import Ed25519Signer, VerifierKey
from catalog.merkle.tiles import Tile
from catalog.merkle.witness import Witness
from catalog.timeline.log.feeder import Feeder
from catalog.timeline.log.frontier import Frontier
from catalog.timeline.log.publisher import PublishedCheckpoint, Publisher
from catalog.timeline.witness.records import WitnessRecords
from catalog.timeline.witness.server import WitnessServer
from catalog.timeline.witness.service import WitnessService

PREFIX = "witness/"
PATIENCE_S = 60.0
"""In place of the feeder's LIMIT_S: an honest witness on a busy machine may take longer than a second."""


def policy_of(log: VerifierKey | None, *witnesses: tuple[str, WitnessKey, str], needed: str = "all") -> str:
    """A policy file: these witnesses as (name, key, URL), of which `needed` must have cosigned."""
    lines = [] if log is None else [f"log {log}"]
    lines += [f"witness {name} {key} {url}" for name, key, url in witnesses]
    names = " ".join(name for name, _, _ in witnesses)
    return "\n".join([*lines, f"group witnesses {needed} {names}", "quorum witnesses", ""])


def service(signer: WitnessSigner, logs: Sequence[VerifierKey], s3: Any, bucket: str, **options: Any) -> WitnessService:
    by_origin = {key.name: [other for other in logs if other.name == key.name] for key in logs}
    records = options.pop("records", WitnessRecords)(s3, bucket, PREFIX, signer.witness_key)
    return WitnessService(Witness(signer, by_origin), records, **options)


@contextmanager
def listening(server: ThreadingHTTPServer) -> Iterator[str]:
    """The server's URL while it runs in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def witness(signer: WitnessSigner, logs: Sequence[VerifierKey], s3: Any, bucket: str, **options: Any) -> Iterator[str]:
    """A real witness, with its records in the bucket."""
    with listening(WitnessServer(service(signer, logs, s3, bucket, **options))) as url:
        yield url


@contextmanager
def hostile(reply: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """A server that does to each request what it is told to."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            reply(self, self.rfile.read(int(self.headers["Content-Length"])))

        def log_message(self, format: str, *args: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """The client hung up, as it should."""

    with listening(Server(("127.0.0.1", 0), Handler)) as url:
        yield url


def respond(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@dataclass
class PublishedLog:
    """A log in a bucket, published by the real publisher from leaves in memory."""

    s3: Any
    bucket: str
    signer: Ed25519Signer
    feeder: Feeder | None = None
    frontier: Frontier = field(default_factory=Frontier)
    tiles: dict[Tile, bytes] = field(default_factory=dict)
    published: PublishedCheckpoint = field(default_factory=PublishedCheckpoint)

    def grow(self, count: int) -> bytes:
        """Appends leaves; returns the checkpoint with the log's signature alone."""
        first = self.frontier.size
        for index in range(first, first + count):  # one by one: every partial tile is there, as a database has it
            self.frontier, tiles = self.frontier.grow([b"leaf %d" % index])
            self.tiles |= tiles
        return self.own_note()

    def own_note(self) -> bytes:
        return Checkpoint(self.signer.name, self.frontier.size, self.frontier.tree.root()).sign([self.signer])

    def publish(self) -> bytes:
        """Publishes the newest checkpoint, or the same one again; returns the published note."""
        publisher = Publisher(self.s3, self.bucket, self.feeder)
        size = self.frontier.size
        self.published = publisher.publish(self.published, size, self.own_note(), self.tiles.__getitem__, None)
        assert publisher.published().note == self.published.note
        return self.published.note
