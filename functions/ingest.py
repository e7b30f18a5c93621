"""The ingest function, triggered by the landing queue: ingests the files of a batch of S3 event messages in one run.

It also forwards requests to the sequencer that a job stored as objects: S3 cannot notify the sequencer's FIFO queue.

A message whose file is bad input is done: the file is quarantined. A message is delivered again only if the lake
failed, or if it is not S3's: such a message becomes a dead letter.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, get_args

from aws_lambda_powertools.metrics import MetricUnit

from catalog import Internal, Lake, LakeError, load_settings, open_lake
from catalog.core import s3_layout
from catalog.core.errors import as_lake_error
from catalog.core.logs import configure_logs
from catalog.core.sequencer_queue import read_message
from catalog.ingest import Ingest, LandedFile, Outcome, Status, parse_event
from functions.metrics import function_metrics
from functions.sqs_batch import receives, serve_batch

log = logging.getLogger(__name__)

RECEIVES_TOGETHER = 2
"""A message that is received more often may be of a file that ends the process: its files are ingested one by one."""


@cache
def lake() -> Lake:
    settings = load_settings()
    configure_logs("ingest", settings.log_level)
    return open_lake(settings)


@cache
def ingest() -> Ingest:
    return Ingest(lake().s3, lake().tables, lake().settings.bucket)


def handler(event: dict[str, Any], context: Any) -> Any:
    """SQS records in, partial batch response out: a message that is refused is delivered again."""
    return serve_batch(event, context, load_settings().landed_queue_url, _serve)


def _serve(records: list[dict[str, Any]]) -> dict[str, LakeError]:
    """Returns the refused messages: message id -> the reason. Ingests all files of the batch in one run, except those
    that may have ended an earlier run: each of them alone, after the others."""
    began = time.perf_counter()
    ingestion = ingest()  # loads the settings, which configure the logs
    refused, message_ids, files = dict[str, LakeError](), list[str](), list[LandedFile]()
    suspects = list[tuple[str, LandedFile]]()
    for record in records:
        try:
            landed = parse_event(record["body"])
        except LakeError as error:
            refused[record["messageId"]] = error
            log.error("message refused", extra={"message_id": record["messageId"], "error": error.as_dict()})
            continue
        requests = [file.key for file in landed if file.key.startswith(s3_layout.MESSAGES)]
        if requests and (failure := _forward(requests)):
            refused[record["messageId"]] = failure
        landed = [file for file in landed if file.key not in requests]
        if receives(record) > RECEIVES_TOGETHER:
            suspects += [(record["messageId"], file) for file in landed]
            continue
        files += landed
        message_ids += [record["messageId"]] * len(landed)
    outcomes = ingestion.run(files) if files else []
    for message_id, file in suspects:
        outcomes.append(ingestion.run_alone(file))
        message_ids.append(message_id)
    for message_id, outcome in zip(message_ids, outcomes, strict=True):
        if outcome.status == "failed":
            refused[message_id] = outcome.error or Internal(f"{outcome.landed.key} has no outcome")
    seconds = time.perf_counter() - began
    _measure(outcomes, len(refused), seconds)
    log.info(
        "batch ingested",
        extra={
            "messages": len(records),
            "refused": len(refused),
            "files": dict(Counter(outcome.status for outcome in outcomes)),
            "rows": sum(outcome.rows for outcome in outcomes if outcome.status == "committed"),
            "duration_ms": round(seconds * 1000, 1),
        },
    )
    return refused


def _forward(keys: Sequence[str]) -> LakeError | None:
    """Sends the stored requests to the sequencer's queue. A request that arrives twice has its effect once."""
    try:
        for key in keys:
            message = read_message(lake().s3, lake().settings.bucket, key)
            if message is not None:
                lake().request(message)
    except Exception as error:
        failure = as_lake_error(error)
        log.error("request not forwarded", extra={"error": failure.as_dict()})
        return failure
    return None


def _measure(outcomes: Sequence[Outcome], refused: int, seconds: float) -> None:
    """Sends the counts, also those of zero: their graph shows that no file was lost."""
    metrics = function_metrics("ingest")
    counts = Counter(outcome.status for outcome in outcomes)
    for status in get_args(Status):
        metrics.add_metric(name=f"Files{status.capitalize()}", unit=MetricUnit.Count, value=counts[status])
    committed = [outcome for outcome in outcomes if outcome.status == "committed"]
    metrics.add_metric(name="MessagesRefused", unit=MetricUnit.Count, value=refused)
    metrics.add_metric(name="Rows", unit=MetricUnit.Count, value=sum(outcome.rows for outcome in committed))
    metrics.add_metric(name="Bytes", unit=MetricUnit.Bytes, value=sum(outcome.size for outcome in outcomes))
    metrics.add_metric(name="Duration", unit=MetricUnit.Milliseconds, value=seconds * 1000)
    metrics.flush_metrics()
