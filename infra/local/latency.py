"""Latencies as on AWS, drawn from a seed and added to every request. Loopback hides that requests wait for each other.

The ranges are those of requests for small objects from a function in the same region. Also records when each request
began and ended, from which `critical_path` finds the chain of requests that an operation waited for.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from infra.local.requests import Request

RANGES_MS: dict[str, tuple[float, float]] = {
    "s3": (15, 40),
    "glue": (30, 100),
    "sqs": (5, 20),
    "events": (15, 40),
    "kms": (5, 20),
    "secretsmanager": (10, 30),
}
OTHERS_MS = (10.0, 40.0)


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """A request, and when the server received it and had answered it, in seconds of the monotonic clock."""

    request: Request
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Latency:
    """Draws the latencies. The same seed gives each service the same sequence of them."""

    def __init__(self, seed: int = 0, sleep: Callable[[float], object] = time.sleep) -> None:
        self._seed, self._sleep = seed, sleep
        self._drawn: dict[str, random.Random] = {}
        self._timed: list[TimedRequest] = []
        self._lock = threading.Lock()

    def draw(self, service: str) -> float:
        """The next latency of the service, in seconds. Near the lower end in most cases, as AWS's are."""
        low, high = RANGES_MS.get(service, OTHERS_MS)
        with self._lock:
            numbers = self._drawn.setdefault(service, random.Random(f"{self._seed}/{service}"))  # noqa: S311 - no secret
            return numbers.triangular(low, high, low) / 1000

    @contextmanager
    def added(self, request: Request) -> Iterator[None]:
        """Around the request: half of the time before it takes effect, half after."""
        began, half = time.monotonic(), self.draw(request.service) / 2
        self._sleep(half)
        try:
            yield
        finally:
            self._sleep(half)
            with self._lock:
                self._timed.append(TimedRequest(request, began, time.monotonic()))

    def take(self) -> list[TimedRequest]:
        """The requests that ended since the last call, in the order of their beginning."""
        with self._lock:
            timed, self._timed = self._timed, []
        return sorted(timed, key=lambda entry: entry.began)


def critical_path(timed: Sequence[TimedRequest]) -> list[TimedRequest]:
    """The chain that an operation waited for: the last request to end, then the last that ended before it began, ..."""
    path: list[TimedRequest] = []
    before = max((entry.ended for entry in timed), default=0.0)
    while True:
        earlier = [entry for entry in timed if entry.ended <= before]
        if not earlier:
            return path[::-1]
        path.append(max(earlier, key=lambda entry: entry.ended))
        before = path[-1].began
