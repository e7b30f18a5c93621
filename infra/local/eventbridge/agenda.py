"""Actions that run at a given time, in order of time, on one thread.

Actions must be short: long work belongs on another thread.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from infra.local.clock import Clock

Action = Callable[[], None]

_log = logging.getLogger(__name__)
_NEVER = datetime.max.replace(tzinfo=UTC)


class Agenda:
    """Runs actions when the clock reaches their time.

    When the clock jumps over several actions, all of them run, oldest first; if one of them adds another that is also
    due, that one runs in its order too. An action that raises is logged.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._heap: list[tuple[datetime, int, Action]] = []
        self._order = itertools.count()  # breaks ties: at the same time, the action added first runs first
        self._state = threading.Condition()
        self._busy = False
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="agenda", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Drops the actions that are not due yet."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout=10)

    def at(self, instant: datetime, action: Action) -> None:
        with self._state:
            heapq.heappush(self._heap, (instant, next(self._order), action))
        self._wake.set()

    def after(self, delay: timedelta, action: Action) -> None:
        self.at(self.clock.now() + delay, action)

    def wait_until_idle(self, timeout: float = 10.0) -> None:
        """Blocks until no action is due and none runs. Raises TimeoutError."""
        with self._state:
            if not self._state.wait_for(self._is_idle, timeout):
                raise TimeoutError(f"the agenda is still busy after {timeout} s")

    def _is_idle(self) -> bool:
        due = bool(self._heap) and self._heap[0][0] <= self.clock.now()
        return not self._busy and not due

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()  # before `_next`, so that an action added from here on ends the wait below
            action, instant = self._next()
            if action:
                self._perform(action)
            elif not self._stopping:
                self.clock.wait_until(instant, self._wake)

    def _next(self) -> tuple[Action | None, datetime]:
        """The action that is due, marked as running; or None and the time to wait for."""
        with self._state:
            if not self._heap:
                return None, _NEVER
            instant, _, action = self._heap[0]
            if instant > self.clock.now():
                return None, instant
            heapq.heappop(self._heap)
            self._busy = True
            return action, instant

    def _perform(self, action: Action) -> None:
        try:
            action()
        except Exception:
            _log.exception("a scheduled action failed")
        finally:
            with self._state:
                self._busy = False
                self._state.notify_all()
