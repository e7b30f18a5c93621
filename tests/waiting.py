"""The one way tests wait: for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.1


def wait_until(condition: Callable[[], T], what: str, timeout: float = 120.0) -> T:
    """Polls `condition` until its value is true and returns that value; fails with `what` and the last value.

    Wait for everything that is asserted afterwards: what a test asserts beside the condition may come later than it.
    """
    deadline, pause = time.monotonic() + timeout, FIRST_PAUSE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout:g} s for {what}; the last value was {value!r}"
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)
    return value
