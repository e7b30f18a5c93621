"""Function workers: processes that run awslambdaric and inherit nothing of this process's environment."""

from __future__ import annotations

import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from moto.logs.models import logs_backends

from infra.local.awslambda.functions import Function
from infra.local.awslambda.runtime_api import Response, RuntimeApi, Task
from infra.local.awslambda.worker_logs import WorkerLog
from infra.local.endpoint import Endpoint
from infra.stage import ROOT as PROJECT_ROOT

Process = subprocess.Popen[bytes]


def worker_environment(function: Function, endpoint: Endpoint, runtime_api: str, log_stream: str) -> dict[str, str]:
    """A worker's whole environment: a base, the function's variables, Lambda's, and the endpoint's."""
    root = str(PROJECT_ROOT)
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8",
        "TZ": ":UTC",
        "HOME": "/nonexistent",
        "PYTHONPATH": root,
        "PYTHONDONTWRITEBYTECODE": "1",
        **function.environment,
        "_HANDLER": function.handler,
        "LAMBDA_TASK_ROOT": root,
        "AWS_LAMBDA_RUNTIME_API": runtime_api,
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_VERSION": function.version,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_LOG_GROUP_NAME": function.log_group,
        "AWS_LAMBDA_LOG_STREAM_NAME": log_stream,
        "AWS_LAMBDA_LOG_FORMAT": function.log_format,
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        **endpoint.environment(f"function/{function.name}"),
    }


class Spawner:
    """Starts processes from one thread that outlives them.

    The kernel's parent-death signal fires when the parent *thread* exits: a worker started by a request's thread
    would be killed at the end of that request.
    """

    def __init__(self) -> None:
        self.prefix: tuple[str, ...] = ()
        """Prepended to every command: a test sets it to a tracer."""
        self._requests: queue.SimpleQueue[tuple[Callable[[], Process], Future[Process]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="spawner", daemon=True).start()

    def spawn(self, command: list[str], environment: dict[str, str], output: int) -> Process:
        def start() -> Process:
            return subprocess.Popen(
                [*self.prefix, *command],
                cwd=PROJECT_ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # its own process group, so that a handler's child processes die with it
            )

        process: Future[Process] = Future()
        self._requests.put((start, process))
        return process.result(timeout=30)

    def _run(self) -> None:
        while True:
            start, process = self._requests.get()
            try:
                process.set_result(start())
            except BaseException as error:
                process.set_exception(error)


class Worker:
    """One execution environment of one function: runs one event at a time, until it exits or is killed."""

    def __init__(
        self,
        function: Function,
        endpoint: Endpoint,
        spawner: Spawner,
        recent: deque[str],
        on_exit: Callable[[Worker], None],
        init_limit: float,
    ) -> None:
        self.function = function
        self.busy = True  # it is started for a waiting event
        self._init_limit = init_limit
        self._on_exit = on_exit
        self._api = RuntimeApi()
        stream = f"{time.strftime('%Y/%m/%d', time.gmtime())}/[{function.version}]{uuid.uuid4().hex}"
        self._log = WorkerLog(logs_backends[endpoint.account][endpoint.region], function.log_group, stream, recent)
        self._fresh = True
        self._exited = threading.Event()
        self._process = spawner.spawn(
            [sys.executable, "-m", "infra.local.awslambda.launch", str(os.getpid()), function.handler],
            worker_environment(function, endpoint, self._api.address, stream),
            self._log.write_end,
        )
        threading.Thread(target=self._watch, name=f"watch {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._exited.is_set()

    def kill(self) -> None:
        """Sends SIGKILL, like a crashed host or an out-of-memory kill, and waits for the exit."""
        self._signal(signal.SIGKILL)
        self._exited.wait(timeout=5)

    def freeze(self) -> None:
        """Suspends the process; its connections stay open and its timeout keeps running."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def run(self, task: Task) -> tuple[Response, float, str]:
        """Runs one event: response, milliseconds, log tail. Kills the worker at its timeout."""
        self._log.start(task.request_id, self.function.version)
        self._api.submit(task)
        timed_out = None
        if not task.started.wait(self._init_limit):
            timed_out = f"Initialization did not finish in {self._init_limit:.2f} seconds"
        if timed_out is None and not task.finished.wait(task.timeout):
            timed_out = f"Task timed out after {task.timeout:.2f} seconds"
        if timed_out:
            task.finish(_platform_error("Sandbox.Timedout", task, timed_out))
            self.kill()
        duration = 0.0 if task.started_at is None else (time.monotonic() - task.started_at) * 1000
        assert task.response is not None
        return task.response, duration, self._report(task, duration, timed_out)

    def _report(self, task: Task, duration: float, timed_out: str | None) -> str:
        extra = "\tStatus: timeout" if timed_out else ""
        if self._fresh and self._api.init_seconds is not None:
            extra = f"\tInit Duration: {self._api.init_seconds * 1000:.2f} ms{extra}"
        self._fresh = False
        return self._log.report(task.request_id, duration, self.function.memory_mb, extra)

    def close(self) -> None:
        """Kills the process and releases port and pipe. Safe to call twice."""
        self.kill()
        self._api.stop()
        self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        # Signals the process group. Only before the process is reaped: afterwards its id may be reused.
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _watch(self) -> None:
        code = self._process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # the handler's child processes: a sandbox ends as a whole
        self._exited.set()
        reason = _exit_reason(code)
        self._api.fail(lambda task: _platform_error("Runtime.ExitError", task, reason))
        self._on_exit(self)


def _platform_error(kind: str, task: Task, reason: str) -> Response:
    return Response.error(kind, f"RequestId: {task.request_id} Error: {reason}")


def _exit_reason(code: int) -> str:
    if code == 0:
        return "Runtime exited without providing a reason"
    if code > 0:
        return f"Runtime exited with error: exit status {code}"
    return f"Runtime exited with error: signal: {(signal.strsignal(-code) or str(-code)).lower()}"


def new_trace_id(sampled: bool) -> str:
    root = f"1-{int(time.time()):08x}-{secrets.token_hex(12)}"
    return f"Root={root};Parent={secrets.token_hex(8)};Sampled={int(sampled)}"
