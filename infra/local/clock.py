"""What time it is in the embedded cloud: the machine's time, or a time that a test moves by hand.

A clock only tells and waits. What is to happen when belongs to `agenda`.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Protocol

# A laptop that slept, or a corrected system time, must be noticed: no real wait is longer than this.
_LONGEST_WAIT = 30.0

# An Event and a Condition cannot be waited for together. A move is noticed at once, a set event within this.
_EVENT_CHECK = 0.01


class Clock(Protocol):
    def now(self) -> datetime:
        """The time, aware and in UTC."""
        ...

    def wait_until(self, instant: datetime, stop: threading.Event) -> bool:
        """Blocks until `instant` has come (True) or `stop` is set (False); `stop` wins when both hold."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wait_until(self, instant: datetime, stop: threading.Event) -> bool:
        while not stop.is_set():
            left = (instant - self.now()).total_seconds()
            if left <= 0:
                return True
            stop.wait(min(left, _LONGEST_WAIT))
        return False


class ManualClock:
    """Stands still until it is moved; every move wakes whoever waits. It never goes back."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = _utc(start)
        self._moved = threading.Condition()

    def now(self) -> datetime:
        return self._now

    def advance(self, step: timedelta) -> datetime:
        """Moves on by `step` and returns the new time."""
        with self._moved:
            return self._set(self._now + step)

    def set(self, instant: datetime) -> datetime:
        """Moves on to `instant` and returns it."""
        with self._moved:
            return self._set(_utc(instant))

    def wait_until(self, instant: datetime, stop: threading.Event) -> bool:
        with self._moved:
            while not stop.is_set():
                if self._now >= instant:
                    return True
                self._moved.wait(_EVENT_CHECK)
        return False

    def _set(self, instant: datetime) -> datetime:
        if instant < self._now:
            raise ValueError(f"a clock does not go back: it is {self._now:%F %T}, asked for {instant:%F %T}")
        self._now = instant
        self._moved.notify_all()
        return instant


def _utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone; a clock tells aware times only")
    return instant.astimezone(UTC)
