"""What a process of its own adds to reading a small Arrow body of `/rows`, against reading it in the function's own."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median
from typing import Any

import pyarrow as pa

from bench.harness import Figure
from catalog.formats import ApartReader, FormatLimits, read_arrow_stream

TURNS = 500
LIMITS = FormatLimits(decompressed_bytes=128 << 20, in_memory_bytes=128 << 20)
ROWS = pa.table(
    {"id": list(range(25)), "station": [f"station {n}" for n in range(25)], "metres": [n / 7 for n in range(25)]}
)


def body_reader_figures() -> Iterator[Figure]:
    """The added time for 25 rows; turns alternate."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    body = sink.getvalue()
    with closing(ApartReader()) as reader:
        began = time.perf_counter()
        reader.read("arrow", body, LIMITS)
        start = time.perf_counter() - began
        own, apart = _alternating(lambda: read_arrow_stream(body, LIMITS), lambda: reader.read("arrow", body, LIMITS))
    detail: dict[str, object] = {
        "in_process_p50_ms": round(median(own) * 1000, 3),
        "apart_p50_ms": round(median(apart) * 1000, 3),
        "first_body_s": round(start, 2),
        "bodies": TURNS,
    }
    added = [(b - a) * 1000 for a, b in zip(own, apart, strict=True)]
    yield Figure("small Arrow body read apart, added", median(added), "ms", 5, detail=detail, samples=added)


def _alternating(*reads: Callable[[], Any]) -> tuple[list[float], ...]:
    samples: tuple[list[float], ...] = tuple([] for _ in reads)
    for turn in range(-20, TURNS):
        for number, read in enumerate(reads):
            began = time.perf_counter()
            assert read().num_rows == ROWS.num_rows
            if turn >= 0:
                samples[number].append(time.perf_counter() - began)
    return samples
