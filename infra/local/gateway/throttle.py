"""Throttling of stages and routes: a token bucket for each, on the machine's clock."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any


@dataclass
class _Bucket:
    tokens: float
    filled: float


class Throttle:
    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str, str], _Bucket] = {}
        self._lock = threading.Lock()

    def admits(self, api_id: str, stage: dict[str, Any], route_key: str) -> bool:
        """Takes a token for the request; False when there is none, and API Gateway responds 429."""
        settings = {
            **stage.get("DefaultRouteSettings", {}),
            **stage.get("RouteSettings", {}).get(route_key, {}),
        }
        burst, rate = settings.get("ThrottlingBurstLimit"), settings.get("ThrottlingRateLimit")
        if burst is None or rate is None:
            return True
        now = time.monotonic()
        with self._lock:
            key = (api_id, stage["StageName"], route_key)
            bucket = self._buckets.setdefault(key, _Bucket(float(burst), now))
            bucket.tokens = min(float(burst), bucket.tokens + (now - bucket.filled) * rate)
            bucket.filled = now
            if bucket.tokens < 1:
                return False
            bucket.tokens -= 1
            return True
