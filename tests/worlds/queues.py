"""A queue, a function that keeps its events in a bucket, and the event source mapping between them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from infra.local.requests import Request
from infra.local.server import ApiServer
from infra.local.sqs.mappings import EventSourceMappings
from tests.waiting import wait_until

PARTIAL = {"FunctionResponseTypes": ["ReportBatchItemFailures"]}


@dataclass
class Line:
    """A queue, a function that keeps its events in a bucket, and the mapping between them."""

    server: ApiServer
    name: str
    url: str
    dead_letters: str | None
    mapping: str

    def send(self, *bodies: str, **more: Any) -> list[str]:
        entries = [{"Id": str(i), "MessageBody": body, **more} for i, body in enumerate(bodies)]
        sent = self._sqs.send_message_batch(QueueUrl=self.url, Entries=entries)["Successful"]
        return [entry["MessageId"] for entry in sent]

    def events(self) -> list[dict[str, Any]]:
        """Every event the function got, in order."""
        s3 = self.server.endpoint.client("s3")
        objects = s3.list_objects_v2(Bucket=self.name).get("Contents", [])
        events = [json.loads(s3.get_object(Bucket=self.name, Key=item["Key"])["Body"].read()) for item in objects]
        return sorted(
            events,
            key=lambda event: min(int(r["attributes"]["ApproximateReceiveCount"]) for r in event["Records"]),
        )

    def bodies(self) -> list[str]:
        return [record["body"] for event in self.events() for record in event["Records"]]

    def left(self, url: str | None = None) -> int:
        """Messages in the queue, in flight or not."""
        return sum(self.counts(url))

    def counts(self, url: str | None = None) -> tuple[int, int]:
        """Messages that can be received, and messages in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self._sqs.get_queue_attributes(QueueUrl=url or self.url, AttributeNames=names)["Attributes"]
        visible, in_flight = (int(attributes[name]) for name in names)
        return visible, in_flight

    def served(self) -> bool:
        """Whether the function got an event and the queue is empty."""
        return bool(self.events()) and self.left() == 0

    def calls(self, mark: int, action: str | None = None) -> list[Request]:
        """The mapping's requests since the mark."""
        principal = f"mapping.{self.name}"
        return self.server.log.since(
            mark, lambda request: request.principal == principal and action in (None, request.action)
        )

    @property
    def _sqs(self) -> Any:
        return self.server.endpoint.client("sqs")


def warm_up(made: Line) -> None:
    made.send("warm up")
    wait_until(made.served, "the first message to be served")


def set_enabled(mappings: EventSourceMappings, made: Line, enabled: bool) -> None:
    made.server.endpoint.client("lambda").update_event_source_mapping(UUID=made.mapping, Enabled=enabled)
    mappings.sync()


def arn(queue: str) -> str:
    return f"arn:aws:sqs:us-east-1:123456789012:{queue}"
