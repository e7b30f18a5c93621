"""Lambda's Runtime API for one worker: hand it an event, take its answer. HTTP/1.1 on loopback.

Each worker has its own port, because the protocol has nothing else that tells workers apart. Knows nothing of
processes: `Worker` reports a death with `abandon`.
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
class Answer:
    """What came of one event: the handler's bytes, or an error document and the word Unhandled."""

    payload: bytes
    function_error: str | None = None

    @classmethod
    def error(cls, kind: str, message: str) -> Answer:
        return cls(json.dumps({"errorType": kind, "errorMessage": message}).encode(), "Unhandled")


@dataclass
class Task:
    """One event on its way through one worker. The first answer counts: a late one finds the task settled."""

    request_id: str
    payload: bytes
    function_arn: str
    timeout: float
    trace_id: str
    client_context: str | None = None
    taken: threading.Event = field(default_factory=threading.Event)
    settled: threading.Event = field(default_factory=threading.Event)
    answer: Answer | None = None
    taken_at: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def settle(self, answer: Answer) -> None:
        with self._lock:
            if self.answer is None:
                self.answer = answer
        self.taken.set()
        self.settled.set()

    def take(self) -> None:
        self.taken_at = time.monotonic()
        self.taken.set()

    def headers(self) -> dict[str, str]:
        """Made when the worker takes the event: the deadline starts to run then."""
        found = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": self.request_id,
            "Lambda-Runtime-Deadline-Ms": str(int((time.time() + self.timeout) * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": self.function_arn,
            "Lambda-Runtime-Trace-Id": self.trace_id,
        }
        if self.client_context:
            found["Lambda-Runtime-Client-Context"] = self.client_context
        return found


class RuntimeApi(ThreadingHTTPServer):
    """`offer` a task, then wait on it. `init_seconds` is known once the worker asked for its first event."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._started = time.monotonic()
        self.init_seconds: float | None = None
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._current: Task | None = None
        self._last_words: Callable[[Task], Answer] | None = None  # an init error or the exit, for every later task
        self._lock = threading.Lock()
        self._stopping = False
        threading.Thread(target=self._accept, name=f"runtime-api-{self.server_port}", daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def offer(self, task: Task) -> None:
        with self._lock:
            self._current = task
            if self._last_words is None:
                self._tasks.put(task)
                return
        task.settle(self._last_words(task))

    def abandon(self, last_words: Callable[[Task], Answer]) -> None:
        """The worker will not answer any more. An init error it reported earlier says more than its exit."""
        with self._lock:
            if self._last_words is None:
                self._last_words = last_words
            current = self._current
        if current:
            current.settle(self._last_words(current))

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

    def answered(self, request_id: str, answer: Answer) -> bool:
        current = self._current
        if current is None or current.request_id != request_id:
            return False
        current.settle(answer)
        return True

    def _accept(self) -> None:
        # Not serve_forever: its select wakes up twice a second for every worker, and stops as slowly.
        while not self._stopping:
            self._handle_request_noblock()  # type: ignore[attr-defined]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that is killed in the middle of a request is an expected event."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536  # head and body leave in one packet

    def do_GET(self) -> None:
        if self.path != f"{_PREFIX}/invocation/next":
            self._reply(404)
            return
        task = self._api.next_task()
        if task is None:
            self.close_connection = True
            return
        task.take()
        self._reply(200, task.payload, task.headers())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match self.path.removeprefix(_PREFIX).split("/"):
            case ["", "init", "error"]:
                self._api.abandon(lambda task: Answer(body, "Unhandled"))
                known = True
            case ["", "invocation", request_id, "response"]:
                known = self._api.answered(request_id, _within_limit(body))
            case ["", "invocation", request_id, "error"]:
                known = self._api.answered(request_id, Answer(body, "Unhandled"))
            case _:
                self._reply(404)
                return
        self._reply(202 if known else 400, b'{"status":"OK"}\n')

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
        """The worker's own log tells the story."""


def _within_limit(body: bytes) -> Answer:
    if len(body) <= _MAX_RESPONSE:
        return Answer(body)
    return Answer.error(
        "Function.ResponseSizeTooLarge",
        f"Response payload size ({len(body)} bytes) exceeded maximum allowed payload size ({_MAX_RESPONSE} bytes).",
    )
