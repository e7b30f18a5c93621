"""The estimates and measurements of past queries: one small object each, by the query's shape, newest first.

    history/queries/<shape>/<10**14 - time in ms>-<id>.json

Only queries large enough for another route are recorded: for a query of milliseconds the PUT would cost more than the
query did, and it would not help to tune the router.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from statistics import median
from typing import Any
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from catalog.core import s3_layout
from catalog.core.aws_errors import translate_aws_errors

MIN_SECONDS, MIN_BYTES = 1.0, 16 << 20
MAX_RECORDS = 10
_DESCENDING_FROM_MS = 10**14


def shape_of(normalised: str, tables: Iterable[str]) -> str:
    """A digest of the statement's text, without its whitespace and the values of its parameters, and of the full names
    of its tables: the same text may name another table for another caller, who may not learn of this one."""
    return sha256("\n".join([normalised, *sorted(tables)]).encode()).hexdigest()[:32]


class EstimateHistory:
    def __init__(self, s3: Any, bucket: str, clock: Callable[[], float] = time.time) -> None:
        self._s3, self._bucket, self._clock = s3, bucket, clock

    def is_significant(self, measurement: Mapping[str, Any]) -> bool:
        large = max(measurement.get("bytes") or 0, measurement.get("estimated_bytes") or 0) >= MIN_BYTES
        return measurement["route"] == "spark" or large or float(measurement["seconds"]) >= MIN_SECONDS

    def record(self, measurement: Mapping[str, Any]) -> bool:
        """Stores the measurement of a significant query: one PUT.

        Returns False when nothing was stored; an S3 error does not fail the query, which has been answered.
        """
        if not self.is_significant(measurement):
            return False
        now = int(self._clock() * 1000)
        # S3 lists keys in ascending order: a number that falls with time puts the newest first.
        key = (
            f"{s3_layout.HISTORY}queries/{measurement['shape']}/{_DESCENDING_FROM_MS - now:014d}-{uuid4().hex[:8]}.json"
        )
        body = json.dumps({**measurement, "at_ms": now}, default=str).encode()
        try:
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json")
        except (ClientError, BotoCoreError):
            return False
        return True

    def newest(self, shape: str, count: int = MAX_RECORDS) -> list[dict[str, Any]]:
        """The newest records of a shape: one LIST, and one GET for each record."""
        prefix = f"{s3_layout.HISTORY}queries/{shape}/"
        with translate_aws_errors("the queries' history"):
            listings = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=prefix, MaxKeys=count).get("Contents", ())
            with ThreadPoolExecutor(max(len(listings), 1)) as pool:
                return list(pool.map(self._get, [listing["Key"] for listing in listings]))

    def _get(self, key: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        return record


def history_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """For `EXPLAIN ROUTE`: by route, the measurements of past queries of this shape beside their estimates."""
    lines = []
    for route in sorted({str(record["route"]) for record in records}):
        finished = [record for record in records if record["route"] == route and record.get("status", "done") == "done"]
        if not finished:
            continue
        seconds, estimated = (
            median(float(record[name]) for record in finished) for name in ("seconds", "estimated_seconds")
        )
        byte_ratios = [
            float(record["bytes"]) / record["estimated_bytes"]
            for record in finished
            if record.get("bytes") and record["estimated_bytes"]
        ]
        ratio = f", {median(byte_ratios):.2f} x the estimated bytes" if byte_ratios else ""
        lines.append(
            f"seen     {len(finished)} x on {route}: {seconds:.2f} s where {estimated:.2f} s were estimated{ratio}"
        )
    return lines
