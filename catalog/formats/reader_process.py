"""The program that reads bodies for `ApartReader`, `python -m catalog.formats.reader_process`: one at a time.

It has no credentials and no settings, writes no file, and has a hard limit of memory. Its supervisor kills it at the
deadline, so nothing here has to be interruptible.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa

from catalog.core.process_limits import limit_processor_time, limit_resources
from catalog.core.worker_channel import ENDED_OUT_OF_MEMORY, Channel, ChannelClosed, Kind
from catalog.formats.arrow import read_arrow_stream
from catalog.formats.limits import FileRejected, FormatLimits
from catalog.formats.parquet import read_parquet_table

READERS: dict[str, Callable[[bytes, FormatLimits], pa.Table]] = {
    "arrow": read_arrow_stream,
    "parquet": read_parquet_table,
}


def main() -> NoReturn:
    """Serves requests until the supervisor closes the socket. Ends without clean-up: Arrow's threads may still run."""
    fd, memory_bytes = map(int, sys.argv[1:])
    limit_resources(memory_bytes)
    pa.set_cpu_count(1)  # a small body is read faster than its work is given to threads, each with a stack
    status = 1
    try:
        channel = Channel(socket.socket(fileno=fd))
        channel.send(Kind.READY)
        while True:
            _, request = channel.receive()
            _, body = channel.receive()
            _serve(channel, json.loads(request), bytes(body))
            del body
            pa.default_memory_pool().release_unused()
    except ChannelClosed:
        status = 0
    except MemoryError:
        status = ENDED_OUT_OF_MEMORY
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve(channel: Channel, request: dict[str, Any], body: bytes) -> None:
    limit_processor_time(request["seconds"])
    try:
        table = READERS[request["format"]](body, FormatLimits(**request["limits"]))
    except FileRejected as error:
        channel.send(Kind.ERROR, json.dumps({"reason": error.reason, **error.position}).encode())
        return
    with pa.PythonFile(_Rows(channel), "w") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    channel.send(Kind.END)


class _Rows(io.RawIOBase):
    """A file that sends what is written to it. Closing it leaves the socket open for the next rows."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        self._channel.send(Kind.ROWS, piece)
        return len(piece)


if __name__ == "__main__":
    main()
