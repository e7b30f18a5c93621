"""Arrow and Parquet from strangers: what is forged is refused before it is used, and a bomb before it unfolds."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.changes.serialization import from_ipc
from catalog.core.errors import Invalid, Unverified
from catalog.formats.arrow import read_arrow_stream
from catalog.formats.limits import FormatLimits
from catalog.formats.reader import read_rows as read_file
from functions.api.row_formats import ARROW, PARQUET, read_rows
from strandline.connection import read_arrow
from strandline.problems import Problem
from tests.worlds.forged_arrow import PARQUET_BOMBS, forged_streams, parquet, stream, stream_bombs

FORGED, STREAM_BOMBS = forged_streams(), stream_bombs()
SMALL = FormatLimits(decompressed_bytes=128 << 20, in_memory_bytes=128 << 20)


@contextmanager
def most_memory() -> Iterator[Callable[[], int]]:
    """By how many bytes this process grew at most within the block. Not by Arrow's count: its readers of streams use a
    pool that Python cannot exchange."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    yield lambda: _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_stream_is_refused_by_the_api(name: str) -> None:
    with pytest.raises(Invalid):
        read_rows(ARROW, FORGED[name])


@pytest.mark.parametrize("name", sorted(FORGED.keys() - {"view of a null"}))
def test_a_forged_answer_is_refused_by_the_client(name: str) -> None:
    with pytest.raises(Problem, match="not valid Arrow"):
        read_arrow(httpx.Response(200, content=FORGED[name]))


@pytest.mark.parametrize("name", STREAM_BOMBS)
def test_a_stream_that_unfolds_is_refused_before_it_does(name: str) -> None:
    assert len(STREAM_BOMBS[name]) < 8 << 20
    with pytest.raises(Invalid, match=r"134217728|no type for"):
        read_rows(ARROW, STREAM_BOMBS[name])
    with most_memory() as peak, pytest.raises(Invalid, match=r"134217728|no type for"):
        read_arrow_stream(STREAM_BOMBS[name], SMALL)  # in this process, whose memory is measured
    assert peak() < 32 << 20


@pytest.mark.parametrize("name", PARQUET_BOMBS)
def test_a_parquet_file_that_unfolds_is_refused_before_it_does(name: str) -> None:
    bomb = PARQUET_BOMBS[name]()
    assert len(bomb) < 1 << 19
    with pytest.raises(Invalid, match="limit of 134217728"):
        read_rows(PARQUET, bomb)
    with most_memory() as peak, pytest.raises(Invalid, match="limit of 134217728"):
        for _ in read_file(io.BytesIO(bomb), "a.parquet", SMALL):
            pass
    assert peak() < 320 << 20


def test_text_that_is_no_utf8_in_parquet_is_refused() -> None:
    data = parquet(pa.array(["qwerty"]), use_dictionary=False).replace(b"qwerty", b"qwert\xff")
    with pytest.raises(Invalid, match="UTF8"):
        read_rows(PARQUET, data)


@pytest.mark.parametrize("number", ["0.12345678901234567890123", "1e400", "1e-400", "9007199254740993.5"])
def test_a_json_number_that_a_double_cannot_hold_is_refused(number: str) -> None:
    with pytest.raises(Invalid, match="a double cannot hold"):
        read_rows("application/json", b'{"rows": [{"a": %s}]}' % number.encode())


def test_a_feed_that_unfolds_or_is_forged_is_refused() -> None:
    with pytest.raises(Unverified, match="not a change feed"):
        from_ipc(STREAM_BOMBS["nulls"])
    with pytest.raises(Unverified, match="not a change feed"):
        from_ipc(FORGED["in a dictionary"])


def test_delta_dictionaries_are_refused() -> None:
    sink, kind = io.BytesIO(), pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(list(texts)))], names=["a"])
        for texts in ("a", "ab")
    ]
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, pa.schema([("a", kind)]), options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    with pytest.raises(Invalid, match="delta dictionaries"):
        read_rows(ARROW, sink.getvalue())


ROWS = pa.table(
    {
        "text": pa.array(["a" * 30, None, "é", "a" * 30]),
        "coded": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "view": pa.array(["a" * 30, None, "c", ""], pa.string_view()),
        "list": pa.array([["p", "q"], None, [], ["p", None]]),
        "map": pa.array([[("k", "v")], None, [], [("k", None)]], pa.map_(pa.string(), pa.string())),
        "object": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}, {"a": 2, "b": []}]),
        "fixed": pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
        "bytes": pa.array([b"\x00", None, b"", b"\xff"]),
        "money": pa.array([Decimal("1.25"), None, Decimal("-3.50"), Decimal("0.00")]),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None] * 2, pa.timestamp("us", "UTC")),
        "flag": pa.array([True, None, False, True]),
        "nothing": pa.nulls(4),
    }
)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_honest_streams_keep_every_value(compression: str | None) -> None:
    columns = [column.combine_chunks() for column in ROWS.columns]
    rows = read_rows(ARROW, stream(*columns, compression=compression))
    assert rows.to_pydict() == ROWS.rename_columns(rows.column_names).to_pydict()


@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"row_group_size": 3}]
)
@pytest.mark.parametrize("batch_bytes", [1, 64 << 20])
def test_honest_parquet_keeps_every_value(
    options: dict[str, Any], batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where every text counts as one that may grow, and each row is a piece of its own."""
    monkeypatch.setattr("catalog.formats.parquet.BATCH_BYTES", batch_bytes, raising=False)
    rows = ROWS.drop_columns(["nothing"])
    if not options.get("use_dictionary", True):
        rows = rows.drop_columns(["coded"])
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd", **options)
    found = read_rows(PARQUET, sink.getvalue())
    assert found.to_pydict() == rows.to_pydict()
    # A stream between processes does not keep what Parquet calls the parts of a map.
    assert [str(field.type) for field in found.schema] == [
        str(field.type).removesuffix("_view").replace(" ('map')", "") for field in pq.read_table(sink).schema
    ]


def test_a_parquet_file_with_any_bit_changed_is_read_or_refused() -> None:
    """pyarrow's own view of some such footers ends the process."""
    data = parquet(pa.array(["x", None]))
    for at in range(len(data)):
        for bit in (0, 3, 6):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                read_rows(PARQUET, bytes(changed))
            except Invalid:
                continue
