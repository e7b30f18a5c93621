"""How a function that reads a queue serves a batch: what becomes of its messages, also when its process dies.

AWS requires that a queue's visibility timeout is at least the timeout of its function, which is minutes. So the
function sets the visibility of its messages itself: short, and extended while it works. The messages of a process that
was killed are visible again after VISIBILITY_S at most. A process that was frozen for longer finds that another one
serves its messages: every effect of a message happens once however often it is served. Not a handler.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from botocore.exceptions import BotoCoreError, ClientError

from catalog import Internal, LakeError, load_settings
from catalog.core.clients import client_for
from catalog.core.errors import INVALID

log = logging.getLogger(__name__)

Records = list[dict[str, Any]]
Serve = Callable[[Records], Mapping[str, LakeError]]
"""Serves the messages; returns the refused ones: message id -> the reason."""

VISIBILITY_S = 20
HEARTBEAT_S = 5.0
LONGEST_BACKOFF_S = 900
_ENTRIES = 10
"""SQS's limit for a batch request; also the size of our batches."""


def serve_batch(
    event: dict[str, Any],
    context: Any,
    queue_url: str | None,
    serve: Serve,
    longest_backoff_s: int = LONGEST_BACKOFF_S,
) -> Any:
    """Serves a batch, and responds with Lambda's partial batch response: refused messages are delivered again.

    They are visible again after `backoff_s`. When `serve` raises, that is all of them. Costs one request before the
    work, one every HEARTBEAT_S of it, and one if a message is refused. Requests that fail are logged only: then the
    queue's own visibility timeout applies. `queue_url` None: the visibility is not changed.
    """
    records: Records = event["Records"]
    queue = _Visibility(queue_url, records, longest_backoff_s)
    refused: Mapping[str, LakeError] = {record["messageId"]: Internal("the function failed") for record in records}
    try:
        with queue.kept():
            refused = serve(records)
    finally:
        queue.give_back(refused)
    return _partial_response(event, context, refused)


def backoff_s(error: LakeError, receives: int, longest_s: int = LONGEST_BACKOFF_S) -> int:
    """How long a refused message stays invisible. Doubles with each receive: an outage of hours is survived.

    A message that can never be served is visible at once, so that it is a dead letter soon.
    """
    if error.kind is INVALID:
        return 0
    return int(min(longest_s, 2 ** max(0, min(receives, 20) - 1)))


class _Visibility:
    """The visibility of a batch's messages. Its methods never raise."""

    def __init__(self, queue_url: str | None, records: Records, longest_backoff_s: int) -> None:
        self._queue_url = queue_url
        self._records = records
        self._longest_backoff_s = longest_backoff_s

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps the messages invisible until the block ends. No thread is left then: Lambda freezes the process."""
        if self._queue_url is None:
            yield
            return
        everything = [(record, VISIBILITY_S) for record in self._records]
        # Before any work: a process that dies earlier leaves its messages to the queue's own visibility timeout.
        self._change(everything)
        ended = threading.Event()

        def extend() -> None:
            while not ended.wait(HEARTBEAT_S):
                self._change(everything)

        thread = threading.Thread(target=extend, name="visibility", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def give_back(self, refused: Mapping[str, LakeError]) -> None:
        if self._queue_url is not None:
            self._change(
                [
                    (record, backoff_s(refused[record["messageId"]], receives(record), self._longest_backoff_s))
                    for record in self._records
                    if record["messageId"] in refused
                ]
            )

    def _change(self, visibilities: Sequence[tuple[dict[str, Any], int]]) -> None:
        for start in range(0, len(visibilities), _ENTRIES):
            entries = [
                {"Id": str(number), "ReceiptHandle": record["receiptHandle"], "VisibilityTimeout": seconds}
                for number, (record, seconds) in enumerate(visibilities[start : start + _ENTRIES])
            ]
            try:
                response = _sqs().change_message_visibility_batch(QueueUrl=self._queue_url, Entries=entries)
            except (BotoCoreError, ClientError) as error:
                log.warning("visibility not changed", extra={"messages": len(entries), "reason": str(error)})
                continue
            if failed := response.get("Failed"):
                # The message is visible, deleted, or received by another process, after this one was frozen.
                codes = sorted({entry["Code"] for entry in failed})
                log.warning("visibility not changed", extra={"messages": len(failed), "reason": ", ".join(codes)})


def receives(record: dict[str, Any]) -> int:
    """How often SQS has delivered the message, this time included."""
    return int(record.get("attributes", {}).get("ApproximateReceiveCount", 1))


@cache
def _sqs() -> Any:
    """A client that gives up early: a request that hangs must neither delay the work nor the next heartbeat."""
    return client_for(load_settings(), "sqs", read_timeout_s=2.0, connect_timeout_s=1.0, retries=1)


def _partial_response(event: dict[str, Any], context: Any, refused: Mapping[str, LakeError]) -> Any:
    def raise_if_refused(record: SQSRecord) -> None:
        if record.message_id in refused:
            raise refused[record.message_id]

    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(event=event, record_handler=raise_if_refused, processor=processor, context=context)
