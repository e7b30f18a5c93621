"""Routes of the service itself: health, summary, OpenAPI document."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from aws_lambda_powertools.event_handler import Response

from catalog import NotFound
from catalog.access import Level
from catalog.core import s3_layout
from catalog.core.aws_errors import translate_aws_errors
from functions.api.app import JSON, caller, lake, respond, respond_cacheable, serve
from functions.api.models import Described, HealthOut, MetricsOut

WAITING = "ApproximateNumberOfMessages"


@serve("GET /health", {200: {JSON: HealthOut}}, tag="service")
def check_health() -> Response[Any]:
    """Whether the API responds. Sends no request to another service."""
    settings = lake().settings
    return respond(
        HealthOut(status="ok", stage=settings.stage, origin=settings.origin), headers={"Cache-Control": "no-store"}
    )


@serve("GET /metrics-summary", {200: {JSON: MetricsOut}}, problems=(422,), tag="service")
def summarise() -> Response[Any]:
    """Counts: tables the caller may read, the timeline's size and age, messages waiting, files in quarantine."""
    readable = caller().readable(lake().tables.list())
    try:
        size = lake().timeline.head().checkpoint.size
        sequenced = lake().timeline.commit(size - 1).sequenced_ms
    except NotFound:
        size, sequenced = 0, None
    return respond(
        MetricsOut(
            tables=len(readable),
            timeline_size=size,
            sequenced_ms=sequenced,
            waiting_for_sequencer=_waiting(),
            quarantined=_quarantined(),
        )
    )


@serve("GET /openapi.json", {200: {JSON: Described}, 304: {}}, tag="service")
def describe_api() -> Response[Any]:
    """This API as an OpenAPI 3.1 document."""
    return respond_cacheable(_document(), JSON, "public, max-age=300")


@cache
def _document() -> str:
    from functions.api.openapi import document  # expensive to import: only when it is requested

    return document()


@cache
def _sqs() -> Any:
    return lake().client("sqs")


def _quarantined() -> dict[str, int]:
    """Table -> files quarantined in the last day, by their reports, also if the table was never created. `unplaced`
    are those whose key names none. One request, so at most a thousand objects."""
    with translate_aws_errors(s3_layout.QUARANTINE):
        listed = lake().s3.list_objects_v2(Bucket=lake().settings.bucket, Prefix=s3_layout.QUARANTINE)
    since = datetime.now(UTC) - timedelta(days=1)
    reports = [
        entry["Key"].removeprefix(s3_layout.QUARANTINE).split("/")
        for entry in listed.get("Contents", ())
        if entry["Key"].endswith(".json") and entry["LastModified"] > since
    ]
    counts = Counter(".".join(folders[:-1]) for folders in reports)
    return {name: count for name, count in counts.items() if caller().may(Level.READ, name)}


def _waiting() -> int:
    url = lake().settings.moved_queue_url
    if url is None:
        return 0
    with translate_aws_errors("the sequencer's queue"):
        attributes = _sqs().get_queue_attributes(QueueUrl=url, AttributeNames=[WAITING])["Attributes"]
    return int(attributes[WAITING])
