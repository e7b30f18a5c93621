"""Fault injection: a request that fails, a lost response, a process that is killed or frozen at a chosen request.

A fault is placed at the n-th request that matches. Every side effect of the lake is a request, so a test can stop a
flow just before or just after each of its steps.
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
    """Makes the server respond 503 Service Unavailable."""


def refuse(request: Request) -> None:
    raise Refused(f"{request.method} {request.path}")


def disconnect(request: Request) -> None:
    """Closes the connection without a response. With `when="before"` the request is lost, with `after` its response."""
    raise ConnectionResetError(f"injected fault: dropped the connection of {request.method} {request.path}")


@dataclass
class Fault:
    match: Match
    when: When
    action: Action
    skip: int
    times: int | None
    hits: int = 0

    def is_exhausted(self) -> bool:
        return self.times is not None and self.hits >= self.times


class FaultPlan:
    """The active faults. Without any, costs one comparison per request."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    @contextmanager
    def fault(
        self, match: Match, action: Action, *, when: When = "before", skip: int = 0, times: int | None = None
    ) -> Iterator[Fault]:
        """Within the block, calls `action` for matching requests: after the first `skip`, at most `times`."""
        fault = Fault(match, when, action, skip, times)
        with self._lock:
            self._faults.append(fault)
        try:
            yield fault
        finally:
            with self._lock:
                self._faults.remove(fault)

    def take(self, request: Request) -> Fault | None:
        """The fault for this request, counted as a hit; None without one."""
        if not self._faults:
            return None
        with self._lock:
            for fault in self._faults:
                if fault.is_exhausted() or not fault.match(request):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.hits += 1
                return fault
        return None
