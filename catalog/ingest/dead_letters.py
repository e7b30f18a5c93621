"""Dead letters of the landing queue: messages whose processing failed five times, to be listed and sent back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from catalog.core.aws_errors import translate_aws_error
from catalog.core.errors import Invalid
from catalog.ingest.ledger import Ledger
from catalog.ingest.s3_events import parse_event

_BATCH = 10
_HIDDEN_S = 120
"""Visibility timeout of a received dead letter: only another `peek` or `redrive` reads this queue."""


@dataclass(frozen=True)
class DeadLetter:
    """A message that could not be processed: the keys of its files, and the reason if it is known."""

    message_id: str
    keys: tuple[str, ...]
    reason: str | None
    body: str


class DeadLetters:
    """The dead letters of the landing queue at `queue_url`, whose redrive policy names the dead-letter queue."""

    def __init__(self, sqs: Any, queue_url: str, ledger: Ledger) -> None:
        self._sqs, self._queue, self._ledger = sqs, queue_url, ledger

    def peek(self, limit: int | None = None) -> list[DeadLetter]:
        """The dead letters, which stay in their queue. One request for every ten, and one for each to release it."""
        received = list(self._receive(limit))
        with self._translated():
            for message, _ in received:
                self._sqs.change_message_visibility(
                    QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
                )
        return [letter for _, letter in received]

    def redrive(self, limit: int | None = None) -> Iterator[DeadLetter]:
        """Sends each dead letter back to the landing queue, deletes it from its own, then yields it.

        A crash between the two requests leaves it in both queues: it is processed twice, and commits its rows once.
        """
        for message, letter in self._receive(limit):
            with self._translated():
                self._sqs.send_message(QueueUrl=self._queue, MessageBody=letter.body)
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
            yield letter

    @cached_property
    def _url(self) -> str:
        with self._translated():
            response = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["RedrivePolicy"])
            policy = response.get("Attributes", {}).get("RedrivePolicy")
            if policy is None:
                raise Invalid(f"{self._queue} has no dead-letter queue: set a redrive policy on it")
            *_, account, name = json.loads(policy)["deadLetterTargetArn"].split(":")
            url: str = self._sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
        return url

    def _receive(self, limit: int | None) -> Iterator[tuple[dict[str, Any], DeadLetter]]:
        remaining = limit
        while remaining is None or remaining > 0:
            with self._translated():
                messages = self._sqs.receive_message(
                    QueueUrl=self._url,
                    MaxNumberOfMessages=min(_BATCH, remaining or _BATCH),
                    VisibilityTimeout=_HIDDEN_S,
                ).get("Messages", [])
            if not messages:
                return
            for message in messages:
                yield message, self._letter(message)
            remaining = None if remaining is None else remaining - len(messages)

    def _letter(self, message: dict[str, Any]) -> DeadLetter:
        body: str = message["Body"]
        try:
            files = parse_event(body)
        except Invalid as error:
            return DeadLetter(message["MessageId"], (), error.message, body)
        failures = (self._ledger.failure(file.key, file.version_id) for file in files)
        reason = next((failure.reason for failure in failures if failure is not None), None)
        return DeadLetter(message["MessageId"], tuple(file.key for file in files), reason, body)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            raise translate_aws_error(error, self._queue) from error
