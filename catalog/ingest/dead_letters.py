"""Dead letters of the landing queue: messages that could not be served five times, looked at and sent back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from catalog.errors import Invalid
from catalog.ingest.ledger import Ledger
from catalog.pipeline.landing import parse_event
from catalog.refusals import explain

_BATCH = 10
_HIDDEN_S = 120
"""How long a message is ours while it is looked at: nobody else reads this queue but another redrive."""


@dataclass(frozen=True)
class DeadLetter:
    """A message nobody could serve: the files it tells of, and the reason if it is known."""

    message_id: str
    keys: tuple[str, ...]
    reason: str | None
    body: str


class DeadLetters:
    """The dead letters behind the queue of landed files, whose URL it takes: that queue's own policy names them."""

    def __init__(self, sqs: Any, queue_url: str, ledger: Ledger) -> None:
        self._sqs, self._queue, self._ledger = sqs, queue_url, ledger

    def look(self, limit: int | None = None) -> list[DeadLetter]:
        """What is there; it stays there. A request for every ten, and as many again to give them back."""
        found = list(self._receive(limit))
        with self._explained():
            for message, _ in found:
                self._sqs.change_message_visibility(
                    QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
                )
        return [letter for _, letter in found]

    def redrive(self, limit: int | None = None) -> Iterator[DeadLetter]:
        """Sends each back to the landing queue, then deletes it here; gives it when that is done.

        A crash between the two leaves it in both: it is served twice, which makes no row twice.
        """
        for message, letter in self._receive(limit):
            with self._explained():
                self._sqs.send_message(QueueUrl=self._queue, MessageBody=letter.body)
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
            yield letter

    @cached_property
    def _url(self) -> str:
        with self._explained():
            answer = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["RedrivePolicy"])
            policy = answer.get("Attributes", {}).get("RedrivePolicy")
            if policy is None:
                raise Invalid(f"{self._queue} keeps no dead letters: it has no redrive policy")
            *_, account, name = json.loads(policy)["deadLetterTargetArn"].split(":")
            url: str = self._sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
        return url

    def _receive(self, limit: int | None) -> Iterator[tuple[dict[str, Any], DeadLetter]]:
        left = limit
        while left is None or left > 0:
            with self._explained():
                messages = self._sqs.receive_message(
                    QueueUrl=self._url, MaxNumberOfMessages=min(_BATCH, left or _BATCH), VisibilityTimeout=_HIDDEN_S
                ).get("Messages", [])
            if not messages:
                return
            for message in messages:
                yield message, self._letter(message)
            left = None if left is None else left - len(messages)

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
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            raise explain(error, self._queue) from error
