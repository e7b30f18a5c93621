"""Ingestion stopped at every request it makes, then the message delivered again: each row once, and all of it proven.

For each request the world goes away just before it, or just after it with its answer lost, and stays away for the rest
of the run, as for a process that dies there.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property
from hashlib import sha256
from typing import Any

import pytest

from catalog.core.settings import Settings
from catalog.ingest.ingest import Ingest
from catalog.ingest.s3_events import LandedFile
from catalog.lake import Lake
from catalog.merkle.note import Ed25519Signer
from infra.local.faults import disconnect, refuse
from infra.local.requests import Request
from infra.local.server import ApiServer
from tests.unit.formats.test_media import PNG
from tests.worlds.ingest import FUNCTION, IngestWorld, ingest_elsewhere

ORIGIN = "strandline.test/ingest"


class OneTryLake(Lake):
    """The function's lake, whose clients ask once: its own recovery is under test, not the SDK's patience."""

    def __init__(self, world: IngestWorld, queue: str) -> None:
        self.world = world
        url = world.server.endpoint.url
        super().__init__(
            Settings(
                stage="dev",
                region="us-east-1",
                endpoint_url=url,
                bucket=world.bucket,
                origin=ORIGIN,
                signer="secret:key",
                moved_queue_url=queue,
            )
        )

    def client(self, service: str) -> Any:
        return self.world.client(service, FUNCTION)

    @cached_property
    def iceberg(self) -> Any:
        return self.world.catalog(FUNCTION)

    def ingest(self) -> Ingest:
        return Ingest(self.s3, self.tables, self.settings.bucket)


class Stage:
    """A lake with a table `old`, into which batches of four files are dropped, each batch with a new table."""

    def __init__(self, world: IngestWorld) -> None:
        self.world = world
        self.queue = world.client("sqs").create_queue(
            QueueName=f"{world.namespace}.fifo", Attributes={"FifoQueue": "true"}
        )["QueueUrl"]
        self.numbers = list[int]()
        self.run(self.files(0))

    def lake(self) -> OneTryLake:
        return OneTryLake(self.world, self.queue)

    def files(self, number: int) -> list[LandedFile]:
        self.numbers.append(number)
        return [
            self.world.put(f"old/{number}.jsonl", b'{"id": %d}\n{"id": -%d}\n' % (number, number)),
            self.world.put(f"old/{number}.copy.jsonl", b'{"id": %d}\n{"id": -%d}\n' % (number, number)),
            self.world.put(f"old/{number}.csv", b"id\n%d\nx\n" % number),
            self.world.put(f"new_{number}/tide.png", PNG + b"%d" % number),
        ]

    def run(self, files: list[LandedFile]) -> list[str]:
        return [outcome.status for outcome in self.lake().ingest().run(files)]

    def check(self) -> None:
        """Each row once, the bad files kept aside, every file's fate in the ledger, and all of it in the timeline."""
        world = self.world
        both = [(sign * n,) for n in self.numbers for sign in (1, -1)]
        assert sorted(world.rows("old", "id")) == sorted([*both, *both]), "the file's rows, and its copy's"
        assert len(world.reports("old")) == len(self.numbers)
        for number in self.numbers:
            assert [size for (size,) in world.rows(f"new_{number}", "size")] == [len(PNG + b"%d" % number)]
            digest = sha256(b'{"id": %d}\n{"id": -%d}\n' % (number, number)).hexdigest()
            first, copy = (f"landing/{world.namespace}/old/{number}{end}.jsonl" for end in ("", ".copy"))
            records = {record.key: (record.state, record.duplicate_of) for record in world.ledger.find(digest)}
            assert records == {first: ("committed", None), copy: ("committed", None)}
        self.verify()

    def verify(self) -> None:
        lake = self.lake()
        lake.sequencer.sweep()
        report = lake.verifier.verify(deep=True)
        report.check()
        assert report.leaves > len(self.numbers)
        lake.sequencer.close()
        lake.close()


def by_function(request: Request) -> bool:
    return request.principal == FUNCTION


def changes(request: Request) -> bool:
    return by_function(request) and (request.method in ("PUT", "DELETE") or request.action in _CHANGING)


_CHANGING = ("CreateTable", "UpdateTable", "SendMessage", "POST?delete")


@contextmanager
def dies_before(server: ApiServer, step: int) -> Iterator[None]:
    with server.faults.fault(by_function, refuse, skip=step):
        yield


@contextmanager
def dies_after(server: ApiServer, step: int) -> Iterator[None]:
    """Only for requests that change something: to die after another is to die before the next."""
    gone = threading.Event()

    def lose(request: Request) -> None:
        gone.set()
        disconnect(request)

    with ExitStack() as stack:
        stack.enter_context(server.faults.fault(changes, lose, when="after", skip=step, times=1))
        stack.enter_context(server.faults.fault(lambda request: by_function(request) and gone.is_set(), refuse))
        yield


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """New for each test: what is swept is every table there is."""
    server = ApiServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def stage(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for name, value in server.endpoint.environment("person").items():
        monkeypatch.setenv(name, value)
    secrets = server.endpoint.client("secretsmanager", "person")
    secrets.create_secret(Name="key", SecretString=Ed25519Signer.generate(ORIGIN).private_key())
    return Stage(IngestWorld.create(server))


@pytest.mark.parametrize(("stop", "counted"), [(dies_before, by_function), (dies_after, changes)])
def test_a_run_stopped_at_any_request_is_completed_by_the_next(
    server: ApiServer, stage: Stage, stop: Any, counted: Any
) -> None:
    files = stage.files(1)
    mark = server.log.mark()
    assert stage.run(files) == ["committed", "committed", "quarantined", "committed"]
    steps = len(server.log.since(mark, counted))
    assert steps > 12
    for step in range(steps):
        files = stage.files(100 + step)
        with stop(server, step):
            stage.run(files)
        assert "failed" not in stage.run(files), f"step {step}"
    stage.check()


def test_two_deliveries_at_once_make_rows_once(stage: Stage) -> None:
    with ThreadPoolExecutor(2) as pool:
        for number in range(10, 14):
            files, start = stage.files(number), threading.Barrier(2)

            def deliver(files: list[LandedFile] = files, start: threading.Barrier = start) -> list[str]:
                start.wait(30)
                return stage.run(files)

            first, second = [delivery.result() for delivery in [pool.submit(deliver) for _ in range(2)]]
            assert [sorted(pair) for pair in zip(first, second, strict=True)] == [
                ["committed", "duplicate"],
                ["committed", "duplicate"],
                ["quarantined", "quarantined"],
                ["committed", "duplicate"],
            ]
    stage.check()


def test_two_processes_at_once_make_rows_once(stage: Stage) -> None:
    world, files = stage.world, [landed for number in range(20, 24) for landed in stage.files(number)]
    told = [(landed.key, landed.version_id) for landed in files]
    where = (world.server.endpoint.url, world.bucket, world.namespace, told)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([ingest_elsewhere.__module__])
    with context.Pool(2) as pool:
        runs = pool.starmap(ingest_elsewhere, [(*where, f"{FUNCTION}.{n}") for n in range(2)], chunksize=1)
    assert all("failed" not in run for run in runs)
    assert sum(run.count("committed") for run in runs) == 3 * 4
    stage.check()
