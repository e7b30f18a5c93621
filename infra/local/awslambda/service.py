"""The Lambda service: assigns events to workers, limits concurrency, and returns results to callers.

The deployed configuration stays in moto and is read for every invocation; this module holds only the workers.
"""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Mapping

from infra.local.awslambda.async_events import AsyncEvent, AsyncEvents
from infra.local.awslambda.functions import Function, find_deployed, patch_functions, reserved_concurrency
from infra.local.awslambda.invocation import Invocation, Stopped, Throttled
from infra.local.awslambda.moto_invoke import attach, detach
from infra.local.awslambda.runtime_api import Task
from infra.local.awslambda.workers import Spawner, Worker, new_trace_id
from infra.local.endpoint import Endpoint
from infra.local.faults import Action, disconnect
from infra.local.quotas import quotas
from infra.local.requests import Request

_KEPT_LINES = 2000


class LambdaService:
    """Runs the functions deployed at `endpoint`, from `start` to `stop`, in worker processes started on demand.

    A function has at most `min(reserved concurrency, max_workers)` workers. Callers wait for a free worker where AWS
    would scale out; where AWS would throttle, by a reservation or by the account's quota, callers with `wait=False` are
    throttled. `retry_delays` replace the
    minutes that Lambda waits before it retries a failed asynchronous event.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        max_workers: int = 2,
        init_limit: float = 60.0,
        retry_delays: tuple[float, float] = (1.0, 2.0),
    ) -> None:
        patch_functions()
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
        """Makes moto's Lambda API, and every moto service that invokes a function, use this service."""
        attach(self)

    def stop(self) -> None:
        """Kills every worker, busy or idle, and waits until all have exited."""
        detach(self)
        self._async.stop()
        with self._changed:
            self._stopping = True
            all_workers = [worker for workers in self._workers.values() for worker in workers]
            self._changed.notify_all()
        for worker in all_workers:
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
        """Runs one event and returns its result, also when the function failed.

        When all workers are busy, waits for one; with `wait=False` raises Throttled if the reserved concurrency is
        used up. Raises FunctionNotFound for a name that is not deployed.
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
            response, duration_ms, tail = worker.run(task)
        finally:
            self._release(worker)
        return Invocation(
            task.request_id, response.payload, response.function_error, tail, duration_ms, function.version
        )

    def invoke_async(self, function_name: str, payload: bytes, *, trace_id: str | None = None) -> str:
        """Queues an event and returns its request id. Retries and destinations work as on Lambda."""
        deployed = find_deployed(self.endpoint, function_name)
        event = AsyncEvent(deployed.function_name, payload or b"{}", str(uuid.uuid4()), trace_id)
        self._async.submit(event)
        return event.request_id

    def concurrency(self, function_name: str) -> int:
        """How many events of this function run concurrently."""
        return self._limit(reserved_concurrency(find_deployed(self.endpoint, function_name)))

    def logs(self, function_name: str) -> list[str]:
        """The latest log lines of all the function's workers, oldest first."""
        return list(self._logs[function_name])

    def worker(self, function_name: str) -> Worker:
        """The worker for a test to disturb: a busy one, else the newest. Raises LookupError without one."""
        with self._changed:
            alive = [worker for worker in self._workers[function_name] if worker.alive]
        if not alive:
            raise LookupError(f"{function_name} has no worker: invoke it first")
        return next((worker for worker in alive if worker.busy), alive[-1])

    def workers(self) -> Mapping[str, list[Worker]]:
        with self._changed:
            return {name: list(workers) for name, workers in self._workers.items() if workers}

    def killing(self, function_name: str) -> Action:
        """A FaultPlan action that kills the worker `before` its request is processed, or `after`."""

        def kill(request: Request) -> None:
            self.worker(function_name).kill()
            disconnect(request)

        return kill

    def freezing(self, function_name: str) -> Action:
        """A FaultPlan action that freezes the worker during its request, until it is thawed or times out."""
        return lambda request: self.worker(function_name).freeze()

    def retire(self, function_name: str) -> None:
        """Kills the workers of a deleted function. An updated function's workers are replaced at its next event."""
        with self._changed:
            workers = list(self._workers[function_name])
        for worker in workers:
            worker.close()

    def _acquire(self, function: Function, reserved: int | None, wait: bool) -> Worker:
        if reserved == 0:
            raise Throttled(f"{function.name} has a reserved concurrency of 0")
        with self._changed:
            while not self._stopping:
                workers = self._workers[function.name]
                if reserved is None and not wait and self._busy() >= quotas().lambda_concurrency:
                    raise Throttled(f"the account already runs {quotas().lambda_concurrency} events")
                for worker in [worker for worker in workers if not worker.busy]:
                    if worker.alive and worker.function == function:
                        worker.busy = True
                        return worker
                    self._discard(worker)
                if len(workers) < self._limit(reserved):
                    return self._add(function)
                if not wait and reserved is not None and len(workers) >= reserved:
                    raise Throttled(f"{function.name} already runs {len(workers)} of {reserved} events")
                self._changed.wait()
        raise Stopped(f"the embedded cloud stopped before {function.name} could run")

    def _busy(self) -> int:
        return sum(worker.busy for workers in self._workers.values() for worker in workers)

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
        """Discards an idle worker; the invocation of a busy one discards it in `_release`."""
        with self._changed:
            if not worker.busy:
                self._discard(worker)
            self._changed.notify_all()

    def _discard(self, worker: Worker) -> None:
        workers = self._workers[worker.function.name]
        if worker in workers:
            workers.remove(worker)
        worker.close()

    def _limit(self, reserved: int | None) -> int:
        return self.max_workers if reserved is None else min(reserved, self.max_workers)
