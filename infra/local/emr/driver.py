"""A running Spark driver: one process group, its output in memory, and a sure end."""

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

_REAPED_WITHIN = 10.0  # seconds
_KEPT = 1 << 20  # bytes of each stream; the end is what tells why a job failed

# Ties the driver's life to this process, then becomes it. A killed driver closes its JVM's stdin, which ends
# that too. The kernel watches the *thread* that started us, so drivers are started by threads that outlive
# them.
_LAUNCH = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):  # gone before the request was in force
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Tail:
    """The last bytes of a stream, read to its end by a thread of its own."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._bytes = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while chunk := os.read(self._stream.fileno(), 65536):
                self._bytes += chunk
                del self._bytes[:-_KEPT]

    def finish(self) -> None:
        self._thread.join(timeout=10)

    def text(self) -> str:
        return bytes(self._bytes).decode(errors="replace")


class Driver:
    """Started by its making. `end` leaves no process of the group, however the driver came to its end."""

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
        """The exit code, or None when the driver still runs after that time."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout=seconds)
        return None

    def end(self, grace_s: float = 0.0) -> None:
        """Asks the group to end, then kills what is left: the JVM outlives its Python a little."""
        if grace_s > 0 and self._process.poll() is None:
            self._signal(signal.SIGTERM)
            self.wait(grace_s)
        self._signal(signal.SIGKILL)
        self._process.wait()
        # A killed JVM takes a moment to give back its memory, and is then for init to reap, not for us.
        deadline = time.monotonic() + _REAPED_WITHIN
        while self._signal(0) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.stdout.finish()
        self.stderr.finish()

    def _signal(self, number: int) -> bool:
        """Whether there was anything in the group to signal."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
            return False
        return True


def last_error(stderr: str) -> str:
    """What the driver died of: the message of the last traceback, else the last line it wrote.

    Of a message over several lines all lines up to the first empty one, joined: Spark puts its JVM trace
    after that.
    """
    lines = stderr.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if starts:
        after = lines[starts[-1] + 1 :]
        message = next((number for number, line in enumerate(after) if line and not line[0].isspace()), None)
        if message is not None:
            rest = after[message:]
            end = next((number for number, line in enumerate(rest) if not line.strip()), len(rest))
            return " ".join(line.strip() for line in rest[:end])
    return next((line.strip() for line in reversed(lines) if line.strip()), "no error output")
