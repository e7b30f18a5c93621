"""The sequencer's queue: every other process writes to the timeline's store through it.

A FIFO queue whose messages are all of one group, so that Lambda has one batch in flight at a time: one sequencer,
without reserved concurrency, of which a new account has none
(docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, translate_aws_errors
from catalog.core.clients import client_for
from catalog.core.errors import Invalid
from catalog.core.events import SequencerMessage, parse_message
from catalog.core.settings import Settings

GROUP = "sequencer"
"""The one message group. The schedule of the sweep names it, too."""
MAX_MESSAGE_BYTES = 128 * 1024
"""Half of what SQS takes."""


class SequencerQueue:
    """Sends requests to the sequencer. A lake without a timeline has no queue."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def exists(self) -> bool:
        return self._settings.moved_queue_url is not None

    def send(self, message: SequencerMessage) -> None:
        """Sends one message, or stores it as an object that S3 announces; Invalid if there is no queue.

        Never as a duplicate: two messages with the same text within five minutes may be about two commits.
        """
        if not self.exists:
            raise Invalid("the sequencer's queue is not configured: set STRANDLINE_MOVED_QUEUE_URL")
        body = message.model_dump_json()
        if self._settings.send_requests == "s3":
            key = f"{s3_layout.MESSAGES}{uuid4().hex}.json"
            self._s3.put_object(Bucket=self._settings.bucket, Key=key, Body=body.encode())
            return
        self._sqs.send_message(
            QueueUrl=self._settings.moved_queue_url,
            MessageBody=body,
            MessageGroupId=GROUP,
            MessageDeduplicationId=uuid4().hex,
        )

    @cached_property
    def _sqs(self) -> Any:
        return client_for(self._settings, "sqs")

    @cached_property
    def _s3(self) -> Any:
        return client_for(self._settings, "s3")


def read_message(s3: Any, bucket: str, key: str) -> SequencerMessage | None:
    """The message that an object below `messages/` holds; None if the object is gone, Invalid if it is no message."""
    with translate_aws_errors(key):
        try:
            body = s3.get_object(Bucket=bucket, Key=key, Range=f"bytes=0-{MAX_MESSAGE_BYTES}")["Body"].read()
        except ClientError as error:
            if is_missing(error):
                return None
            raise
    if len(body) > MAX_MESSAGE_BYTES:
        raise Invalid(f"{key} is over {MAX_MESSAGE_BYTES} bytes: not a message for the sequencer", subject=key)
    return parse_message(body.decode(errors="replace"))
