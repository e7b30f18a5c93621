"""What a worker writes, line by line: to CloudWatch Logs, a bounded tail, and the invocation at hand."""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from moto.logs.models import LogsBackend

_TAIL_BYTES = 4096  # what Lambda returns as LogResult
_REPORT = "REPORT RequestId: "


class WorkerLog:
    """One worker's output. It is a pipe that the worker *and* the platform write to.

    The platform's START, END and REPORT lines go through the same pipe, so their order with the handler's own
    lines is true, and once REPORT has come out, so has all that the handler wrote before its answer.
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
        """Ends an invocation and returns the tail of what was written since the last one, at most 4 KB."""
        reported = self._reported.setdefault(request_id, threading.Event())
        # The handler's last line may lack its newline; empty lines are dropped when read.
        written = self._write(
            f"\nEND RequestId: {request_id}\n{_REPORT}{request_id}\tDuration: {duration_ms:.2f} ms\t"
            f"Billed Duration: {int(duration_ms) + 1} ms\tMemory Size: {memory_mb} MB{extra}\n"
        )
        if written:
            reported.wait(timeout=1)  # a reader that is gone must not hold up an answer
        self._reported.pop(request_id, None)
        lines, self._pending = self._pending, []
        return "\n".join(lines).encode()[-_TAIL_BYTES:].decode(errors="ignore")

    def close(self) -> None:
        """The platform's end only: the reader stops when the worker's last process is gone."""
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
        rest = b""
        with os.fdopen(self._read_end, "rb", buffering=0) as pipe:
            while chunk := pipe.read(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                self._take(lines)
        self._take([rest])

    def _take(self, raw: list[bytes]) -> None:
        # awslambdaric joins the lines of a traceback with \r to keep them one log event
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
