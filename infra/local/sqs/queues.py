"""moto's SQS mended: no message lost or handed out twice, FIFO as strict as AWS, sleep instead of polling.

What moto 5.2.5 does: it rebuilds a queue's list on delete while another thread appends (a message vanishes);
two receivers may get one message; a long poll spins while a FIFO group is blocked and oversleeps a visibility
time-out by up to a second; a duplicate counts as new once the first was deleted; and it calls mapped
functions itself, inside SendMessage, with an invented payload.
"""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

from moto.core.utils import unix_time, unix_time_millis
from moto.sqs.models import DEDUPLICATION_TIME_IN_SECONDS, Message, Queue, SQSBackend

_sequence = itertools.count(18_850_000_000_000_000_000)


def wait_for_change(queue: Queue, seen: int, timeout: float | None = None) -> None:
    """Sleeps until the queue changed since its version was `seen`, or a message becomes visible by itself.

    Costs nothing while it sleeps. May wake for nothing: look again.
    """
    with queue._messages_lock:
        if version(queue) != seen:
            return
        limits = [limit for limit in (_next_visible(queue), timeout) if limit is not None]
        queue._messages_lock.wait(min(limits) if limits else None)


def version(queue: Queue) -> int:
    return int(getattr(queue, "version", 0))


def announce_change(queue: Queue) -> None:
    with queue._messages_lock:
        queue.version = version(queue) + 1
        queue._messages_lock.notify_all()


def _next_visible(queue: Queue) -> float | None:
    """Seconds until the next in-flight or delayed message can be received; None when there is none."""
    now = unix_time_millis()
    due = [at for message in queue._messages if (at := max(message.visible_at, message.delayed_until)) >= now]
    return (min(due) - now) / 1000 + 0.001 if due else None  # moto's "visible" is strictly later than visible_at


@functools.cache
def mend_queues() -> None:
    """Applied once per process, before any message is sent."""
    Queue.add_message = _add_message
    SQSBackend.receive_message = _receiving(SQSBackend.receive_message)
    SQSBackend.is_message_valid_based_on_retention_period = _retained
    for name in ("delete_message", "change_message_visibility", "purge_queue"):
        setattr(SQSBackend, name, _exclusive(getattr(SQSBackend, name)))


def _add_message(queue: Queue, message: Message) -> None:
    """AWS: a FIFO queue swallows a duplicate for five minutes, also after the first one was consumed."""
    with queue._messages_lock:
        if queue.fifo_queue:
            message.sequence_number = str(next(_sequence))
            if message.deduplication_id and _is_duplicate(queue, message):
                return
        queue._messages.append(message)
        announce_change(queue)


def _is_duplicate(queue: Queue, message: Message) -> bool:
    if message.approximate_receive_count:  # moved here by a redrive policy: not a new message
        return False
    known: dict[tuple[str | None, str | None], float] = queue.__dict__.setdefault("deduplication", {})
    group = message.group_id if queue.deduplication_scope == "messageGroup" else None
    now = unix_time()
    for key in [key for key, sent in known.items() if now - sent >= DEDUPLICATION_TIME_IN_SECONDS]:
        del known[key]
    if (group, message.deduplication_id) in known:
        return True
    known[group, message.deduplication_id] = now
    return False


def _receiving(single_pass: Any) -> Any:
    """AWS: one message, one receiver; a long poll ends as soon as a message can be had."""

    def receive_message(
        self: SQSBackend,
        queue_name: str,
        count: int,
        wait_seconds_timeout: int,
        visibility_timeout: int,
        message_attribute_names: list[str] | None = None,
    ) -> list[Message]:
        queue = self.get_queue(queue_name)
        deadline = time.monotonic() + wait_seconds_timeout
        while True:
            with queue._messages_lock:
                seen = version(queue)
                found: list[Message] = single_pass(
                    self, queue_name, count, 0, visibility_timeout, message_attribute_names
                )
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            wait_for_change(queue, seen, left)

    return receive_message


def _exclusive(original: Any) -> Any:
    @functools.wraps(original)
    def with_lock(self: SQSBackend, queue_name: str, *args: Any, **named: Any) -> Any:
        queue = self.get_queue(queue_name)
        with queue._messages_lock:
            answer = original(self, queue_name, *args, **named)
            announce_change(queue)
        return answer

    return with_lock


def _retained(self: SQSBackend, queue_name: str, message: Message) -> bool:
    # moto counts through the whole queue several times for this, for every message received
    period: float = self.get_queue(queue_name).message_retention_period
    return bool(message.sent_timestamp / 1000 + period > unix_time())
