"""SQS queues: a work queue, standard or FIFO, with its dead-letter queue."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

# A message that the lake cannot serve is invisible for 1, 2, 4, ... and at most 900 seconds after each receive
# (functions/sqs_batch.py): twenty receives are two and a half hours.
RECEIVES_BEFORE_DEAD_LETTER = 20


class WorkQueue(Construct):
    """The queue of a function whose timeout is `consumer_timeout`. `receives` is the maximum receive count.

    Each time the function is throttled, its messages have been received once more. The visibility timeout, `timeouts`
    times the function's, counts only until the function starts: it then sets the visibility of its messages itself, in
    seconds. Lambda refuses a queue whose visibility timeout is less than its function's timeout; AWS recommends six
    times that, so that a throttled batch is not received twice.

    A FIFO queue's name ends in `.fifo`, and its dead-letter queue is a FIFO queue too. EventBridge Scheduler delivers
    only to one with content-based deduplication
    (docs.aws.amazon.com/scheduler/latest/APIReference/API_SqsParameters.html).
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        consumer_timeout: Duration,
        receives: int = RECEIVES_BEFORE_DEAD_LETTER,
        timeouts: int = 6,
        fifo: bool = False,
    ) -> None:
        super().__init__(scope, id)
        self.dead_letters = dead_letters(self, "DeadLetters", name=f"{name}-dead", fifo=fifo)
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=f"{name}.fifo" if fifo else name,
            fifo=fifo or None,
            content_based_deduplication=fifo or None,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(timeouts * int(consumer_timeout.to_seconds())),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=receives),
        )


def dead_letters(scope: Construct, id: str, *, name: str, fifo: bool = False) -> sqs.Queue:
    """A dead-letter queue with SQS's longest retention period."""
    return sqs.Queue(
        scope,
        id,
        queue_name=f"{name}.fifo" if fifo else name,
        fifo=fifo or None,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.days(14),
    )
