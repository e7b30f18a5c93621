"""A worker's output, line by line: to CloudWatch Logs, to a bounded tail, and to the current invocation's log."""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from moto.logs.models import LogsBackend

_TAIL_BYTES = 4096  # the size of Lambda's LogResult
_REPORT = "REPORT RequestId: "


class WorkerLog:
    """One worker's output: a pipe that both the worker and the platform write to.

    The platform's START, END and REPORT lines go through the same pipe, so they are in order with the handler's lines:
    when REPORT has been read, so has everything that the handler wrote before its response.
    """

    def __init__(self, backend: LogsBackend, group: str, stream: str, recent: deque[str]) -> None:
        self._backend, self._group, self._stream = backend, group, stream
        self._recent = recent
        self._pending: list[str] = []  # since the last REPORT
        self._reported: dict[str, threading.Event] = {}
        self._read_end, self.write_end = os.pipe()
        self._closed = False
        self._lock = threading.Lock()
        backend.ensure_log_group(group)
        backend.ensure_log_stream(group, stream)
        threading.Thread(target=self._drain, name=f"log {stream}", daemon=True).start()

    def start(self, request_id: str, version: str) -> None:
        self._write(f"START RequestId: {request_id} Version: {version}\n")

    def report(self, request_id: str, duration_ms: float, memory_mb: int, extra: str = "") -> str:
        """Ends an invocation and returns the tail of its log, at most 4 KB."""
        reported = self._reported.setdefault(request_id, threading.Event())
        # The handler's last line may lack its newline; empty lines are dropped when read.
        written = self._write(
            f"\nEND RequestId: {request_id}\n{_REPORT}{request_id}\tDuration: {duration_ms:.2f} ms\t"
            f"Billed Duration: {int(duration_ms) + 1} ms\tMemory Size: {memory_mb} MB{extra}\n"
        )
        if written:
            reported.wait(timeout=1)  # bounded, so that a dead reader thread does not block the response
        self._reported.pop(request_id, None)
        lines, self._pending = self._pending, []
        return "\n".join(lines).encode()[-_TAIL_BYTES:].decode(errors="ignore")

    def close(self) -> None:
        """Closes the platform's write end; the reader stops when the worker's last process has exited."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self.write_end)

    def _write(self, text: str) -> bool:
        with self._lock:
            if self._closed:
                return False
            os.write(self.write_end, text.encode())
            return True

    def _drain(self) -> None:
        partial = b""
        with os.fdopen(self._read_end, "rb", buffering=0) as pipe:
            while chunk := pipe.read(65536):
                *lines, partial = (partial + chunk).split(b"\n")
                self._append(lines)
        self._append([partial])

    def _append(self, raw: list[bytes]) -> None:
        # awslambdaric joins the lines of a traceback with \r, so that they are one log event
        lines = [line.decode(errors="replace").replace("\r", "\n") for line in raw if line.strip()]
        if not lines:
            return
        self._recent.extend(lines)
        self._pending.extend(lines)
        now = int(time.time() * 1000)
        self._backend.put_log_events(self._group, self._stream, [{"timestamp": now, "message": line} for line in lines])
        for line in lines:
            if line.startswith(_REPORT):
                reported = self._reported.get(line[len(_REPORT) :].split("\t", 1)[0])
                if reported:
                    reported.set()
