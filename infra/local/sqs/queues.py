"""Patches for moto's SQS: no message is lost or received twice, FIFO is as strict as on AWS, long polls do not spin.

moto 5.2.5 rebuilds a queue's list on delete while another thread appends, which loses messages; lets two receivers get
the same message; spins in a long poll while a FIFO group is blocked, and wakes up to a second after a visibility
timeout; accepts a duplicate once the first message was deleted; changes the visibility of a message that is not in
flight; and invokes mapped functions itself, inside SendMessage, with a made-up payload.
"""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

from moto.core.utils import unix_time, unix_time_millis
from moto.sqs.exceptions import ReceiptHandleIsInvalid
from moto.sqs.models import DEDUPLICATION_TIME_IN_SECONDS, Message, Queue, SQSBackend

_sequence = itertools.count(18_850_000_000_000_000_000)


def wait_for_change(queue: Queue, seen_version: int, timeout: float | None = None) -> None:
    """Sleeps until the queue's version is no longer `seen_version`, a message becomes visible, or the timeout passes.

    May wake spuriously: check the queue again.
    """
    with queue._messages_lock:
        if version(queue) != seen_version:
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
    instants = [
        instant for message in queue._messages if (instant := max(message.visible_at, message.delayed_until)) >= now
    ]
    return (
        (min(instants) - now) / 1000 + 0.001 if instants else None
    )  # moto's "visible" is strictly later than visible_at


@functools.cache
def patch_queues() -> None:
    """Applies every patch, once per process, before any message is sent."""
    Queue.add_message = _add_message
    SQSBackend.change_message_visibility = _in_flight(SQSBackend.change_message_visibility)
    SQSBackend.receive_message = _receiving(SQSBackend.receive_message)
    SQSBackend.is_message_valid_based_on_retention_period = _retained
    for name in ("delete_message", "change_message_visibility", "purge_queue"):
        setattr(SQSBackend, name, _exclusive(getattr(SQSBackend, name)))


def _add_message(queue: Queue, message: Message) -> None:
    """AWS: a FIFO queue drops a duplicate for five minutes, even after the first message was deleted."""
    with queue._messages_lock:
        if queue.fifo_queue:
            message.sequence_number = str(next(_sequence))
            if message.deduplication_id and _is_duplicate(queue, message):
                return
        queue._messages.append(message)
        announce_change(queue)


def _is_duplicate(queue: Queue, message: Message) -> bool:
    if message.approximate_receive_count:  # moved by a redrive policy: not a new message
        return False
    sent_times: dict[tuple[str | None, str | None], float] = queue.__dict__.setdefault("deduplication", {})
    group = message.group_id if queue.deduplication_scope == "messageGroup" else None
    now = unix_time()
    for key in [key for key, sent in sent_times.items() if now - sent >= DEDUPLICATION_TIME_IN_SECONDS]:
        del sent_times[key]
    if (group, message.deduplication_id) in sent_times:
        return True
    sent_times[group, message.deduplication_id] = now
    return False


def _receiving(single_pass: Any) -> Any:
    """AWS: a message has one receiver; a long poll returns as soon as a message is visible."""

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
                seen_version = version(queue)
                messages: list[Message] = single_pass(
                    self, queue_name, count, 0, visibility_timeout, message_attribute_names
                )
            remaining = deadline - time.monotonic()
            if messages or remaining <= 0:
                return messages
            wait_for_change(queue, seen_version, remaining)

    return receive_message


def _in_flight(original: Any) -> Any:
    """AWS: MessageNotInflight for a message that is visible. A batch reports it for that message, and goes on."""

    def change_message_visibility(
        self: SQSBackend, queue_name: str, receipt_handle: str, visibility_timeout: int
    ) -> None:
        for message in self.get_queue(queue_name)._messages:
            if message.had_receipt_handle(receipt_handle) and message.visible:
                raise _MessageNotInflight()
        original(self, queue_name, receipt_handle, visibility_timeout)

    return change_message_visibility


class _MessageNotInflight(ReceiptHandleIsInvalid):
    """A subclass, because moto's batch request catches that error only."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.message = "MessageNotInflight", "The specified message isn't in flight."


def _exclusive(original: Any) -> Any:
    @functools.wraps(original)
    def with_lock(self: SQSBackend, queue_name: str, *args: Any, **kwargs: Any) -> Any:
        queue = self.get_queue(queue_name)
        with queue._messages_lock:
            result = original(self, queue_name, *args, **kwargs)
            announce_change(queue)
        return result

    return with_lock


def _retained(self: SQSBackend, queue_name: str, message: Message) -> bool:
    # moto scans the whole queue several times for this, for each received message
    period: float = self.get_queue(queue_name).message_retention_period
    return bool(message.sent_timestamp / 1000 + period > unix_time())
