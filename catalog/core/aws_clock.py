"""The clock of the timeline: this machine's, held against the time that AWS writes into its responses.

A leaf's time never goes back, so one leaf from the future would hold all later ones there. A clock that is ahead is not
believed.
"""

from __future__ import annotations

import logging
import time
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import ClientError

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import Unavailable

logger = logging.getLogger(__name__)

AHEAD_MS = 60_000
"""How far this machine's clock may be ahead of AWS's. Requests are refused by AWS only at fifteen minutes."""


class AwsClock:
    """Milliseconds since 1970. No request as long as the clock agrees with the monotonic one since AWS was last asked;
    otherwise one HEAD: in a new process, after a freeze, and at each call while the clock is ahead."""

    def __init__(self, s3: Any, bucket: str, key: str) -> None:
        """`key`: an object that the role may read. It need not exist: any response has the time."""
        self._s3, self._bucket, self._key = s3, bucket, key
        self._asked: tuple[float, int] | None = None
        """The monotonic clock when AWS was asked last, and its answer."""

    def __call__(self) -> int:
        """This machine's time; AWS's own if that is more than a minute behind it. Unavailable if AWS does not say."""
        now_ms = time.time_ns() // 1_000_000
        if self._asked is not None:
            monotonic, aws_ms = self._asked
            if now_ms <= aws_ms + (time.monotonic() - monotonic) * 1000 + AHEAD_MS:
                return now_ms
        monotonic = time.monotonic()  # before the request: what it takes only makes the bound tighter
        aws_ms = self._ask()
        self._asked = monotonic, aws_ms
        now_ms = time.time_ns() // 1_000_000
        if now_ms <= aws_ms + AHEAD_MS:
            return now_ms
        logger.warning(
            "the clock is ahead of AWS's: its time is used instead", extra={"ahead_s": (now_ms - aws_ms) // 1000}
        )
        return aws_ms

    def _ask(self) -> int:
        with translate_aws_errors(self._key):
            try:
                response = self._s3.head_object(Bucket=self._bucket, Key=self._key)
            except ClientError as error:
                response = error.response
                if response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
                    raise
        date = response["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        if date is None:
            raise Unavailable("S3 responded without a Date header, so the clock cannot be checked: try again")
        return int(parsedate_to_datetime(date).timestamp() * 1000)
