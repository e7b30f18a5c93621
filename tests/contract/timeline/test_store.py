"""The store gives the same rows wherever SlateDB keeps them: in the write-ahead log, in one sorted table (SST),
in many, merged by compaction, and after the database was opened again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.core.errors import Internal
from catalog.timeline.log.slate_bindings import bindings, slate, wait
from catalog.timeline.log.store import Store, StoreLocation, StoreReader, StoreWriter

BATCHES, PER_BATCH = 6, 40
LAYOUTS = ("wal", "one sst", "many ssts", "compacted", "compacted, then written to")
RANGES = ((0, 1 << 40), (10, 11), (3, 200), (5, 5), (1 << 30, 1 << 40))


def _key(number: int) -> bytes:
    return b"k/" + number.to_bytes(8, "big")


def _value(number: int) -> bytes:
    return f"value {number} ".encode() * (number % 50 + 1)


def _flush_memtable(writer: StoreWriter) -> None:
    """What SlateDB does by itself when its memtable is full: it becomes an SST."""
    options = slate.FlushOptions(flush_type=slate.FlushType.MEM_TABLE)
    writer._wait(writer._handle.flush_with_options(options))


def _write(writer: StoreWriter, layout: str) -> tuple[StoreWriter, dict[bytes, bytes]]:
    """The writer to go on with, and the rows that were written: some are replaced, some are deleted."""
    rows = dict[bytes, bytes]()
    for batch in range(BATCHES):
        puts = {_key(number): _value(number) for number in range(batch, BATCHES * PER_BATCH, BATCHES)}
        gone = [_key(batch - 1)] if batch else []
        writer.write(puts.items(), gone)
        rows = {key: value for key, value in (rows | puts).items() if key not in gone}
        if layout == "many ssts" or layout.startswith("compacted"):
            _flush_memtable(writer)
    if layout == "one sst":
        _flush_memtable(writer)
    if layout.startswith("compacted"):
        writer = writer.compact()
    if layout.endswith("written to"):
        writer.write([(_key(7), b"anew")], [_key(8)])
        rows = {key: value for key, value in (rows | {_key(7): b"anew"}).items() if key != _key(8)}
    return writer, dict(sorted(rows.items()))


def _opened(database: str, layout: str) -> Iterator[tuple[Store, dict[bytes, bytes]]]:
    place = StoreLocation.in_memory()
    writer, rows = _write(StoreWriter.open(place), layout)
    if database == "writer":
        yield writer, rows
        writer.close()
        return
    writer.close()
    if database == "reopened writer":
        again = StoreWriter.open(place)
        yield again, rows
        again.close()
        return
    reader = StoreReader.open(place)
    yield reader, rows
    reader.close()


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=("writer", "reopened writer", "reader"))
def stored(request: pytest.FixtureRequest, layout: str) -> Iterator[tuple[Store, dict[bytes, bytes]]]:
    yield from _opened(request.param, layout)


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@pytest.mark.parametrize("limit", [None, 0, 1, 2, 39, 10_000])
def test_a_scan_gives_the_rows_of_its_range(
    stored: tuple[Store, dict[bytes, bytes]], limit: int | None, descending: bool
) -> None:
    database, rows = stored
    for first, behind in RANGES:
        start, end = _key(first), _key(behind)
        wanted = [(key, value) for key, value in rows.items() if start <= key < end]
        wanted = wanted[::-1] if descending else wanted
        found = list(database.scan(start, end, limit=limit, descending=descending))
        assert found == (wanted if limit is None else wanted[:limit])


def test_a_get_gives_the_value_of_its_key(stored: tuple[Store, dict[bytes, bytes]]) -> None:
    database, rows = stored
    keys = [_key(number) for number in range(BATCHES * PER_BATCH + 3)]
    assert database.get_many(keys) == [rows.get(key) for key in keys]
    assert [database.get(key) for key in keys[:12]] == [rows.get(key) for key in keys[:12]]


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
def test_a_reader_reads_on_across_flush_and_compaction(descending: bool) -> None:
    """The API's functions keep their reader open while the sequencer compacts."""
    place = StoreLocation.in_memory()
    writer, rows = _write(StoreWriter.open(place), "wal")
    reader = StoreReader.open(place, poll_ms=100)
    wanted = list(rows.items())[::-1] if descending else list(rows.items())
    for number, step in enumerate((_flush_memtable, StoreWriter.compact, _flush_memtable)):
        writer = step(writer) or writer
        seen = b"seen/%d" % number
        writer.write([(seen, b"")])
        while reader.get(seen) is None:  # until it has read the manifest that the step wrote
            assert reader.get(_key(10)) == rows[_key(10)]
        for limit in (None, 1, 7):
            found = list(reader.scan(_key(0), _key(1 << 40), limit=limit, descending=descending))
            assert found == wanted[:limit]
    reader.close()
    writer.close()


def test_a_panic_of_the_store_is_an_internal_error() -> None:
    """So that a function answers with it and a queue keeps its message."""

    async def panic() -> None:
        raise bindings().InternalError("assertion failed")

    with pytest.raises(Internal, match="assertion failed"):
        wait(panic(), 1)
