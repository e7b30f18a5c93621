"""Faults on demand: a request that fails, an answer that gets lost, a process that dies or freezes at a chosen point.

A point is a request: the n-th one that matches. Everything the lake does to the world is a request, so every
step of every flow can be stopped just before it or just after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from infra.local.requests import Request

Match = Callable[[Request], bool]
When = Literal["before", "after"]
Action = Callable[[Request], None]


class Refused(Exception):
    """The request is answered with a server error, as a service that is away would."""


def refuse(request: Request) -> None:
    raise Refused(f"{request.method} {request.path}")


def lose_answer(request: Request) -> None:
    """Drops the connection: before the step the request never arrived, after it only the answer is lost."""
    raise ConnectionResetError(f"the answer to {request.method} {request.path} is lost on purpose")


@dataclass
class Fault:
    match: Match
    when: When
    action: Action
    skip: int
    times: int | None
    struck: int = 0

    def spent(self) -> bool:
        return self.times is not None and self.struck >= self.times


class FaultPlan:
    """The faults in force. Empty, it costs one comparison per request."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    @contextmanager
    def fault(
        self, match: Match, action: Action, *, when: When = "before", skip: int = 0, times: int | None = None
    ) -> Iterator[Fault]:
        """Within the block, requests that match (after the first `skip`, at most `times`) meet `action`."""
        fault = Fault(match, when, action, skip, times)
        with self._lock:
            self._faults.append(fault)
        try:
            yield fault
        finally:
            with self._lock:
                self._faults.remove(fault)

    def take(self, request: Request) -> Fault | None:
        """The fault this request must meet, counted as struck; None for nearly all."""
        if not self._faults:
            return None
        with self._lock:
            for fault in self._faults:
                if fault.spent() or not fault.match(request):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.struck += 1
                return fault
        return None
