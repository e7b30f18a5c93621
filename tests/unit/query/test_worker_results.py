"""A worker's result is foreign bytes to its supervisor: a forged one shows nobody's memory."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from catalog.core.worker_channel import ChannelClosed, Kind
from catalog.query.workers.process import WorkerLimits, WorkerProcess
from tests.worlds.forged_arrow import forged_streams, stream


class Frames:
    """A channel from which one answer is received."""

    def __init__(self, rows: bytes) -> None:
        head = json.dumps({"receipt": {}, "explanation": {}}).encode()
        self._frames = [(Kind.ANSWER, head), (Kind.ROWS, rows), (Kind.END, b"")]

    def send(self, kind: Kind, payload: bytes) -> None:
        pass

    def receive(self, deadline: float, limit: int) -> tuple[Kind, bytearray]:
        kind, payload = self._frames.pop(0)
        return kind, bytearray(payload)


class Request:
    def encode(self) -> bytes:
        return b""


def answer(rows: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    worker: Any = object.__new__(WorkerProcess)
    worker._channel, worker._limits = Frames(rows), WorkerLimits(1 << 30, 1 << 30)
    for kind in ("QueryReceipt", "Explanation"):
        monkeypatch.setattr(f"catalog.query.workers.process.{kind}.of", staticmethod(lambda record: record))
    return worker._ask(Request(), 0.0)


@pytest.mark.parametrize("name", forged_streams())
def test_a_forged_result_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ChannelClosed, match="not valid"):
        answer(forged_streams()[name], monkeypatch)


def test_a_true_result_is_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = pa.array([1, 2]), pa.array(["x", None]), pa.array(["a", "a"]).dictionary_encode()
    assert answer(stream(*columns), monkeypatch).table().num_rows == 2
