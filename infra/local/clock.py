"""The embedded cloud's clock: the machine's time, or a time that a test advances.

A clock only tells the time and waits. `eventbridge.agenda` runs actions at their time.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Protocol

# No real wait is longer than this, so that a suspended laptop or a corrected system time is noticed.
_LONGEST_WAIT = 30.0

# A thread cannot wait for an Event and a Condition together: an advance wakes it at once, a set event within this.
_EVENT_CHECK = 0.01


class Clock(Protocol):
    def now(self) -> datetime:
        """The time, with time zone UTC."""
        ...

    def wait_until(self, instant: datetime, stop: threading.Event) -> bool:
        """Blocks until `instant` (returns True) or until `stop` is set (False); `stop` wins when both hold."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wait_until(self, instant: datetime, stop: threading.Event) -> bool:
        while not stop.is_set():
            remaining = (instant - self.now()).total_seconds()
            if remaining <= 0:
                return True
            stop.wait(min(remaining, _LONGEST_WAIT))
        return False


class ManualClock:
    """A clock that only a test advances; each advance wakes all waiting threads. It never goes back."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = _utc(start)
        self._moved = threading.Condition()

    def now(self) -> datetime:
        return self._now

    def advance(self, step: timedelta) -> datetime:
        """Advances by `step` and returns the new time."""
        with self._moved:
            return self._set(self._now + step)

    def set(self, instant: datetime) -> datetime:
        """Advances to `instant` and returns it."""
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
            raise ValueError(f"cannot set the clock back from {self._now:%F %T} to {instant:%F %T}")
        self._now = instant
        self._moved.notify_all()
        return instant


def _utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no time zone: a clock takes only times with one")
    return instant.astimezone(UTC)
