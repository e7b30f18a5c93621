"""The simulated cloud: services, queues, and functions that Lambda would run, with the lake's own handlers in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import functions.ingest
import functions.sequencer
from catalog.core.settings import Settings, load_settings
from catalog.lake import Lake, open_lake
from tests.simulation.glue import Glue, GlueClient
from tests.simulation.network import Network, Plan
from tests.simulation.queues import EventsClient, Queue, SecretsClient, SqsClient
from tests.simulation.s3 import Bucket, S3Client, Version
from tests.simulation.scheduler import Killed, Process, World

BUCKET, ORIGIN, SECRET = "simulated-lake", "strandline.test/simulation", "signing-key"
POLL_S = 0.25
SWEEP_S = 60.0
FUNCTION_S = 120.0
"""Lambda ends an invocation after this time."""


class Died(Exception):
    """The process ended before it responded: the caller does not know what it did."""


class Cloud:
    """Everything that outlives a process of the lake."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world, self.plan = world, plan
        self.network = Network(world, plan)
        self.bucket = Bucket(world, BUCKET)
        self.bucket.on_created = self._landed
        self.glue = Glue()
        self.moved, self.landed = Queue(world, "moved", 180.0, fifo=True), Queue(world, "landed", 300.0)
        self.dead = Queue(world, "dead", 60.0, fifo=True)
        """The sequencer's dead letters."""
        self.events: list[dict[str, Any]] = []
        self.running = True
        self.aws = Process(world, "aws")
        self._incarnations: dict[str, int] = {}
        self._slots: dict[str, Process] = {}
        self._arrivals = 0

    @property
    def variables(self) -> dict[str, str]:
        """The environment of every function."""
        return {
            "AWS_REGION": "us-east-1",
            "STRANDLINE_BUCKET": BUCKET,
            "STRANDLINE_ORIGIN": ORIGIN,
            "STRANDLINE_SIGNER": f"secret:{SECRET}",
            "STRANDLINE_MOVED_QUEUE_URL": self.moved.url,
            "STRANDLINE_MOVED_DEAD_QUEUE_URL": self.dead.url,
            "STRANDLINE_LANDED_QUEUE_URL": self.landed.url,
            "STRANDLINE_EVENT_BUS": "simulated",
            "STRANDLINE_STAGE": "prod",
        }

    def client(self, process: Process, service: str, options: dict[str, Any]) -> Any:
        """What boto3.client makes in a process."""
        config = options.get("config")
        attempts = int(config.retries["max_attempts"]) if config is not None and config.retries else 3
        match service:
            case "s3":
                return S3Client(self.network, self.bucket, attempts)
            case "glue":
                return GlueClient(self.network, self.glue)
            case "sqs":
                return SqsClient(self.network, (self.moved, self.landed, self.dead), attempts)
            case "events":
                return EventsClient(self.network, self.events)
            case "secretsmanager":
                return SecretsClient(self.network, {SECRET: "0123456789abcdef" * 4})
        raise AssertionError(f"the simulation has no {service}")

    def start(self) -> None:
        """Lambda's pollers, and the schedule of the sweep."""
        for slot in range(2):
            self._poll(f"sequencer.{slot}", self.moved, functions.sequencer.handler)
            self._poll(f"ingest.{slot}", self.landed, functions.ingest.handler)
        self.aws.spawn(self._sweep, "schedule")

    def process(self, slot: str) -> Process:
        """The living process of a slot, started anew if the last one died."""
        process = self._slots.get(slot)
        if process is None or not process.alive:
            number = self._incarnations[slot] = self._incarnations.get(slot, 0) + 1
            process = self._slots[slot] = Process(self.world, f"{slot}#{number}")
        return process

    def invoke(self, slot: str, work: Callable[[], Any], limit_s: float = FUNCTION_S) -> Any:
        """Runs the work in the slot's process, for the current task. Died if the process does, or takes too long."""
        process, caller = self.process(slot), self.world.task()
        task = process.spawn(work, "invocation")
        self.world.at(self.world.now + limit_s, lambda: None if task.done else process.kill())
        task.join(caller)
        if isinstance(task.error, Killed):
            raise Died(process.name)
        if task.error is not None:
            raise task.error
        return task.value

    def lake(self) -> Lake:
        """The lake as the current process has it open."""
        memo = self.world.task().process.memo
        if "lake" not in memo:
            memo["lake"] = open_lake(self.settings)
        lake: Lake = memo["lake"]
        return lake

    @property
    def settings(self) -> Settings:
        return load_settings(self.variables)

    def _poll(self, slot: str, queue: Queue, handler: Callable[[Any, Any], Any]) -> None:
        def poll() -> None:
            while self.running:
                received = queue.receive()
                if not received:
                    self.world.sleep(POLL_S)
                    continue
                receipts = {message.id: message.receipt for message in received}
                event = {"Records": [_record(message, queue.name) for message in received]}
                try:
                    response = self.invoke(slot, lambda event=event: handler(event, None))  # type: ignore[misc]
                except Died:
                    continue
                except Exception as error:
                    self.world.note(self.process(slot), f"the function failed: {error!r}")
                    continue
                failed = {failure["itemIdentifier"] for failure in response["batchItemFailures"]}
                for id_, receipt in receipts.items():
                    if id_ not in failed:
                        queue.delete(receipt)

        self.aws.spawn(poll, f"poll {slot}")

    def _sweep(self) -> None:
        while self.running:
            self.moved.send(json.dumps({"kind": "sweep"}))
            self.world.sleep(SWEEP_S)

    def _landed(self, version: Version) -> None:
        """S3's event of an object below landing/."""
        if not version.key.startswith("landing/"):
            return
        self._arrivals += 1
        entity = {
            "key": quote_plus(version.key),
            "versionId": version.version_id,
            "sequencer": f"{self._arrivals:016X}",
            "eTag": version.etag.strip('"'),
        }
        record = {
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": BUCKET}, "object": entity},
            "responseElements": {"x-amz-request-id": f"request-{self._arrivals}"},
        }
        self.landed.send(json.dumps({"Records": [record]}))


def _record(message: Any, queue: str) -> dict[str, Any]:
    return {
        "messageId": message.id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": {"ApproximateReceiveCount": str(message.receives)},
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:us-east-1:123456789012:{queue}",
        "awsRegion": "us-east-1",
    }
