"""Faults: what a verification reports, collected from many threads; and the bounded pool of these threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

MAX_FAULTS = 10_000
"""Faults kept in memory: a timeline that was replaced entirely has one per leaf. All are counted."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One object that is not what the timeline states: which one, of which commit, and what is wrong with it.

    `object` is a path in S3, or `slatedb:<key>` for a row of the timeline's database. `index` is that of the leaf
    that covers the object; None where no single leaf does (the head, the key list).
    """

    object: str
    what: str
    index: int | None = None
    table: str | None = None
    snapshot_id: int | None = None

    def __str__(self) -> str:
        of = f" of {self.table}" if self.table else ""
        snapshot = f", snapshot {self.snapshot_id}" if self.snapshot_id is not None else ""
        commit = f" (commit {self.index}{of}{snapshot})" if self.index is not None else ""
        return f"{self.object}: {self.what}{commit}"

    def as_dict(self) -> dict[str, Any]:
        # A snapshot id has 63 bits, more than a JSON number holds exactly.
        return asdict(self) | {"snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id)}


class FaultCollector:
    """Collects faults, each once, in the order in which they are added. Thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._faults = dict[Fault, None]()
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        with self._lock:
            if fault in self._faults:
                return
            self.count += 1
            if len(self._faults) < MAX_FAULTS:
                self._faults[fault] = None

    def faults(self) -> tuple[Fault, ...]:
        with self._lock:
            return tuple(self._faults)


class BoundedPool:
    """A thread pool with a bounded queue: `submit` blocks while the queue is full, which bounds the memory."""

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers)
        self._slots = threading.BoundedSemaphore(workers * 4)
        self._failed: BaseException | None = None

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        """Runs the work on the pool. Raises what earlier work raised: the verification is then incomplete."""
        if self._failed is not None:
            raise self._failed
        self._slots.acquire()
        self._pool.submit(work, *arguments).add_done_callback(self._done)

    def _done(self, future: Future[None]) -> None:
        self._slots.release()
        self._failed = self._failed or future.exception()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=error is not None)
        if error is None and self._failed is not None:
            raise self._failed
