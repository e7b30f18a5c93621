"""The service about itself: is it up, what is in it, what can be asked of it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from aws_lambda_powertools.event_handler import Response

from catalog import places
from catalog.errors import NotFound
from catalog.refusals import explained
from functions.api.app import JSON, answer, asked, lake, serve, unchanging
from functions.api.models import Described, HealthOut, MetricsOut

WAITING = "ApproximateNumberOfMessages"


@serve("GET /health", {200: {JSON: HealthOut}}, tag="service")
def check_health() -> Response[Any]:
    """Whether the API answers. Asks nothing of anybody else."""
    settings = lake().settings
    return answer(
        HealthOut(status="ok", stage=settings.stage, origin=settings.origin), headers={"Cache-Control": "no-store"}
    )


@serve("GET /metrics-summary", {200: {JSON: MetricsOut}}, problems=(422,), tag="service")
def summarise() -> Response[Any]:
    """A few figures: the tables the caller may read, the timeline's size and age, what waits or was kept aside."""
    readable = asked().known().readable(lake().tables.list())
    try:
        size = lake().timeline.head().checkpoint.size
        sequenced = lake().timeline.commit(size - 1).sequenced_ms
    except NotFound:
        size, sequenced = 0, None
    return answer(
        MetricsOut(
            tables=len(readable),
            timeline_size=size,
            sequenced_ms=sequenced,
            waiting_for_sequencer=_waiting(),
            quarantined={table: count for table, count in _quarantined().items() if table in readable},
        )
    )


@serve("GET /openapi.json", {200: {JSON: Described}, 304: {}}, tag="service")
def describe_api() -> Response[Any]:
    """This API as an OpenAPI 3.1 document."""
    return unchanging(_document(), JSON, "public, max-age=300")


@cache
def _document() -> str:
    from functions.api.openapi import document  # costs as much as all other imports of ours: paid when asked for

    return document()


@cache
def _sqs() -> Any:
    return lake().client("sqs")


def _quarantined() -> Counter[str]:
    """By the reports in `quarantine/<database>/<table>/`. One request, so at most a thousand objects."""
    with explained(places.QUARANTINE):
        listed = lake().s3.list_objects_v2(Bucket=lake().settings.bucket, Prefix=places.QUARANTINE)
    since = datetime.now(UTC) - timedelta(days=1)
    reports = [
        found["Key"].removeprefix(places.QUARANTINE).split("/")
        for found in listed.get("Contents", ())
        if found["Key"].endswith(".json") and found["LastModified"] > since
    ]
    return Counter(f"{database}.{table}" for database, table, *_ in reports)


def _waiting() -> int:
    url = lake().settings.moved_queue_url
    if url is None:
        return 0
    with explained("the sequencer's queue"):
        found = _sqs().get_queue_attributes(QueueUrl=url, AttributeNames=[WAITING])["Attributes"]
    return int(found[WAITING])
