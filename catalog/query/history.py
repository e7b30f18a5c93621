"""What was estimated of a query and what happened: small objects, kept by the query's shape, the newest first.

    history/queries/<shape>/<what is left of time>-<id>.json

Only what is large enough to have been decided otherwise is kept: a query of milliseconds teaches the router nothing,
and the PUT would cost more than it did.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from statistics import median
from typing import Any
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from catalog import places
from catalog.refusals import explained

LEAST_SECONDS, LEAST_BYTES = 1.0, 16 << 20
SHOWN = 10
_FOREVER_MS = 10**14


def shape_of(normalised: str) -> str:
    """The same for the same text, whatever its spaces and the values of its parameters."""
    return sha256(normalised.encode()).hexdigest()[:32]


class History:
    def __init__(self, s3: Any, bucket: str, clock: Callable[[], float] = time.time) -> None:
        self._s3, self._bucket, self._clock = s3, bucket, clock

    def is_telling(self, happened: Mapping[str, Any]) -> bool:
        large = max(happened.get("bytes") or 0, happened.get("estimated_bytes") or 0) >= LEAST_BYTES
        return happened["route"] == "spark" or large or float(happened["seconds"]) >= LEAST_SECONDS

    def keep(self, happened: Mapping[str, Any]) -> bool:
        """One PUT, if it is telling. Never fails a query that is answered: False says that nothing was kept."""
        if not self.is_telling(happened):
            return False
        now = int(self._clock() * 1000)
        # S3 lists by name: what is left of time makes the newest come first.
        key = f"{places.HISTORY}queries/{happened['shape']}/{_FOREVER_MS - now:014d}-{uuid4().hex[:8]}.json"
        body = json.dumps({**happened, "at_ms": now}, default=str).encode()
        try:
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json")
        except (ClientError, BotoCoreError):
            return False
        return True

    def of(self, shape: str, most: int = SHOWN) -> list[dict[str, Any]]:
        """The newest records of a shape: one LIST, and a GET for each."""
        prefix = f"{places.HISTORY}queries/{shape}/"
        with explained("the queries' history"):
            listed = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=prefix, MaxKeys=most).get("Contents", ())
            with ThreadPoolExecutor(max(len(listed), 1)) as pool:
                return list(pool.map(self._get, [found["Key"] for found in listed]))

    def _get(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        return found


def said(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """For `EXPLAIN ROUTE`: how far off the estimates were the last times, by route."""
    lines = []
    for route in sorted({str(one["route"]) for one in records}):
        ran = [one for one in records if one["route"] == route and one.get("status", "done") == "done"]
        if not ran:
            continue
        seconds, guessed = (median(float(one[name]) for one in ran) for name in ("seconds", "estimated_seconds"))
        read = [
            float(one["bytes"]) / one["estimated_bytes"] for one in ran if one.get("bytes") and one["estimated_bytes"]
        ]
        ratio = f", {median(read):.2f} x the estimated bytes" if read else ""
        lines.append(f"seen     {len(ran)} x on {route}: {seconds:.2f} s where {guessed:.2f} s were estimated{ratio}")
    return lines
