"""A lake in real processes, with writers, while its functions are killed and frozen at random. Then: nothing that was
acknowledged is lost or doubled, all of it is shown soon, and the timeline verifies."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Event, Thread, Timer
from unittest import mock

import boto3

from catalog.core.settings import load_settings
from catalog.lake import Lake, open_lake
from infra.local.cloud import EmbeddedCloud
from infra.local.endpoint import access_key
from infra.local.requests import Request
from strandline.client import Client
from strandline.errors import StrandlineError
from tests.chaos.workload import Files, Inserts, Upserts, Writer, rows

VICTIMS = ("ingest", "sequencer", "api")
DEAD_LETTERS = ("landed-dead", "moved-dead.fifo")
EVERY_S = (1.0, 4.0)
FREEZE_S = (1.0, 25.0)
"""The longest is beyond the visibility of a message (catalog and functions give 20 seconds): somebody else has it."""
PATIENCE_S = 400.0
"""Longer than the queues' own time-outs, so that only a row that never comes is called lost."""


@dataclass
class Outcome:
    seed: int
    kills: int = 0
    freezes: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    hidden_s: list[float] = field(default_factory=list)
    """For each inserted row that was looked for: how long after its acknowledgement a default read showed it."""
    recovery_s: float = 0.0
    """From the last kill until default reads show all that was acknowledged."""
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        hidden = sorted(self.hidden_s) or [0.0]
        return (
            f"seed {self.seed}: {self.kills} kills, {self.freezes} freezes; acknowledged {self.acknowledged}; hidden "
            f"for {hidden[len(hidden) // 2]:.1f} s (p50), {hidden[-1]:.1f} s (longest); all shown "
            f"{self.recovery_s:.1f} s after the last kill; wrong: {self.wrong or 'nothing'}"
        )


def run(seed: int, seconds: float) -> Outcome:
    outcome = Outcome(seed)
    with ExitStack() as stack:
        # With one worker for each function, the one that makes a request is the one that is killed at it.
        cloud = stack.enter_context(EmbeddedCloud(max_workers=1))
        stack.enter_context(mock.patch.dict(os.environ, cloud.environment("person")))
        stack.enter_context(mock.patch.object(boto3, "DEFAULT_SESSION", None))
        lake = open_lake(load_settings())
        stack.callback(lake.close)
        api = stack.enter_context(Client(cloud.addresses()["api"], cloud.token("admin"), attempts=3))
        stop = Event()
        stack.callback(stop.set)  # before the client closes, also after an error
        writers: list[Writer] = [
            Files("bronze.drops", stop, lake=lake),
            Inserts("silver.inserts", stop, api=api),
            Upserts("silver.upserts", stop, api=api),
        ]
        lake.tables.create("silver.inserts", {"id": "long", "value": "long"})
        lake.tables.create("silver.upserts", {"id": "long", "value": "long"}, key=["id"])
        cloud.wait_until_idle()
        threads = [writer.start() for writer in writers]
        watcher = _Watcher(api, writers[1], stop)
        threads.append(watcher.start())
        _disturb(cloud, Random(seed), seconds, outcome)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        outcome.acknowledged = {writer.table: len(writer.acknowledged) for writer in writers}
        outcome.hidden_s = watcher.hidden_s
        _await_all(api, writers, outcome)
        _check(cloud, lake, api, writers, outcome)
    return outcome


def _disturb(cloud: EmbeddedCloud, random: Random, seconds: float, outcome: Outcome) -> None:
    """Kills or freezes a random function at one of its requests, every few seconds. Returns when all are thawed.

    Only at requests for objects or tables: before the first one a function has told the queue how soon its messages may
    come again. One that dies in its start leaves them to the queue's own time-out: minutes, as on AWS.
    """
    until, thaws = time.monotonic() + seconds, dict[str, Timer]()
    while time.monotonic() < until:
        awake = [one for one in VICTIMS if not _is_frozen(thaws, one)]
        if not awake:
            time.sleep(0.1)
            continue
        name = f"strandline-dev-{random.choice(awake)}"
        freezes = random.random() < 0.3
        action = cloud.functions.freezing(name) if freezes else cloud.functions.killing(name)
        matches = partial(_is_work_of, access_key(f"function/{name}"))
        with cloud.server.faults.fault(
            matches, action, when=random.choice(("before", "after")), skip=random.randint(0, 12), times=1
        ) as fault:
            time.sleep(random.uniform(*EVERY_S))
        if fault.hits and freezes:
            outcome.freezes += 1
            worker = cloud.functions.worker(name)
            longest = min(FREEZE_S[1], max(FREEZE_S[0], until - time.monotonic()))
            thaws[name] = Timer(random.uniform(FREEZE_S[0], longest), worker.thaw)
            thaws[name].start()
        outcome.kills += bool(fault.hits and not freezes)
    for thaw in thaws.values():
        thaw.join()


def _is_frozen(thaws: dict[str, Timer], victim: str) -> bool:
    thaw = thaws.get(f"strandline-dev-{victim}")
    return thaw is not None and thaw.is_alive()


def _is_work_of(key: str, request: Request) -> bool:
    return request.principal == key and request.service in ("s3", "glue")


@dataclass
class _Watcher:
    """Reads the newest index all the time, and notes when it first shows a row that was acknowledged."""

    api: Client
    writer: Writer
    stop: Event
    hidden_s: list[float] = field(default_factory=list)

    def start(self) -> Thread:
        thread = Thread(target=self._run, name="watcher", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        shown = -1
        while not self.stop.is_set():
            try:
                answer = self.api.query(f"SELECT max(id) AS newest FROM {self.writer.table}")
                newest = answer["newest"][0].as_py()
            except StrandlineError:
                continue
            now = time.monotonic()
            while newest is not None and shown < newest and (at := self.writer.acknowledged.get(shown + 1)) is not None:
                shown += 1
                self.hidden_s.append(now - at)
            self.stop.wait(0.2)


def _await_all(api: Client, writers: list[Writer], outcome: Outcome) -> None:
    """Waits until default reads show as many rows as were acknowledged."""
    began = time.monotonic()
    for writer in writers:
        wanted = writer.expected()
        while True:
            try:
                if set(wanted) <= set(rows(api, writer.table)):
                    break
            except StrandlineError:
                pass
            if time.monotonic() - began > PATIENCE_S:
                outcome.wrong.append(f"{writer.table}: not all that was acknowledged is shown after {PATIENCE_S:g} s")
                return
            time.sleep(0.1)
    outcome.recovery_s = time.monotonic() - began


def _check(cloud: EmbeddedCloud, lake: Lake, api: Client, writers: list[Writer], outcome: Outcome) -> None:
    cloud.wait_until_idle()
    for writer in writers:
        found, wanted = Counter(rows(api, writer.table, fresh=True)), Counter(writer.expected())
        # The last write of each writer may have been made without its answer having come.
        unanswered = {row for row in found if row[1] == len(writer.acknowledged)}
        missing, extra = wanted - found, found - wanted
        missing = Counter({row: n for row, n in missing.items() if not (unanswered and row[0] in dict(unanswered))})
        extra = Counter({row: n for row, n in extra.items() if row not in unanswered or n > 1})
        outcome.wrong += [f"{writer.table}: lost {sorted(missing)[:5]}"] * bool(missing)
        outcome.wrong += [f"{writer.table}: doubled or never written {sorted(extra)[:5]}"] * bool(extra)
    outcome.wrong += [f"timeline: {fault}" for fault in lake.verifier.verify(deep=True).faults]
    sqs = cloud.endpoint.client("sqs")
    for name in DEAD_LETTERS:
        url = sqs.get_queue_url(QueueName=f"strandline-dev-{name}")["QueueUrl"]
        attribute = "ApproximateNumberOfMessages"
        count = int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[attribute])["Attributes"][attribute])
        outcome.wrong += [f"{count} dead letters in {name}"] * bool(count)
