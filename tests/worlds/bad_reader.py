"""The program that reads bodies, with readers that do what a fault in native code would, as the body says."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from typing import Any

from catalog.core.worker_channel import Channel, Kind
from catalog.formats import reader_process

PROGRAM = "tests.worlds.bad_reader"


def _read(good: Any, data: bytearray, limits: Any) -> Any:
    match bytes(data):
        case b"crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"exit":
            os._exit(3)
        case b"loop":
            while True:
                pass
        case b"memory":
            return bytearray(8 << 30)
        case b"defect":
            raise KeyError("a defect")
        case b"file":
            with tempfile.TemporaryFile() as file:
                file.write(b"x")
    return good(data, limits)


def _forge(self: Channel, kind: Kind, payload: Any = b"") -> None:
    """Sends other frames than were asked for, if the body says so."""
    said = _RECEIVED[-1] if _RECEIVED else b""
    if kind is Kind.ERROR and said.startswith(b"forge "):
        what = said.removeprefix(b"forge ").decode()
        frames = {
            "rows": [(Kind.ROWS, b"\xff" * 64), (Kind.END, b"")],
            "error": [(Kind.ERROR, b'{"reason": 7, "row": {}, "x": 1}')],
            "no error": [(Kind.ERROR, b"[]")],
            "frame": [(Kind.STATUS, b"\xff" * 10), (Kind.END, b"")],
        }[what]
        for one in frames:
            _SEND(self, *one)
        return
    _SEND(self, kind, payload)


_RECEIVED: list[bytes] = []
_SEND, _RECEIVE = Channel.send, Channel.receive


def _received(self: Channel, *rest: Any) -> Any:
    kind, payload = _RECEIVE(self, *rest)
    _RECEIVED.append(bytes(payload))
    return kind, payload


def main() -> None:
    for name, good in list(reader_process.READERS.items()):
        reader_process.READERS[name] = lambda data, limits, good=good: _read(good, data, limits)  # type: ignore[misc]
    Channel.send, Channel.receive = _forge, _received  # type: ignore[method-assign,assignment]
    reader_process.main()


if __name__ == "__main__":
    sys.exit(main())
