"""Ingestion's function: S3 says that files landed, its queue brings them in batches, each table takes them at once.

Bad input is quarantined and its message done with. A message comes again only if the lake could not do its work, or
if it is none of S3's: such a one ends among the dead letters.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, get_args

from aws_lambda_powertools.metrics import MetricUnit

from catalog.errors import Internal, LakeError
from catalog.ingest.flow import Ingest
from catalog.ingest.outcomes import Outcome, Status
from catalog.lake import open_lake
from catalog.logs import configure_logs
from catalog.pipeline.landing import Landed, parse_event
from catalog.settings import load_settings
from functions.batch import partial_answer
from functions.telling import figures_of

log = logging.getLogger(__name__)


@cache
def ingest() -> Ingest:
    settings = load_settings()
    configure_logs("ingest", settings.log_level)
    lake = open_lake(settings)
    return Ingest(lake.s3, lake.tables, settings.bucket)


def handler(event: dict[str, Any], context: Any) -> Any:
    """SQS records in, partial batch response out: a message that is not served comes again."""
    return partial_answer(event, context, _serve(event["Records"]))


def _serve(records: list[dict[str, Any]]) -> dict[str, LakeError]:
    """Message id -> why it was not served. All files of the batch are one run."""
    began = time.perf_counter()
    flow = ingest()  # settings first: what is logged below is logged as they say
    refused, senders, files = dict[str, LakeError](), list[str](), list[Landed]()
    for record in records:
        try:
            found = parse_event(record["body"])
        except LakeError as error:
            refused[record["messageId"]] = error
            log.error("message refused", extra={"message_id": record["messageId"], "error": error.as_dict()})
            continue
        files += found
        senders += [record["messageId"]] * len(found)
    outcomes = flow.run(files)
    for sender, outcome in zip(senders, outcomes, strict=True):
        if outcome.status == "failed":
            refused[sender] = outcome.error or Internal(f"{outcome.landed.key} was not dealt with")
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


def _measure(outcomes: Sequence[Outcome], refused: int, seconds: float) -> None:
    """Counts also where they are zero: a graph of them shows that nothing was lost."""
    metrics = figures_of("ingest")
    found = Counter(outcome.status for outcome in outcomes)
    for status in get_args(Status):
        metrics.add_metric(name=f"Files{status.capitalize()}", unit=MetricUnit.Count, value=found[status])
    committed = [outcome for outcome in outcomes if outcome.status == "committed"]
    metrics.add_metric(name="MessagesRefused", unit=MetricUnit.Count, value=refused)
    metrics.add_metric(name="Rows", unit=MetricUnit.Count, value=sum(outcome.rows for outcome in committed))
    metrics.add_metric(name="Bytes", unit=MetricUnit.Bytes, value=sum(outcome.size for outcome in outcomes))
    metrics.add_metric(name="Duration", unit=MetricUnit.Milliseconds, value=seconds * 1000)
    metrics.flush_metrics()
