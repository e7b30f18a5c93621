"""A queue with its dead-letter queue: the only way work waits in this lake."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

RECEIVES_BEFORE_DEAD_LETTER = 5


class WorkQueue(Construct):
    """Messages a consumer with `consumer_timeout` works off; after so many receives they are dead letters.

    A consumer whose concurrency is reserved is throttled at times, and each time counts as a receive.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        consumer_timeout: Duration,
        receives: int = RECEIVES_BEFORE_DEAD_LETTER,
    ) -> None:
        super().__init__(scope, id)
        self.dead_letters = dead_letters(self, "DeadLetters", name=f"{name}-dead")
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=name,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            # Lambda asks for six times the function's time-out, so that a throttled batch is not received twice.
            visibility_timeout=Duration.seconds(6 * int(consumer_timeout.to_seconds())),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=receives),
        )


def dead_letters(scope: Construct, id: str, *, name: str) -> sqs.Queue:
    """Where what could not be done waits for a person, as long as SQS keeps anything."""
    return sqs.Queue(
        scope,
        id,
        queue_name=name,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.days(14),
    )
