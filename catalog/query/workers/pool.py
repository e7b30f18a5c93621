"""`QueryWorkers` runs queries in worker processes: what a statement does to its process, it does to that one alone.

Warm workers are kept, with their caches. A worker that is killed or ends is replaced, and the statement that it ran is
not run again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Unpack

from catalog.access import Caller
from catalog.core.errors import Unavailable
from catalog.core.logs import correlation_id
from catalog.query.run.engine_limits import EngineLimits, default_memory_budget, function_memory
from catalog.query.run.results import Answer
from catalog.query.spark.spark_queries import QueryStatus
from catalog.query.workers.messages import QueryRequest, point_text
from catalog.query.workers.process import WorkerLimits, WorkerProcess

if TYPE_CHECKING:  # loads the engine, which only workers need
    from catalog.query.run.bound_query import QueryOptions

_SUPERVISOR_BYTES = 256 << 20
"""What the supervising function itself needs of a Lambda function's memory."""


def default_worker_limits() -> WorkerLimits:
    """What a Lambda function has beyond its supervisor, for each worker; 3 GiB outside Lambda."""
    function = function_memory()
    memory = 3 << 30 if function is None else max(function - _SUPERVISOR_BYTES, function // 2)
    return WorkerLimits(memory, result_bytes=memory // 6)


class QueryWorkers:
    """At most `count` workers, started by `command` with `variables` in their environment. Safe to share between
    threads: a query waits for a free worker, at most until its deadline."""

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        count: int = 1,
        limits: WorkerLimits | None = None,
    ) -> None:
        self._command, self._variables = tuple(command), dict(variables)
        self.limits = limits or default_worker_limits()
        self._free = threading.Semaphore(count)
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._closed = False

    def ask(
        self,
        sql: str,
        *,
        engine: Literal["auto", "lambda", "spark"] = "auto",
        verify: bool = False,
        id: str | None = None,
        seen_size: int | None = None,
        **options: Unpack[QueryOptions],
    ) -> Answer | QueryStatus:
        """Like `Queries.ask`, in a worker. The answer is complete when this returns.

        `seen_size`: the size of the timeline that this process has shown. A worker's reader follows the timeline with a
        delay of its own, and waits until it is no longer behind.

        Invalid if the query exceeds its memory, its time or the size of a result, or ends its worker; Unavailable if no
        worker is free or starts before the deadline. An exception in this thread, as by a cancelled request, kills the
        worker.
        """
        limits = options.get("limits") or EngineLimits(default_memory_budget())
        caller = options.get("caller")
        if not (caller is None or isinstance(caller, Caller)):
            raise TypeError(f"a worker cannot be told of a caller of type {type(caller).__name__}")
        request = QueryRequest(
            sql=sql,
            engine=engine,
            verify=verify,
            id=id,
            parameters=options.get("parameters"),
            as_of=point_text(options.get("as_of")),
            fresh=options.get("fresh", False),
            limit_bytes=options.get("limit_bytes"),
            caller=caller,
            limits=limits,
            correlation_id=correlation_id(),
            seen_size=seen_size,
            addressed=options.get("addressed"),
        )
        deadline = time.monotonic() + limits.seconds
        with self._worker(deadline) as worker:
            worker.wait_ready(deadline)
            return worker.ask(request, deadline)

    def start(self) -> None:
        """Starts a worker if none is idle, without waiting for it: the next query finds it ready, or nearly so."""
        with self._lock:
            self._drop_ended()
            if not self._idle and not self._closed:
                self._idle.append(self._new())

    def pids(self) -> list[int]:
        """The process ids of the workers that live, for tests and operators."""
        with self._lock:
            return [worker.pid for worker in (*self._idle, *self._busy) if worker.usable]

    def close(self) -> None:
        """Kills all workers. A query that runs fails."""
        with self._lock:
            self._closed = True
            workers = [*self._idle, *self._busy]
            self._idle = []
        for worker in workers:
            worker.kill()

    @contextmanager
    def _worker(self, deadline: float) -> Iterator[WorkerProcess]:
        if not self._free.acquire(timeout=max(deadline - time.monotonic(), 0.001)):
            raise Unavailable("every query worker was busy until the deadline: try again")
        worker: WorkerProcess | None = None
        try:
            worker = self._take()
            yield worker
        finally:
            if worker is not None:
                self._give_back(worker)
            self._free.release()

    def _take(self) -> WorkerProcess:
        with self._lock:
            if self._closed:
                raise Unavailable("the query workers were closed")
            self._drop_ended()
            worker = self._idle.pop() if self._idle else self._new()
            self._busy.add(worker)
            return worker

    def _give_back(self, worker: WorkerProcess) -> None:
        with self._lock:
            self._busy.discard(worker)
            if worker.usable and not self._closed:
                self._idle.append(worker)
                return
        worker.kill()
        self.start()

    def _drop_ended(self) -> None:
        ended = [worker for worker in self._idle if not worker.usable]
        self._idle = [worker for worker in self._idle if worker not in ended]
        for worker in ended:
            worker.kill()

    def _new(self) -> WorkerProcess:
        return WorkerProcess(self._command, self._variables, self.limits)
