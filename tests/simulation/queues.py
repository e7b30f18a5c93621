"""SQS, EventBridge and Secrets Manager in memory. A queue delivers at least once, in any order, and late at times."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.network import Network, client_error
from tests.simulation.scheduler import World

MAX_RECEIVES = 12


@dataclass
class Message:
    id: str
    body: str
    visible_at: float
    receives: int = 0
    receipt: str = ""


@dataclass
class Queue:
    """A queue. `visibility_s` is its own visibility timeout. A standard queue delivers in any order, and some messages
    twice. In a `fifo` queue, all messages are of one group: one batch is in flight at a time, in order. With
    `overlaps`, a second batch is delivered meanwhile: two sequencers at once, which must do no harm."""

    world: World
    name: str
    visibility_s: float
    fifo: bool = False
    overlaps: bool = False
    messages: dict[str, Message] = field(default_factory=dict)
    dead: list[Message] = field(default_factory=list)
    _ids: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        return f"https://sqs.simulated/{self.name}{'.fifo' * self.fifo}"

    def send(self, body: str, delay_s: float = 0.0) -> str:
        number = next(self._ids)
        id_, random = f"{self.name}-{number}", self.world.random("queue", self.name, number)
        copies = 2 if random.random() < 0.1 and not self.fifo else 1  # SQS may deliver a message twice
        for copy in range(copies):
            late = random.expovariate(1 / 0.02) if random.random() < 0.9 else random.uniform(0, 20)
            late = 0.0 if self.fifo else late
            entry = f"{id_}{'-again' * copy}"
            self.messages[entry] = Message(entry, body, self.world.now + delay_s + late)
        return id_

    def receive(self, limit: int = 10) -> list[Message]:
        """Up to ten visible messages, in any order; each is invisible from now on."""
        visible = [m for m in self.messages.values() if m.visible_at <= self.world.now]
        random = self.world.random("receive", self.name, next(self._ids))
        if not self.fifo:
            random.shuffle(visible)
        elif len(visible) < len(self.messages) and not self.overlaps:
            return []  # a batch of the group is in flight, or waits for its turn after a refusal
        received = []
        for message in visible[: random.randint(1, limit)]:
            message.receives += 1
            if message.receives > MAX_RECEIVES:
                self.dead.append(self.messages.pop(message.id))
                continue
            message.visible_at = self.world.now + self.visibility_s
            message.receipt = f"{message.id}/{message.receives}"
            received.append(message)
        return received

    def delete(self, receipt: str) -> None:
        """The receipt of an earlier delivery may or may not delete; here it does not."""
        message = self.messages.get(receipt.split("/")[0])
        if message is not None and message.receipt == receipt:
            del self.messages[message.id]

    def change_visibility(self, receipt: str, seconds: float) -> bool:
        message = self.messages.get(receipt.split("/")[0])
        if message is None or message.receipt != receipt or message.visible_at <= self.world.now:
            return False
        message.visible_at = self.world.now + seconds
        return True


class SqsClient:
    """boto3's SQS client, as far as the lake uses it."""

    def __init__(self, network: Network, queues: Sequence[Queue], attempts: int = 3) -> None:
        self._network, self._queues = network, {queue.url: queue for queue in queues}
        self._attempts = attempts

    def _send(self, what: str, apply: Callable[[], Any]) -> Any:
        return self._network.request(f"sqs {what}", apply, attempts=self._attempts)

    def send_message(self, *, QueueUrl: str, MessageBody: str, DelaySeconds: int = 0, **named: Any) -> dict[str, Any]:
        queue = self._queues[QueueUrl]
        assert queue.fifo == ("MessageGroupId" in named), f"{queue.name}: a FIFO queue, and no other, has groups"
        id_ = self._send(f"Send {queue.name} {MessageBody[:60]}", lambda: queue.send(MessageBody, DelaySeconds))
        return {"MessageId": id_}

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        queue = self._queues[QueueUrl]

        def apply() -> dict[str, Any]:
            failed = [
                {"Id": entry["Id"], "Code": "ReceiptHandleIsInvalid"}
                for entry in Entries
                if not queue.change_visibility(entry["ReceiptHandle"], entry["VisibilityTimeout"])
            ]
            return {"Failed": failed} if failed else {}

        what = f"ChangeVisibility {queue.name} {sorted({e['VisibilityTimeout'] for e in Entries})}"
        result: dict[str, Any] = self._send(what, apply)
        return result


class EventsClient:
    """EventBridge: keeps what was put."""

    def __init__(self, network: Network, events: list[dict[str, Any]]) -> None:
        self._network, self._events = network, events

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        self._network.request(
            f"events PutEvents {len(Entries)}",
            lambda: self._events.extend(json.loads(entry["Detail"]) for entry in Entries),
        )
        return {"FailedEntryCount": 0, "Entries": [{} for _ in Entries]}


class SecretsClient:
    def __init__(self, network: Network, secrets: dict[str, str]) -> None:
        self._network, self._secrets = network, secrets

    def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:
        def apply() -> dict[str, Any]:
            if SecretId not in self._secrets:
                raise client_error("ResourceNotFoundException", 400, "GetSecretValue")
            return {"SecretString": self._secrets[SecretId]}

        result: dict[str, Any] = self._network.request("secrets GetSecretValue", apply)
        return result
