"""Event source mappings from SQS to Lambda: poll queues, invoke functions with batches, delete what succeeded.

A failed message is left alone: it becomes visible again after its visibility timeout, and the queue's redrive policy
counts its receives. Requests go through the endpoint as `mapping/<function>`, so that tests can count them and inject
faults.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from moto.awslambda.utils import get_backend
from moto.sqs.models import Queue, sqs_backends

from infra.local.awslambda.invocation import Stopped, Throttled
from infra.local.awslambda.service import LambdaService
from infra.local.sqs.events import Message, failed_ids, matches, sqs_event
from infra.local.sqs.queues import announce_change, patch_queues, version, wait_for_change

_log = logging.getLogger(__name__)

_RECONCILE_SECONDS = 0.5
_MAX_EVENT_BYTES = 6_000_000  # Lambda's payload limit, which also limits a batch


@dataclass(frozen=True)
class Mapping:
    """A deployed mapping: the settings that a poller uses."""

    uuid: str
    queue_arn: str
    function_arn: str
    batch_size: int
    batch_window: float
    concurrency: int | None
    reports_item_failures: bool
    filters: tuple[dict[str, str], ...]

    @classmethod
    def of(cls, deployed: dict[str, Any]) -> Mapping:
        concurrency = (deployed.get("ScalingConfig") or {}).get("MaximumConcurrency")
        return cls(
            uuid=deployed["UUID"],
            queue_arn=deployed["EventSourceArn"],
            function_arn=deployed["FunctionArn"],
            batch_size=int(deployed["BatchSize"]),
            batch_window=float(deployed.get("MaximumBatchingWindowInSeconds") or 0),
            concurrency=int(concurrency) if concurrency else None,
            reports_item_failures="ReportBatchItemFailures" in (deployed.get("FunctionResponseTypes") or []),
            filters=tuple((deployed.get("FilterCriteria") or {}).get("Filters") or ()),
        )

    @property
    def function_name(self) -> str:
        return self.function_arn.split(":")[6]

    @property
    def queue_name(self) -> str:
        return self.queue_arn.rsplit(":", 1)[1]


class EventSourceMappings:
    """Runs one poller for each enabled SQS mapping, from `start` to `stop`."""

    def __init__(self, service: LambdaService) -> None:
        patch_queues()
        self._service = service
        self._pollers: dict[str, Poller] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._reconcile, name="mappings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops polling. Invocations in progress end with the service; their messages become visible again later."""
        self._stopping.set()
        self._thread.join(timeout=5)
        with self._lock:
            pollers = list(self._pollers.values())
            self._pollers.clear()
        for poller in pollers:
            poller.ask_to_stop()
        for poller in pollers:
            poller.stop()

    def sync(self) -> None:
        """Starts and stops pollers to match the deployed mappings. Reads moto's memory: costs no request."""
        endpoint = self._service.endpoint
        deployed = get_backend(endpoint.account, endpoint.region).list_event_source_mappings("", "")
        mappings = {
            mapping.uuid: mapping
            for mapping in (Mapping.of(source.get_configuration()) for source in deployed if source.enabled)
            if mapping.queue_arn.split(":")[2] == "sqs"
        }
        with self._lock:
            for uuid, poller in list(self._pollers.items()):
                if mappings.get(uuid) != poller.mapping:
                    self._pollers.pop(uuid).stop()
            if self._stopping.is_set():
                return
            for uuid, mapping in mappings.items():
                if uuid not in self._pollers:
                    self._pollers[uuid] = Poller(mapping, self._service)

    def _reconcile(self) -> None:
        while not self._stopping.is_set():
            try:
                self.sync()
            except Exception:
                _log.exception("could not read the event source mappings")
            self._stopping.wait(_RECONCILE_SECONDS)


class Poller:
    """Polls one queue for one function, with at most as many concurrent batches as the function can run."""

    def __init__(self, mapping: Mapping, service: LambdaService) -> None:
        self.mapping = mapping
        self._service = service
        self._sqs = service.endpoint.client("sqs", f"mapping/{mapping.function_name}")
        account = mapping.queue_arn.split(":")[4]
        self._url = f"{service.endpoint.url}/{account}/{mapping.queue_name}"
        self._running = 0
        self._slots = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name=f"poll {mapping.queue_name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when no further batch will be received; batches in progress continue."""
        self.ask_to_stop()
        self._thread.join(timeout=5)

    def ask_to_stop(self) -> None:
        self._stopping.set()
        with self._slots:
            self._slots.notify_all()
        queue = self._queue()
        if queue is not None:
            announce_change(queue)

    def _poll(self) -> None:
        while not self._stopping.is_set():
            try:
                self._wait_for_slot()
                batch = self._receive_batch()
            except Exception as error:  # a poller that ended would stop deliveries silently, so it retries
                _log.warning("could not poll %s: %r", self.mapping.queue_name, error)
                self._stopping.wait(_RECONCILE_SECONDS)
                continue
            if batch:
                with self._slots:
                    self._running += 1
                name = f"batch {self.mapping.queue_name}"
                threading.Thread(target=self._process, args=(batch,), name=name, daemon=True).start()

    def _wait_for_slot(self) -> None:
        # At least one: with a reserved concurrency of zero, batches are received and throttled, as on AWS.
        limit = max(1, self._service.concurrency(self.mapping.function_arn))
        if self.mapping.concurrency:
            limit = min(limit, self.mapping.concurrency)
        with self._slots:
            self._slots.wait_for(lambda: self._running < limit or self._stopping.is_set())

    def _receive_batch(self) -> list[Message]:
        """Blocks until a batch is full, its batch window has passed, or it nears Lambda's payload limit."""
        batch: list[Message] = []
        window_ends: float | None = None
        while not self._stopping.is_set():
            queue = self._queue()
            if queue is None:
                self._stopping.wait(_RECONCILE_SECONDS)
                return batch
            seen_version = version(queue)
            if self._stopping.is_set():  # asked before the version was read: nothing would end the wait below
                return batch
            received = self._receive(self.mapping.batch_size - len(batch))
            batch += received
            if batch and window_ends is None:
                window_ends = time.monotonic() + self.mapping.batch_window
            remaining = None if window_ends is None else window_ends - time.monotonic()
            if batch and (
                len(batch) >= self.mapping.batch_size or remaining is None or remaining <= 0 or _is_big(batch)
            ):
                return batch
            if not received:
                wait_for_change(queue, seen_version, remaining)
        return batch

    def _receive(self, limit: int) -> list[Message]:
        messages: list[Message] = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=min(10, limit),
            WaitTimeSeconds=0,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        filtered_out = [message for message in messages if not matches(message, self.mapping.filters)]
        self._delete(filtered_out)
        return [message for message in messages if message not in filtered_out]

    def _process(self, batch: list[Message]) -> None:
        try:
            failed = self._invoke(batch)
            self._delete([message for message in batch if message["MessageId"] not in failed])
        except (Stopped, Throttled):
            pass  # the function did not run: the messages become visible again
        except Exception as error:
            # When the delete failed, the messages are delivered again: SQS delivers at least once.
            _log.warning("could not finish a batch of %s: %r", self.mapping.queue_name, error)
        finally:
            with self._slots:
                self._running -= 1
                self._slots.notify_all()

    def _invoke(self, batch: list[Message]) -> set[str]:
        event = sqs_event(batch, self.mapping.queue_arn, self._service.endpoint.region)
        sent = {message["MessageId"] for message in batch}
        invocation = self._service.invoke(self.mapping.function_arn, json.dumps(event).encode())
        if invocation.function_error:
            return sent
        return failed_ids(invocation.payload, sent) if self.mapping.reports_item_failures else set()

    def _delete(self, messages: list[Message]) -> None:
        for start in range(0, len(messages), 10):
            entries = [
                {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]}
                for index, message in enumerate(messages[start : start + 10])
            ]
            self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)

    def _queue(self) -> Queue | None:
        endpoint = self._service.endpoint
        return sqs_backends[endpoint.account][endpoint.region].queues.get(self.mapping.queue_name)


def _is_big(batch: list[Message]) -> bool:
    return sum(len(message["Body"]) for message in batch) > _MAX_EVENT_BYTES - 10 * 262_144
