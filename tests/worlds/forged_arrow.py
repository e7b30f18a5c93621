"""Arrow IPC streams and Parquet files that nobody honest would write: forged offsets, and bombs of a few kilobytes."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FAR = 2_000_000
"""An offset far outside of what is sent."""


def stream(*columns: Any, compression: str | None = None) -> bytes:
    """A stream of one batch, of columns that are not validated."""
    batch = pa.RecordBatch.from_arrays(list(columns), names=[f"c{number}" for number in range(len(columns))])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new) and data.count(old) == 1, data.count(old)
    return data.replace(old, new)


def ints(*values: int, form: str = "i") -> bytes:
    return struct.pack(f"<{len(values)}{form}", *values)


def _offsets(data: bytes) -> bytes:
    return patched(data, ints(0, 7, 8, 9), ints(0, FAR, 8, 9))


def _nested(make: Callable[[Any], Any]) -> bytes:
    return _offsets(stream(make(pa.array([b"aaaaaaa", b"b", b"c"]))))


def _view(null: bool) -> bytes:
    values = pa.array([b"a" * 20, None if null else b"b" * 20, b"c" * 20], pa.binary_view())
    if null:
        values = pa.Array.from_buffers(
            values.type, 3, [pa.py_buffer(b"\x05"), _changed(values.buffers()[1], 16, FAR), values.buffers()[2]]
        )
        return stream(values)
    return patched(stream(values), struct.pack("<i4s", 20, b"bbbb"), struct.pack("<i4s", FAR, b"bbbb"))


def _changed(buffer: Any, at: int, value: int) -> Any:
    data = bytearray(buffer.to_pybytes())
    struct.pack_into("<i4sii", data, at, value, b"bbbb", 0, 0)
    return pa.py_buffer(bytes(data))


def _int32(*values: int) -> Any:
    return pa.array(values, pa.int32())


def _dictionary_index() -> bytes:
    values = pa.array(["x", "y"])
    return stream(pa.DictionaryArray.from_arrays(pa.array([0, FAR, 1], pa.int32()), values, safe=False))


def forged_streams() -> dict[str, bytes]:
    """Each is a stream that Arrow reads without a word, and that reads foreign memory or is no text when used."""
    plain = pa.array([b"aaaaaaa", b"b", b"c"])
    hidden = pa.array([b"aaaaaaa", None, b"c"])
    return {
        "offsets": _offsets(stream(plain)),
        "offsets of a null": patched(stream(hidden), ints(0, 7, 7, 8), ints(0, FAR, 7, 8)),
        "large offsets": patched(
            stream(plain.cast(pa.large_binary())), ints(0, 7, 8, 9, form="q"), ints(0, FAR, 8, 9, form="q")
        ),
        "in a list": _nested(lambda values: pa.ListArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), values)),
        "in a struct": _nested(lambda values: pa.StructArray.from_arrays([values], ["a"])),
        "in a map": _nested(lambda v: pa.MapArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array([1, 2, 3]), v)),
        "in a fixed list": _nested(lambda values: pa.FixedSizeListArray.from_arrays(values, 3)),
        "in a dictionary": _nested(lambda v: pa.DictionaryArray.from_arrays(pa.array([2, 1, 0], pa.int8()), v)),
        "list": patched(stream(pa.array([[1] * 7, [2], [3]])), ints(0, 7, 8, 9), ints(0, FAR, 8, 9)),
        "dictionary index": _dictionary_index(),
        "view": _view(null=False),
        "view of a null": _view(null=True),
        "run ends": patched(
            stream(pa.RunEndEncodedArray.from_arrays(_int32(5, 7, 9), plain)), ints(5, 7, 9), ints(5, 7, 8)
        ),
        "in run ends": _nested(lambda values: pa.RunEndEncodedArray.from_arrays(_int32(1, 2, 3), values)),
        "list view": patched(
            stream(pa.array([[1] * 7, [2], [3]], pa.list_view(pa.int64()))), ints(7, 1, 1), ints(FAR, 1, 1)
        ),
        "no UTF-8": patched(stream(pa.array(["qwerty"])), b"qwerty", b"qwert\xff"),
        "no UTF-8 in a dictionary": patched(
            stream(pa.array(["qwerty"]).dictionary_encode()), b"qwerty", b"qwert\xff"
        ),
    }  # fmt: skip


def stream_bombs() -> dict[str, bytes]:
    """Small streams that take over 128 MiB once they are decoded."""
    long, many = "x" * (1 << 20), pa.array(np.zeros(1000, np.int32))
    views = pa.array([long], pa.string_view())
    view = pa.Array.from_buffers(
        pa.string_view(), 1000, [None, pa.py_buffer(views.buffers()[1].to_pybytes() * 1000), views.buffers()[2]]
    )
    zeros = pa.array(np.zeros((1 << 24) + 1))
    return {
        "zstd": stream(zeros, compression="zstd"),
        "lz4": stream(zeros, compression="lz4"),
        "dictionary": stream(pa.DictionaryArray.from_arrays(many, pa.array([long]))),
        "dictionary in a list": stream(
            pa.ListArray.from_arrays(
                pa.array([0, 1000], pa.int32()), pa.DictionaryArray.from_arrays(many, pa.array([long]))
            )
        ),
        "views": stream(view),
        "nulls": stream(pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None])),
        "empty objects": stream(pa.Array.from_buffers(pa.struct([]), (1 << 31) - 1, [None], children=[])),
        "run ends": stream(pa.RunEndEncodedArray.from_arrays(pa.array([(1 << 31) - 1], pa.int64()), pa.array([long]))),
    }


def parquet(column: Any, groups: int = 1, **options: Any) -> bytes:
    table, sink = pa.table({"a": column}), io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, compression="zstd", **options) as writer:
        for _ in range(groups):
            writer.write_table(table, row_group_size=1 << 30)
    return sink.getvalue()


def _texts() -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array(["x" * (1 << 20)]))


def _zeros() -> Any:
    return pa.array(np.zeros((1 << 24) + 1))


PARQUET_BOMBS: dict[str, Callable[[], bytes]] = {
    "a text in many rows": lambda: parquet(_texts()),
    "a text in a list": lambda: parquet(pa.array([["x" * 100_000] * 1_400])),
    "run lengths": lambda: parquet(_zeros()),
    "a list of run lengths": lambda: parquet(
        pa.ListArray.from_arrays(pa.array([0, (1 << 24) + 1], pa.int32()), _zeros())
    ),
    "zstd": lambda: parquet(_zeros(), use_dictionary=False),
    "zstd with a false footer": lambda: _false_footer(parquet(_zeros(), use_dictionary=False)),
    "nulls": lambda: parquet(pa.nulls((1 << 27) + 1)),
    "fixed width": lambda: parquet(pa.array([b"x" * (1 << 20)] * 140, pa.binary(1 << 20))),
    "prefixes": lambda: parquet(
        pa.array(["x" * 100_000] * 1_400), use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"}
    ),
}
"""Files of a few kilobytes that take over 128 MiB once they are decoded."""


def _false_footer(data: bytes) -> bytes:
    """With the sizes in the footer made small. A varint may have zeros to its left, so its length can stay."""
    meta = pq.read_metadata(io.BytesIO(data))
    group = meta.row_group(0)
    for size in {group.total_byte_size, group.column(0).total_uncompressed_size}:
        told = _varint(2 * size)
        assert told in data
        data = data.replace(told, bytes([0x90, *[0x80] * (len(told) - 2), 0]))
    assert pq.read_metadata(io.BytesIO(data)).row_group(0).total_byte_size < 100
    return data


def _varint(value: int) -> bytes:
    parts: Sequence[int] = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(part | 0x80 for part in parts[:-1]), parts[-1]])
