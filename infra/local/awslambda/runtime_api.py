"""Lambda's Runtime API for one worker: the worker gets events and posts responses. HTTP/1.1 on loopback.

Each worker has its own port, because requests of the protocol do not identify the worker. This module does not manage
processes: `Worker` reports an exit with `fail`.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

_PREFIX = "/2018-06-01/runtime"
_MAX_RESPONSE = 6_291_556  # Lambda's synchronous payload limit


@dataclass(frozen=True)
class Response:
    """A handler's response, or an error document with `function_error` "Unhandled"."""

    payload: bytes
    function_error: str | None = None

    @classmethod
    def error(cls, kind: str, message: str) -> Response:
        return cls(json.dumps({"errorType": kind, "errorMessage": message}).encode(), "Unhandled")


@dataclass
class Task:
    """One event that a worker processes. The first response counts; later ones are ignored."""

    request_id: str
    payload: bytes
    function_arn: str
    timeout: float
    trace_id: str
    client_context: str | None = None
    started: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)
    response: Response | None = None
    started_at: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def finish(self, response: Response) -> None:
        with self._lock:
            if self.response is None:
                self.response = response
        self.started.set()
        self.finished.set()

    def start(self) -> None:
        self.started_at = time.monotonic()
        self.started.set()

    def headers(self) -> dict[str, str]:
        """The headers of the event. Called when the worker gets it: the deadline counts from then."""
        headers = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": self.request_id,
            "Lambda-Runtime-Deadline-Ms": str(int((time.time() + self.timeout) * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": self.function_arn,
            "Lambda-Runtime-Trace-Id": self.trace_id,
        }
        if self.client_context:
            headers["Lambda-Runtime-Client-Context"] = self.client_context
        return headers


class RuntimeApi(ThreadingHTTPServer):
    """`submit` a task, then wait for it to finish. `init_seconds` is set when the worker gets its first event."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._started = time.monotonic()
        self.init_seconds: float | None = None
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._current: Task | None = None
        self._failure: Callable[[Task], Response] | None = None  # an init error or the exit: fails every later task
        self._lock = threading.Lock()
        self._stopping = False
        threading.Thread(target=self._accept, name=f"runtime-api-{self.server_port}", daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def submit(self, task: Task) -> None:
        with self._lock:
            self._current = task
            if self._failure is None:
                self._tasks.put(task)
                return
        task.finish(self._failure(task))

    def fail(self, failure: Callable[[Task], Response]) -> None:
        """Finishes the current and every later task with an error. The first failure counts: an init error says more
        than the exit that follows it."""
        with self._lock:
            if self._failure is None:
                self._failure = failure
            current = self._current
        if current:
            current.finish(self._failure(current))

    def stop(self) -> None:
        self._stopping = True
        self._tasks.put(None)
        with suppress(OSError):  # wakes the blocking accept; shutting the socket down does so on Linux only
            socket.create_connection(("127.0.0.1", self.server_port), timeout=1).close()
        self.server_close()

    def next_task(self) -> Task | None:
        if self.init_seconds is None:
            self.init_seconds = time.monotonic() - self._started
        return self._tasks.get()

    def respond(self, request_id: str, response: Response) -> bool:
        """Finishes the current task; False when it is not the task of `request_id`."""
        current = self._current
        if current is None or current.request_id != request_id:
            return False
        current.finish(response)
        return True

    def _accept(self) -> None:
        # Not serve_forever: its select wakes up twice a second for every worker, and takes as long to stop.
        while not self._stopping:
            self._handle_request_noblock()  # type: ignore[attr-defined]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors: a worker may be killed in the middle of a request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536  # sends head and body together

    def do_GET(self) -> None:
        if self.path != f"{_PREFIX}/invocation/next":
            self._reply(404)
            return
        task = self._api.next_task()
        if task is None:
            self.close_connection = True
            return
        task.start()
        self._reply(200, task.payload, task.headers())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match self.path.removeprefix(_PREFIX).split("/"):
            case ["", "init", "error"]:
                self._api.fail(lambda task: Response(body, "Unhandled"))
                accepted = True
            case ["", "invocation", request_id, "response"]:
                accepted = self._api.respond(request_id, _check_size(body))
            case ["", "invocation", request_id, "error"]:
                accepted = self._api.respond(request_id, Response(body, "Unhandled"))
            case _:
                self._reply(404)
                return
        self._reply(202 if accepted else 400, b'{"status":"OK"}\n')

    @property
    def _api(self) -> RuntimeApi:
        return cast(RuntimeApi, self.server)

    def _reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the worker has its own log."""


def _check_size(body: bytes) -> Response:
    if len(body) <= _MAX_RESPONSE:
        return Response(body)
    return Response.error(
        "Function.ResponseSizeTooLarge",
        f"Response payload size ({len(body)} bytes) exceeded maximum allowed payload size ({_MAX_RESPONSE} bytes).",
    )
