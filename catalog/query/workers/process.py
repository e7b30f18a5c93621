"""One worker process as its supervisor sees it: started with only the environment it needs, and killed with SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from catalog.core.channel_process import ChannelProcess
from catalog.core.errors import Internal, Invalid, LakeError, Unavailable
from catalog.core.worker_channel import ENDED_OUT_OF_MEMORY, ChannelClosed, Kind
from catalog.formats import FileRejected, FormatLimits, read_arrow_stream
from catalog.query.plan.routing import Explanation
from catalog.query.run.results import Answer, QueryReceipt
from catalog.query.spark.spark_queries import QueryStatus
from catalog.query.workers.messages import QueryRequest, decode_error, decode_status

START_S = 60.0
_ANY_SIZE = FormatLimits(decompressed_bytes=1 << 40)
"""The encoded size of a result is bounded while it is received."""
_ENDING_S = 1.0
"""How long a worker that ends may take to say why."""
_OUT_OF_MEMORY = (
    "memory allocation of", "MemoryError", "bad_alloc", "Cannot allocate memory", "cannot commit OS memory",
    "unable to allocate",
)  # fmt: skip
_INHERITED = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_PROFILE",
    "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CA_BUNDLE", "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_DISABLED", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "LANG", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "TZ",
)  # fmt: skip
_ALLOCATORS = {
    # Allocators that commit memory when it is used, not when it is reserved: RLIMIT_DATA then counts what is used.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # DuckDB's allocator keeps what a query freed: after a large one there was no room for anything but DuckDB.
    "DUCKDB_JE_MALLOC_CONF": "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0",
    "MALLOC_ARENA_MAX": "2",
    "MIMALLOC_ARENA_EAGER_COMMIT": "0",
    "MIMALLOC_SHOW_ERRORS": "1",  # so that a crash after a failed allocation is known to be one
}


@dataclass(frozen=True)
class WorkerLimits:
    """The hard limits of one worker: its whole memory, and the size of one result."""

    memory_bytes: int
    result_bytes: int


def worker_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a worker: credentials, where Python finds the lake, and `variables`.

    Lambda's runtime API is not in it: with that address a worker could answer other callers' requests.
    """
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**inherited, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **_ALLOCATORS, **variables}


class WorkerProcess(ChannelProcess):
    """One worker. Runs one request at a time."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], limits: WorkerLimits) -> None:
        self._limits = limits
        self._ready = False
        self._started = time.monotonic()
        arguments = (limits.memory_bytes, limits.result_bytes)
        super().__init__(command, arguments, worker_environment(variables), subprocess.PIPE)
        self._last_lines: deque[str] = deque(maxlen=40)
        self._log = threading.Thread(target=self._copy_log, name=f"log of worker {self.pid}", daemon=True)
        self._log.start()

    def wait_ready(self, deadline: float) -> None:
        """Waits until it has started. Unavailable if it has not by the deadline, or ended.

        A worker that is slow to start is left to it, for START_S at most: the next query may find it ready.
        """
        if self._ready:
            return
        try:
            kind, _ = self._channel.receive(deadline, max_bytes=0)
        except TimeoutError:
            if time.monotonic() > self._started + START_S:
                self.kill()
            raise Unavailable("the query worker is still starting: try again") from None
        except ChannelClosed:
            self.kill()
            raise Unavailable(f"the query worker did not start: {self._reason()}; try again") from None
        self._ready = kind is Kind.READY

    def ask(self, request: QueryRequest, deadline: float) -> Answer | QueryStatus:
        """Runs one query and returns its complete answer. Whatever goes wrong with the worker itself kills it."""
        try:
            return self._ask(request, deadline)
        except TimeoutError:
            self.kill()
            raise Invalid(
                f"the query took longer than its {request.limits.seconds:g} s: narrow it, or bound its recursion"
            ) from None
        except ChannelClosed:
            with suppress(subprocess.TimeoutExpired):  # it may still be writing why it ends
                self._process.wait(_ENDING_S)
            raise self._end_of_worker() from None
        except LakeError:
            if time.monotonic() >= deadline:  # by the worker's own clock: cancelled work may go on in its threads
                self.kill()
            raise
        except BaseException:
            self.kill()
            raise

    def _ask(self, request: QueryRequest, deadline: float) -> Answer | QueryStatus:
        self._channel.send(Kind.REQUEST, request.encode())
        kind, payload = self._receive(deadline, Kind.ANSWER, Kind.STATUS)
        if kind is Kind.STATUS:
            return decode_status(payload)
        head = json.loads(payload)
        pieces = bytearray()
        while True:
            kind, payload = self._receive(deadline, Kind.ROWS, Kind.END)
            if kind is Kind.END:
                break
            pieces += payload
            if len(pieces) > self._limits.result_bytes:
                raise ChannelClosed("the result is larger than the worker may send")
        try:
            # A worker runs what strangers wrote: forged offsets would show its caller the supervisor's memory.
            table = read_arrow_stream(pieces, _ANY_SIZE, any_type=True)
        except FileRejected as error:
            raise ChannelClosed(f"a result that is not valid: {error.message}") from None
        receipt, explanation = QueryReceipt.of(head["receipt"]), Explanation.of(head["explanation"])
        return Answer(table.schema, iter(table.to_batches()), receipt, explanation)

    def _receive(self, deadline: float, *expected: Kind) -> tuple[Kind, bytearray]:
        kind, payload = self._channel.receive(deadline, self._limits.result_bytes)
        if kind is Kind.ERROR:
            raise decode_error(payload)
        if kind not in expected:
            raise ChannelClosed(f"a frame of kind {kind.name}")
        return kind, payload

    def _end_of_worker(self) -> LakeError:
        """The error of a query whose worker ended. The statement is taken to be the cause: it is never run again."""
        self.kill()
        self._log.join(timeout=_ENDING_S)
        code = self._process.returncode
        if code == ENDED_OUT_OF_MEMORY or any(mark in line for line in self._last_lines for mark in _OUT_OF_MEMORY):
            return Invalid(
                f"the query needs more than its {self._limits.memory_bytes >> 20} MiB of memory: select fewer columns "
                "or rows, make smaller values, or run it with the engine spark"
            )
        if code == -signal.SIGXCPU:
            return Invalid("the query used more processor time than it may: narrow it")
        if code in (0, 1):
            return Internal(f"the query's worker ended: {self._reason()}")
        return Invalid(
            f"the query cannot be planned or run: it ended its worker ({self._reason()}), which has "
            f"{self._limits.memory_bytes >> 20} MiB of memory; write it in a simpler way, or select less"
        )

    def _reason(self) -> str:
        code = self._process.wait()
        if code < 0:
            return signal.Signals(-code).name
        return f"exit status {code}"

    def _copy_log(self) -> None:
        """Copies the worker's log to this process's, and keeps the end of it."""
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                text = line.decode(errors="replace")
                self._last_lines.append(text)
                sys.stderr.write(text)
