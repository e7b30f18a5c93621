"""The sequencer's queue: every other process writes to the timeline's store through it.

A FIFO queue whose messages are all of one group, so that Lambda has one batch in flight at a time: one sequencer,
without reserved concurrency, of which a new account has none
(docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any
from uuid import uuid4

from catalog.core.clients import client_for
from catalog.core.errors import Invalid
from catalog.core.events import SequencerMessage
from catalog.core.settings import Settings

GROUP = "sequencer"
"""The one message group. The schedule of the sweep names it, too."""


class SequencerQueue:
    """Sends requests to the sequencer. A lake without a timeline has no queue."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def exists(self) -> bool:
        return self._settings.moved_queue_url is not None

    def send(self, message: SequencerMessage) -> None:
        """Sends one message; Invalid if there is no queue.

        Never as a duplicate: two messages with the same text within five minutes may be about two commits.
        """
        if not self.exists:
            raise Invalid("the sequencer's queue is not configured: set STRANDLINE_MOVED_QUEUE_URL")
        self._sqs.send_message(
            QueueUrl=self._settings.moved_queue_url,
            MessageBody=message.model_dump_json(),
            MessageGroupId=GROUP,
            MessageDeduplicationId=uuid4().hex,
        )

    @cached_property
    def _sqs(self) -> Any:
        return client_for(self._settings, "sqs")
