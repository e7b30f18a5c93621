"""What is to happen at which instant: one thread, one heap, strictly in the order of the instants.

Actions are short: what takes long is somebody else's thread.
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
    """Runs actions when the clock reaches their instant.

    A jump of the clock over several instants runs them all, one after the other, oldest first; an action that
    books another one inside the jump has it run in its place. An action that raises is logged and forgotten.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._heap: list[tuple[datetime, int, Action]] = []
        self._order = itertools.count()  # the tie-break: same instant, first booked first
        self._state = threading.Condition()
        self._busy = False
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="agenda", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is not due yet is dropped."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout=10)

    def at(self, instant: datetime, action: Action) -> None:
        with self._state:
            heapq.heappush(self._heap, (instant, next(self._order), action))
        self._wake.set()

    def after(self, delay: timedelta, action: Action) -> None:
        self.at(self.clock.now() + delay, action)

    def settle(self, timeout: float = 10.0) -> None:
        """Blocks until nothing is due and nothing runs. Raises TimeoutError: a test must not go on
        halfway."""
        with self._state:
            if not self._state.wait_for(self._settled, timeout):
                raise TimeoutError(f"the agenda is still busy after {timeout} s")

    def _settled(self) -> bool:
        due = bool(self._heap) and self._heap[0][0] <= self.clock.now()
        return not self._busy and not due

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()  # before looking, so that what is booked from here on wakes the wait below
            action, instant = self._next()
            if action:
                self._perform(action)
            elif not self._stopping:
                self.clock.wait_until(instant, self._wake)

    def _next(self) -> tuple[Action | None, datetime]:
        """The action that is due, counted as running; or None and the instant to wait for."""
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
            _log.exception("an action on the agenda failed")
        finally:
            with self._state:
                self._busy = False
                self._state.notify_all()
