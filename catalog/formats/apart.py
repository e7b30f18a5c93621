"""Bodies of strangers, read in a process of its own: what a body does to its reader, it does to that process alone.

Arrow's readers are native code. One that crashes, or takes all memory, ends the process that runs it, and a fault that
does not crash has the rights of that process. So this one has none: no credentials, no settings, no file. What comes
back is read like a stranger's bytes, and the reader may be anybody's by then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Literal

import pyarrow as pa

from catalog.core.channel_process import ChannelProcess
from catalog.core.errors import Internal, LakeError, Unavailable
from catalog.core.worker_channel import ENDED_OUT_OF_MEMORY, ChannelClosed, Kind
from catalog.formats.arrow import read_arrow_stream
from catalog.formats.limits import FileRejected, FormatLimits

PROGRAM = "catalog.formats.reader_process"
MEMORY_BYTES = 512 << 20
"""Of the whole process: about 80 MiB when it has started, and four times what the API lets rows take."""
SECONDS = 20.0
START_S = 25.0
_ENDING_S = 1.0
"""How long a process that ends may take to be gone."""
_ENCODED, _HEADERS = 1.5, 8 << 20
"""A stream's size at most, against that of its values: padding, bitmaps, headers."""
_ANY_SIZE = FormatLimits(decompressed_bytes=1 << 40)
_VARIABLES = {
    # Memory is taken when it is used, not when it is reserved: RLIMIT_DATA then counts what is used.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}

Format = Literal["arrow", "parquet"]


class _NotRows(ChannelClosed):
    """The reader sent something else than rows or a reason: it is no longer the program that was started."""


class ApartReader:
    """Reads one body at a time in a process that is started on first use, kept, and replaced when it has ended. Safe to
    share between threads: they wait for each other."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES, seconds: float = SECONDS) -> None:
        self._memory_bytes, self._seconds = memory_bytes, seconds
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def read(self, format: Format, data: bytes, limits: FormatLimits) -> pa.Table:
        """The rows of the body. FileRejected if it is not valid, or beyond a limit, or ends its reader, which is then
        replaced; Unavailable if no reader starts. Costs about a millisecond more than to read it here."""
        with self._lock:
            process = self._started()
            try:
                return process.read(format, data, limits, self._seconds)
            except BaseException as error:
                if not isinstance(error, FileRejected) or process.ended:
                    self._process = None
                    process.kill()
                raise

    def pid(self) -> int | None:
        """The reader's process id, for tests and operators; None if there is none."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """Ends the process. The next body starts another."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process = None

    def _started(self) -> _Process:
        if self._process is None or not self._process.usable:
            if self._process is not None:
                self._process.kill()
            self._process = _Process(self._memory_bytes)
        return self._process


class _Process(ChannelProcess):
    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        super().__init__([sys.executable, "-m", PROGRAM], (memory_bytes,), _environment(), None)
        try:
            self._channel.receive(time.monotonic() + START_S, max_bytes=0)
        except (TimeoutError, ChannelClosed):
            self.kill()
            raise Unavailable("the process that reads bodies did not start: try again") from None

    def read(self, format: Format, data: bytes, limits: FormatLimits, seconds: float) -> pa.Table:
        deadline = time.monotonic() + seconds
        request = {"format": format, "limits": asdict(limits), "seconds": seconds}
        max_bytes = int(limits.decompressed_bytes * _ENCODED) + _HEADERS
        try:
            self._channel.send(Kind.REQUEST, json.dumps(request).encode())
            self._channel.send(Kind.REQUEST, data)
            return _rows(self._receive(deadline, max_bytes))
        except TimeoutError:
            self.ended = True
            raise FileRejected(f"it takes longer than {seconds:g} s to read: send less at once") from None
        except _NotRows:
            self._process.kill()
            raise self._end() from None
        except ChannelClosed:
            raise self._end() from None

    def _receive(self, deadline: float, max_bytes: int) -> bytearray:
        pieces = bytearray()
        while len(pieces) <= max_bytes:
            kind, payload = self._channel.receive(deadline, max_bytes)
            if kind is Kind.END:
                return pieces
            if kind is Kind.ERROR:
                raise _rejection(payload)
            if kind is not Kind.ROWS:
                raise _NotRows(f"a frame of kind {kind.name}")
            pieces += payload
        raise _NotRows("more rows than a body may have")

    def _end(self) -> LakeError:
        """The error for a body whose reader ended. The body is taken to be the cause: it is never read again."""
        self.ended = True
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_S)
        self._process.kill()
        code = self._process.wait()
        if code == ENDED_OUT_OF_MEMORY:
            return FileRejected(
                f"it needs more than {self._memory_bytes >> 20} MiB of memory to read: send less at once"
            )
        if code == 1:
            return Internal(
                "a body could not be read by a defect of the lake: its operator finds the reason in the logs"
            )
        reason = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return FileRejected(f"it cannot be read: it ended its reader ({reason})")


def _environment() -> dict[str, str]:
    """All of the process's environment: where Python and its libraries are, and no credentials."""
    inherited = {name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {**inherited, **_VARIABLES, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}


def _rows(data: bytearray) -> pa.Table:
    """_NotRows if they are not valid: forged offsets would show the caller this process's memory."""
    try:
        return read_arrow_stream(data, _ANY_SIZE, any_type=True)
    except FileRejected as error:
        raise _NotRows(error.message) from None


def _rejection(payload: bytearray) -> FileRejected:
    try:
        said = json.loads(payload)
        position = {name: said[name] for name in ("line", "row", "column") if name in said}
        return FileRejected(str(said["reason"]), **position)
    except (ValueError, KeyError, TypeError) as error:
        raise _NotRows(str(error)) from None
