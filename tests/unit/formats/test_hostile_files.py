"""Whatever a file holds, the door gives rows or refuses it with a reason, and within its bounds."""

from __future__ import annotations

import io
import resource
from contextlib import suppress

import pyarrow as pa
import pytest

from catalog.formats import FileRejected, FormatLimits, dimensions, is_known, media_type, read_arrow_stream, read_rows
from tests.worlds.hostile_files import hostile_files, hostile_streams

FILES, STREAMS = hostile_files(), hostile_streams()
LIMITS = FormatLimits(decompressed_bytes=256 << 20, in_memory_bytes=64 << 20)


def pass_the_door(name: str, data: bytes) -> int | str:
    """How many rows the file has, or why it is refused. A defect raises anything else, or does not end."""
    try:
        if not is_known(name):
            kind = media_type(name, data)
            return 0 if kind is None else sum(map(bool, dimensions(kind, data)))
        rows = 0
        for batch in read_rows(io.BytesIO(data), name, LIMITS):
            batch.validate(full=True)
            rows += batch.num_rows
        return rows
    except FileRejected as error:
        return error.message


def test_there_are_enough_of_them() -> None:
    assert len(FILES) + len(STREAMS) >= 300


@pytest.mark.parametrize("label", FILES)
def test_a_file_is_rows_or_refused(label: str) -> None:
    refused = pass_the_door(*FILES[label])
    assert refused != "" and len(str(refused)) < 2000


@pytest.mark.parametrize("label", STREAMS)
def test_a_stream_is_rows_or_refused(label: str) -> None:
    with suppress(FileRejected):
        read_arrow_stream(STREAMS[label], LIMITS).validate(full=True)


@pytest.mark.parametrize(
    "data",
    [
        b"".join(b'{"k%d":1}\n' % n for n in range(12_000)),
        b'{"a":[' + b",".join(b'{"k%d":1}' % n for n in range(12_000)) + b"]}\n",
        b'{"a":[' + b",".join(b'{"k":{"k%d":1}}' % n for n in range(12_000)) + b"]}\n",
    ],
    ids=["rows", "objects of a row", "objects of objects"],
)
@pytest.mark.parametrize("name", ["f.jsonl", "f.json"])
def test_sparse_json_takes_no_more_than_its_bound(name: str, data: bytes) -> None:
    """Twelve thousand keys in as many objects are 1.1 GB of numbers, and were all allocated."""
    before = pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    peak = pool.max_memory()
    assert isinstance(pass_the_door(name, data), str)
    grown = (pool.max_memory() or 0) - max(peak or 0, before)
    assert grown < 400 << 20, f"{grown >> 20} MiB; {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB"


def test_files_that_do_not_decompress_leave_no_memory_behind() -> None:
    """Each left four megabytes: a function that lives for hours ended by a hundred of them."""
    cases = [case for label, case in FILES.items() if case[0].endswith((".gz", ".zst")) and "cut off" in label]
    assert len(cases) >= 10

    def private_bytes() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))

    for case in cases:
        pass_the_door(*case)
    before = private_bytes()
    for _ in range(10):
        for case in cases:
            pass_the_door(*case)
    assert private_bytes() - before < 64 << 20
