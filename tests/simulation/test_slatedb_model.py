"""The model of SlateDB does what SlateDB does: the same steps on both give the same answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from catalog.core.errors import LakeError
from catalog.timeline.log import slate_bindings, store
from catalog.timeline.log.slate_bindings import DATABASE
from catalog.timeline.log.store import StoreLocation, StoreReader, StoreWriter
from tests.simulation import slatedb
from tests.simulation.install import abandon_synchronously, asyncio_of, wait_synchronously
from tests.simulation.s3 import Bucket, S3Client
from tests.simulation.scheduler import EPOCH_S, World

Step = tuple[str, int, int]
"""What is done, by which of two writers, and a number for what it writes."""


class _Direct:
    """A network without time or faults."""

    def request(self, what: str, apply: Callable[[], Any], *, attempts: int = 3) -> Any:
        return apply()


@contextmanager
def _model() -> Iterator[StoreLocation]:
    world = World(0)
    client = S3Client(_Direct(), Bucket(world, "bucket"))  # type: ignore[arg-type]
    ids = random.Random(0)
    bindings = slatedb.bindings(lambda: client, "bucket", lambda: f"{ids.getrandbits(64):016x}", lambda: EPOCH_S + 1)
    with ExitStack() as stack:
        for name, value in (
            ("slate", bindings),
            ("wait", wait_synchronously),
            ("abandon", abandon_synchronously),
            ("asyncio", asyncio_of(world)),
        ):
            stack.enter_context(patch.object(store, name, value))
        stack.enter_context(patch.object(slate_bindings, "slate", bindings))
        yield StoreLocation(None, DATABASE)


@contextmanager
def _real() -> Iterator[StoreLocation]:
    yield StoreLocation.in_memory()


def _answers(location: StoreLocation, steps: list[Step]) -> list[object]:
    """What each step returned or raised; after each, what a new reader and the writer itself see."""
    writers: dict[int, StoreWriter] = {}
    answers: list[object] = []
    for what, number, value in steps:
        try:
            answers.append(_take(location, writers, what, number, value))
        except LakeError as error:
            answers.append(type(error).__name__)
            writers.pop(number).close()
    for writer in writers.values():
        writer.close()
    return answers


def _take(location: StoreLocation, writers: dict[int, StoreWriter], what: str, number: int, value: int) -> object:
    if what == "open" or number not in writers:
        writers[number] = StoreWriter.open(location)
        return "opened"
    writer = writers[number]
    if what != "read":  # also before a flush: whether one without rows learns that it is fenced is a matter of time
        puts = [(f"key/{value % 7}".encode(), str(value).encode()), (f"key/{value % 5}".encode(), b"x")]
        writer.write(puts, [f"key/{value % 3}".encode()])
    if what == "write":
        return "written"
    if what == "flush":
        writer.flush()
        return "flushed"
    if what == "compact":
        writers[number] = writer.compact()
        return "compacted"
    with closing(StoreReader.open(location)) as reader:
        rows = list(reader.scan(b"key/", b"key0"))
        ends = list(reader.scan(b"key/", b"key0", limit=2, descending=True))
        return rows, ends, reader.get(b"key/1"), reader.get_many([b"key/2", b"missing"])


@pytest.mark.parametrize("seed", range(6))
def test_the_model_answers_as_slatedb_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "GARBAGE_AGE_MS", 0)
    chosen = random.Random(seed)
    kinds = ["open"] * 2 + ["write"] * 8 + ["flush"] * 4 + ["read"] * 3 + ["compact"] * (seed % 2)
    steps: list[Step] = [("open", 0, 0)]
    steps += [(chosen.choice(kinds), int(chosen.random() < 0.25), chosen.randrange(99)) for _ in range(40)]
    with _real() as location:
        expected = _answers(location, steps)
    with _model() as location:
        assert _answers(location, steps) == expected
    assert "Fenced" in expected or seed > 3, "the steps never meet a fenced writer"


@pytest.mark.parametrize("world", [_real, _model], ids=["slatedb", "model"])
def test_a_writer_is_fenced_even_after_its_place_in_the_log_was_collected(
    world: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was frozen for hours: the files of the WAL that would have stopped it are deleted."""
    monkeypatch.setattr(store, "GARBAGE_AGE_MS", 0)
    steps: list[Step] = [("open", 0, 0), ("write", 0, 1), ("open", 1, 0)]
    steps += [("write", 1, value) for value in range(2, 6)]
    steps += [("flush", 1, 0), ("compact", 1, 0), ("write", 1, 8), ("compact", 1, 0), ("write", 0, 9), ("read", 1, 0)]
    with world() as location:
        answers = _answers(location, steps)
    assert answers[-2] == "Fenced"
    assert b"9" not in {value for _, value in answers[-1][0]}  # type: ignore[index]
