"""Lambda itself: which worker runs which event, how many at once, and what the caller hears.

Deployed state stays in moto and is read anew for every invocation; here are only the workers.
"""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Mapping

from infra.local.awslambda.async_events import AsyncEvent, AsyncEvents
from infra.local.awslambda.deployed import Function, find_deployed, keep_what_moto_drops, reserved_concurrency
from infra.local.awslambda.invocation import Invocation, Stopped, Throttled
from infra.local.awslambda.routes import route_to
from infra.local.awslambda.runtime_api import Task
from infra.local.awslambda.workers import Spawner, Worker, new_trace_id
from infra.local.endpoint import Endpoint
from infra.local.faults import Action, lose_answer
from infra.local.requests import Request

_KEPT_LINES = 2000


class LambdaService:
    """Runs the functions deployed at `endpoint`, from `start` to `stop`, in worker processes made on demand.

    A function has at most `min(reserved concurrency, max_workers)` workers. Where AWS would scale out and
    this machine does not, callers wait; where AWS would throttle, those who ask not to wait are throttled.
    `retry_delays` stand for the minute or two that Lambda lets pass before it repeats a failed event.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        max_workers: int = 2,
        init_limit: float = 60.0,
        retry_delays: tuple[float, float] = (1.0, 2.0),
    ) -> None:
        keep_what_moto_drops()
        self.endpoint = endpoint
        self.max_workers = max_workers
        self._init_limit = init_limit
        self.spawner = Spawner()
        self._workers: dict[str, list[Worker]] = defaultdict(list)
        self._logs: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_KEPT_LINES))
        self._changed = threading.Condition()
        self._stopping = False
        self._async = AsyncEvents(self, retry_delays)

    def start(self) -> None:
        """From here on, moto's Lambda API and everything in moto that calls a function runs it here."""
        route_to(self)

    def stop(self) -> None:
        """Kills every worker, whatever its handler is doing, and waits until all are gone."""
        route_to(None, unless_other_than=self)
        self._async.stop()
        with self._changed:
            self._stopping = True
            workers = [worker for found in self._workers.values() for worker in found]
            self._changed.notify_all()
        for worker in workers:
            worker.close()

    def invoke(
        self,
        function_name: str,
        payload: bytes,
        /,
        *,
        wait: bool = True,
        request_id: str | None = None,
        trace_id: str | None = None,
        client_context: str | None = None,
    ) -> Invocation:
        """Runs one event to its end and answers, also when the function failed.

        With `wait` the caller of a busy function queues; without, it is Throttled once the reserved
        concurrency is in use.
        Raises FunctionNotFound for a name that is not deployed.
        """
        deployed = find_deployed(self.endpoint, function_name)
        function = Function.of(deployed)
        worker = self._acquire(function, reserved_concurrency(deployed), wait)
        task = Task(
            request_id=request_id or str(uuid.uuid4()),
            payload=payload or b"{}",
            function_arn=function.arn,
            timeout=function.timeout,
            trace_id=trace_id or new_trace_id(function.traced),
            client_context=client_context,
        )
        try:
            answer, duration_ms, tail = worker.run(task)
        finally:
            self._release(worker)
        return Invocation(task.request_id, answer.payload, answer.function_error, tail, duration_ms, function.version)

    def invoke_async(self, function_name: str, payload: bytes, *, trace_id: str | None = None) -> str:
        """Takes an event and answers at once with its request id; retries and destinations follow Lambda."""
        deployed = find_deployed(self.endpoint, function_name)
        event = AsyncEvent(deployed.function_name, payload or b"{}", str(uuid.uuid4()), trace_id)
        self._async.submit(event)
        return event.request_id

    def concurrency(self, function_name: str) -> int:
        """How many events of this function run at once here."""
        return self._limit(reserved_concurrency(find_deployed(self.endpoint, function_name)))

    def logs(self, function_name: str) -> list[str]:
        """The latest log lines of all the function's workers, oldest first."""
        return list(self._logs[function_name])

    def worker(self, function_name: str) -> Worker:
        """The worker a test wants to disturb: the one at work, else the newest. LookupError without one."""
        with self._changed:
            found = [worker for worker in self._workers[function_name] if worker.alive]
        if not found:
            raise LookupError(f"{function_name} has no worker: invoke it first")
        return next((worker for worker in found if worker.busy), found[-1])

    def workers(self) -> Mapping[str, list[Worker]]:
        with self._changed:
            return {name: list(found) for name, found in self._workers.items() if found}

    def killing(self, function_name: str) -> Action:
        """For a FaultPlan: the worker dies at the request: `before` it was sent, or `after` it was done."""

        def kill(request: Request) -> None:
            self.worker(function_name).kill()
            lose_answer(request)

        return kill

    def freezing(self, function_name: str) -> Action:
        """For a FaultPlan: the worker stops with its request under way, until it is thawed or times out."""
        return lambda request: self.worker(function_name).freeze()

    def retire(self, function_name: str) -> None:
        """Ends the workers of a deleted function, also busy ones. A changed one's go at the next event."""
        with self._changed:
            workers = list(self._workers[function_name])
        for worker in workers:
            worker.close()

    def _acquire(self, function: Function, reserved: int | None, wait: bool) -> Worker:
        if reserved == 0:
            raise Throttled(f"{function.name} has a reserved concurrency of 0")
        with self._changed:
            while not self._stopping:
                mine = self._workers[function.name]
                for worker in [worker for worker in mine if not worker.busy]:
                    if worker.alive and worker.function == function:
                        worker.busy = True
                        return worker
                    self._discard(worker)
                if len(mine) < self._limit(reserved):
                    return self._add(function)
                if not wait and reserved is not None and len(mine) >= reserved:
                    raise Throttled(f"{function.name} already runs {len(mine)} of {reserved} events")
                self._changed.wait()
        raise Stopped(f"the embedded cloud stopped before {function.name} could run")

    def _add(self, function: Function) -> Worker:
        worker = Worker(
            function, self.endpoint, self.spawner, self._logs[function.name], self._exited, self._init_limit
        )
        self._workers[function.name].append(worker)
        return worker

    def _release(self, worker: Worker) -> None:
        with self._changed:
            worker.busy = False
            if not worker.alive:
                self._discard(worker)
            self._changed.notify_all()

    def _exited(self, worker: Worker) -> None:
        """A busy worker's end belongs to its event; an idle one is only forgotten."""
        with self._changed:
            if not worker.busy:
                self._discard(worker)
            self._changed.notify_all()

    def _discard(self, worker: Worker) -> None:
        mine = self._workers[worker.function.name]
        if worker in mine:
            mine.remove(worker)
        worker.close()

    def _limit(self, reserved: int | None) -> int:
        return self.max_workers if reserved is None else min(reserved, self.max_workers)
