"""Bodies read in a process of its own: the same rows and reasons as here; a body that ends it ends nothing else."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.core.errors import Internal, Unavailable
from catalog.formats import FileRejected, FormatLimits, apart, read_arrow_stream, read_parquet_table
from catalog.formats.apart import ApartReader
from tests.waiting import wait_until
from tests.worlds import bad_reader
from tests.worlds.hostile_files import hostile_files, hostile_streams

LIMITS = FormatLimits(decompressed_bytes=128 << 20, in_memory_bytes=128 << 20)
GOOD = pa.table(
    {"a": [1, None, 3], "b": ["x", "y", None], "c": [[1.5], [], None], "d": [{"e": b"\0"}, None, {"e": b""}]}
)


def stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


@pytest.fixture(scope="module")
def reader() -> Iterator[ApartReader]:
    reader = ApartReader()
    yield reader
    reader.close()


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApartReader]:
    monkeypatch.setattr(apart, "PROGRAM", bad_reader.PROGRAM)
    reader = ApartReader()
    yield reader
    reader.close()


def outcome(read: Any, *arguments: Any) -> Any:
    try:
        table = read(*arguments)
    except FileRejected as error:
        return error.message, error.position
    assert table.schema.metadata is None or isinstance(table.schema.metadata, dict)
    return table


def test_rows_and_reasons_are_those_of_this_process(reader: ApartReader) -> None:
    cases = [("arrow", data) for data in hostile_streams().values()]
    cases += [("parquet", data) for name, data in hostile_files().values() if name.endswith(".parquet")]
    cases += [("arrow", stream(GOOD)), ("parquet", parquet(GOOD)), ("arrow", stream(GOOD.slice(0, 0)))]
    assert len(cases) > 90
    here: dict[str, Any] = {"arrow": read_arrow_stream, "parquet": read_parquet_table}
    pid = None
    for kind, data in cases:
        theirs, ours = outcome(reader.read, kind, data, LIMITS), outcome(here[kind], data, LIMITS)
        if isinstance(ours, pa.Table):
            assert isinstance(theirs, pa.Table) and theirs.equals(ours, check_metadata=True), kind
        else:
            assert theirs == ours
        assert pid in (None, reader.pid()), "the reader was replaced"
        pid = reader.pid()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"crash", r"ended its reader \(SIGSEGV\)"),
        (b"exit", r"ended its reader \(exit status 3\)"),
        (b"memory", "more than 512 MiB of memory"),
        (b"forge rows", "cannot be read"),
        (b"forge no error", "cannot be read"),
        (b"forge frame", "cannot be read"),
    ],
)
def test_a_body_that_ends_its_reader_is_rejected_and_the_next_is_read(
    bad: ApartReader, body: bytes, reason: str
) -> None:
    assert bad.read("arrow", stream(GOOD), LIMITS).equals(GOOD)
    before = bad.pid()
    with pytest.raises(FileRejected, match=reason):
        bad.read("arrow", body, LIMITS)
    assert bad.read("parquet", parquet(GOOD), LIMITS).equals(GOOD)
    assert bad.pid() != before and not Path(f"/proc/{before}").exists()


def test_a_body_that_is_never_done_is_rejected_at_the_deadline(bad: ApartReader) -> None:
    bad._seconds = 0.2
    with pytest.raises(FileRejected, match=r"longer than 0\.2 s"):
        bad.read("arrow", b"loop", LIMITS)
    bad._seconds = 60.0
    assert bad.read("arrow", stream(GOOD), LIMITS).equals(GOOD)


def test_a_defect_is_ours_and_not_the_bodys(bad: ApartReader) -> None:
    with pytest.raises(Internal, match="defect"):
        bad.read("arrow", b"defect", LIMITS)
    assert bad.read("arrow", stream(GOOD), LIMITS).equals(GOOD)


def test_it_has_nothing_to_take_and_writes_nothing(bad: ApartReader, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_LAMBDA_RUNTIME_API", "STRANDLINE_BUCKET"):
        monkeypatch.setenv(name, "secret")
    bad.read("arrow", stream(GOOD), LIMITS)
    process = Path(f"/proc/{bad.pid()}")
    assert "secret" not in (process / "environ").read_text()
    lines = (process / "limits").read_text().splitlines()[1:]
    limits = {line[:26].strip(): line[26:].split() for line in lines}
    assert limits["Max data size"][:2] == [str(apart.MEMORY_BYTES)] * 2
    assert limits["Max file size"][:2] == limits["Max core file size"][:2] == ["0", "0"]
    with pytest.raises(Internal):  # the file is too large for a process that may write none
        bad.read("arrow", b"file", LIMITS)


def test_one_that_died_between_two_bodies_is_nobodys_error(reader: ApartReader) -> None:
    reader.read("arrow", stream(GOOD), LIMITS)
    pid = reader.pid()
    assert pid is not None and reader._process is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: reader._process is not None and not reader._process.usable, "the reader to end")
    assert reader.read("arrow", stream(GOOD), LIMITS).equals(GOOD)


def test_one_that_cannot_start_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "PROGRAM", "tests.worlds.no_such_program")
    with pytest.raises(Unavailable, match="did not start"):
        ApartReader().read("arrow", stream(GOOD), LIMITS)
