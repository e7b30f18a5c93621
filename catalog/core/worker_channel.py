"""Frames over a socket between a supervisor and its worker: one byte of kind, eight of length, then the payload."""

from __future__ import annotations

import socket
import struct
import time
from enum import Enum

_HEADER = struct.Struct("!cQ")
_PIECE = 1 << 20
ENDED_OUT_OF_MEMORY = 77
"""The exit status of a worker that could not allocate: what it holds after that is not to be trusted."""
ENDED_BY_PANIC = 78
"""The exit status of a worker whose native code gave up: a crash by another name."""


class Kind(bytes, Enum):
    READY = b"R"
    """The worker can take requests."""
    REQUEST = b"Q"
    ANSWER = b"A"
    """The receipt and the explanation as JSON; ROWS and END follow."""
    ROWS = b"D"
    """A piece of the rows' Arrow stream."""
    END = b"E"
    STATUS = b"S"
    """The status of a query that was submitted to Spark."""
    ERROR = b"X"
    """In place of any other frame: why the query failed. The worker takes the next request."""


class ChannelClosed(Exception):
    """The other side ended, or sent something that is not a frame."""


class Channel:
    """One end. Not safe to share between threads, except that one may send while another receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, kind: Kind, payload: bytes | memoryview = b"") -> None:
        """Sends one frame. ChannelClosed if the other side is gone."""
        try:
            self._socket.settimeout(None)
            header = _HEADER.pack(kind.value, len(payload))
            if len(payload) < _PIECE:
                self._socket.sendall(b"".join((header, payload)))
            else:
                self._socket.sendall(header)
                self._socket.sendall(payload)
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self, deadline: float | None = None, max_bytes: int | None = None) -> tuple[Kind, bytearray]:
        """The next frame. TimeoutError at the deadline, on the monotonic clock; ChannelClosed if there is none, or one
        of more than `max_bytes`."""
        kind, length = _HEADER.unpack(self._read(_HEADER.size, deadline))
        if max_bytes is not None and length > max_bytes:
            raise ChannelClosed(f"a frame of {length} bytes")
        try:
            return Kind(kind), self._read(length, deadline)
        except ValueError:
            raise ChannelClosed(f"a frame of kind {kind!r}") from None

    def close(self) -> None:
        self._socket.close()

    def _read(self, length: int, deadline: float | None) -> bytearray:
        data = bytearray(length)
        view, at = memoryview(data), 0
        while at < length:
            try:
                self._socket.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
                read = self._socket.recv_into(view[at : at + _PIECE])
            except TimeoutError:
                raise
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            if not read:
                raise ChannelClosed("the other side ended")
            at += read
        return data
