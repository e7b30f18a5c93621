"""Retries after a lost race: how often, and how long to wait between two attempts.

Does not retry failed AWS requests: boto3 does that (catalog.core.clients).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from catalog.core.errors import Conflict

T = TypeVar("T")


@dataclass(frozen=True)
class Retry:
    """A number of attempts with exponential backoff and full jitter."""

    attempts: int = 25
    base_s: float = 0.02
    cap_s: float = 1.0

    def waits(self) -> Iterator[float]:
        """For each attempt, how long to wait after it if it is lost."""
        for attempt in range(self.attempts):
            yield random.uniform(0, min(self.cap_s, self.base_s * 2**attempt))  # noqa: S311 - not a secret

    def run(self, attempt: Callable[[], T]) -> T:
        """The result of the first attempt that raises no Conflict. Raises the last attempt's Conflict."""
        *others, _ = self.waits()
        for wait in others:
            try:
                return attempt()
            except Conflict:
                time.sleep(wait)
        return attempt()
