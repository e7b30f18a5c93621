"""A running Spark driver: one process group, with its output in memory. No process of the group outlives `end`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO

from infra.local.emr.submit import Submission

_EXIT_SECONDS = 10.0
_TAIL_BYTES = 1 << 20  # of each stream; the end of the output has the reason of a failure

# Makes the kernel kill the driver when this process dies, then execs the driver. A killed driver closes its JVM's
# stdin, which ends the JVM too. The kernel watches the parent *thread*, so drivers are started by threads that outlive
# them.
_LAUNCH = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):  # the parent died before prctl took effect
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Tail:
    """The last bytes of a stream, which its own thread reads to the end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._bytes = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while chunk := os.read(self._stream.fileno(), 65536):
                self._bytes += chunk
                del self._bytes[:-_TAIL_BYTES]

    def finish(self) -> None:
        self._thread.join(timeout=10)

    def text(self) -> str:
        return bytes(self._bytes).decode(errors="replace")


class Driver:
    """Starts on creation. `end` kills every process of the group, also after the driver has exited."""

    def __init__(self, submission: Submission) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *submission.command],
            cwd=submission.directory,
            env=dict(submission.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.stdout, self.stderr = Tail(self._process.stdout), Tail(self._process.stderr)

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None when the driver still runs after `seconds`."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout=seconds)
        return None

    def end(self, grace_s: float = 0.0) -> None:
        """Sends SIGTERM and waits for `grace_s`, then kills the group: the JVM outlives its Python process a little."""
        if grace_s > 0 and self._process.poll() is None:
            self._signal(signal.SIGTERM)
            self.wait(grace_s)
        self._signal(signal.SIGKILL)
        self._process.wait()
        # A killed JVM takes a moment to release its memory; then init reaps it, not this process.
        deadline = time.monotonic() + _EXIT_SECONDS
        while self._signal(0) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.stdout.finish()
        self.stderr.finish()

    def _signal(self, number: int) -> bool:
        """Sends a signal to the group; False when the group has no process."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
            return False
        return True


def last_error(stderr: str) -> str:
    """The message of the last traceback, else the last line of stderr.

    Joins the lines of a message up to the first empty one, after which Spark prints its JVM stack trace.
    """
    lines = stderr.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if starts:
        traceback = lines[starts[-1] + 1 :]
        first = next((number for number, line in enumerate(traceback) if line and not line[0].isspace()), None)
        if first is not None:
            message = traceback[first:]
            end = next((number for number, line in enumerate(message) if not line.strip()), len(message))
            return " ".join(line.strip() for line in message[:end])
    return next((line.strip() for line in reversed(lines) if line.strip()), "no error output")
