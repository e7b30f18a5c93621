"""The worker's side: takes one request at a time, runs it, and sends the answer. Writes nothing but to its socket.

It limits itself before the first request: memory, no file of any size, no core dump. The supervisor kills it at the
deadline, so nothing here has to be interruptible.
"""

from __future__ import annotations

import io
import json
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from catalog.core.errors import Internal, Invalid, LakeError
from catalog.core.logs import correlation
from catalog.core.process_limits import limit_processor_time, limit_resources
from catalog.core.worker_channel import ENDED_BY_PANIC, ENDED_OUT_OF_MEMORY, Channel, ChannelClosed, Kind
from catalog.query.run.engine import warm_up
from catalog.query.run.queries import Queries
from catalog.query.run.results import Answer
from catalog.query.workers.messages import QueryRequest, encode_error, encode_status

logger = logging.getLogger(__name__)

CORES = 2
_HEADROOM = 0.85
"""Of the memory that is left after start, what the engine may plan with: its own count is not complete."""


def serve_queries(open_queries: Callable[[], Queries], fd: int, memory_bytes: int, result_bytes: int) -> NoReturn:
    """Serves requests from the socket `fd` until the supervisor closes it. Ends the process without clean-up: threads
    of the engine do not survive Python's own."""
    limit_resources(memory_bytes)
    channel = Channel(socket.socket(fileno=fd))
    status = 1
    try:
        worker = Worker(open_queries(), channel, memory_bytes, result_bytes)
        channel.send(Kind.READY)
        worker.run()
        status = 0
    except ChannelClosed:
        status = 0
    except MemoryError:
        status = ENDED_OUT_OF_MEMORY
    except BaseException:
        logger.exception("the query worker ends")
    finally:
        os._exit(status)


class Worker:
    def __init__(self, queries: Queries, channel: Channel, memory_bytes: int, result_bytes: int) -> None:
        self._queries, self._channel, self._result_bytes = queries, channel, result_bytes
        warm_up()
        self._engine_bytes = int((memory_bytes - _data_bytes()) * _HEADROOM)
        if self._engine_bytes <= 0:
            raise MemoryError(f"nothing is left of {memory_bytes} bytes after the start")
        warm_up(self._engine_bytes)
        self._requests: queue.SimpleQueue[QueryRequest] = queue.SimpleQueue()

    def run(self) -> None:
        threading.Thread(target=self._receive, name="requests", daemon=True).start()
        while True:
            request = self._requests.get()
            with correlation(request.correlation_id):
                self._serve(request)

    def _receive(self) -> None:
        """Receives while a query runs, too: the end of the supervisor then ends the query."""
        with suppress(ChannelClosed):
            while True:
                kind, payload = self._channel.receive()
                if kind is not Kind.REQUEST:
                    break
                self._requests.put(QueryRequest.decode(payload))
        os._exit(0)

    def _serve(self, request: QueryRequest) -> None:
        limit_processor_time(request.limits.seconds * CORES)
        try:
            self._answer(request)
        except LakeError as error:
            self._channel.send(Kind.ERROR, encode_error(error))
        except (ChannelClosed, MemoryError):
            raise
        except Exception as error:
            logger.exception("a query failed by a defect", exc_info=error)
            hidden = Internal("the query failed by a defect of the lake: its operator finds the reason in the logs")
            self._channel.send(Kind.ERROR, encode_error(hidden))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a panic of native code, which is no Exception: a crash, with the stack unwound
            logger.exception("a query ended its worker")
            os._exit(ENDED_BY_PANIC)

    def _answer(self, request: QueryRequest) -> None:
        limits = request.limits
        if request.seen_size is not None and not request.fresh:
            self._queries.wait_for_timeline(request.seen_size)
        result = self._queries.ask(
            request.sql,
            engine=request.engine,
            verify=request.verify,
            id=request.id,
            parameters=request.parameters,
            as_of=request.as_of,
            caller=request.caller,
            fresh=request.fresh,
            limit_bytes=request.limit_bytes,
            addressed=request.addressed,
            limits=replace(limits, memory_bytes=min(limits.memory_bytes, self._engine_bytes)),
        )
        if not isinstance(result, Answer):
            self._channel.send(Kind.STATUS, encode_status(result))
            return
        head = {"receipt": result.receipt.as_dict(), "explanation": result.explanation.as_dict()}
        self._channel.send(Kind.ANSWER, json.dumps(head).encode())
        rows = _Rows(self._channel, self._result_bytes)
        with pa.PythonFile(rows, "w") as sink, pa.ipc.new_stream(sink, result.schema) as stream:
            for batch in result.batches():
                stream.write_batch(batch)
        self._channel.send(Kind.END)


class _Rows(io.RawIOBase):
    """A file that sends what is written to it, and holds nothing back. Invalid after more bytes than a result may have.

    Closing it leaves the socket open for the next result.
    """

    def __init__(self, channel: Channel, max_bytes: int) -> None:
        self._channel, self._max_bytes, self._sent = channel, max_bytes, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        self._sent += len(piece)
        if self._sent > self._max_bytes:
            raise result_too_large(self._max_bytes)
        self._channel.send(Kind.ROWS, piece)
        return len(piece)


def result_too_large(max_bytes: int) -> Invalid:
    return Invalid(
        f"the result has more than {max_bytes >> 20} MiB: select fewer rows or columns, aggregate, or run it with the "
        "engine spark, whose results have pages"
    )


def _data_bytes() -> int:
    """The memory of this process that RLIMIT_DATA counts; 0 where the kernel does not say."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 0
