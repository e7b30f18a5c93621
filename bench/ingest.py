"""Ingestion: throughput from JSON lines to Parquet, peak memory, and the time from landed file to published leaf."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from bench.children import resident
from bench.harness import Figure, p50, suite
from catalog import Settings, load_settings, open_lake
from catalog.formats import FormatLimits, read_rows
from catalog.ingest import Ingest, LandedFile
from catalog.ingest.commit import _checked
from catalog.ingest.landed_object import DigestingStream
from catalog.tables import as_schema
from catalog.tables.file_writer import encode
from infra.local.cloud import EmbeddedCloud
from infra.local.server import ApiServer

COLUMNS: dict[str, Any] = {
    "id": "long", "station": "string", "at": "string", "metres": "double", "ok": "boolean", "note": "string",
    "count": "long", "code": "string", "temperature": "double", "region": "string",
}  # fmt: skip
_KEY = "landing/bronze/big/big.jsonl"
MB = 1 << 20


def lines(count: int, first: int = 0) -> bytes:
    """Distinct rows of ten columns, about 230 bytes each."""
    rng = random.Random(first)
    return b"".join(
        b'{"id": %d, "station": "station-%d", "at": "2026-01-%02dT%02d:00:00", "metres": %.6f, "ok": %s, '
        b'"note": "spring tide at the outer pier, gauge %d", "count": %d, "code": "%012d", "temperature": %.4f, '
        b'"region": "%s"}\n'
        % (
            n, n % 500, n % 28 + 1, n % 24, rng.random() * 10, b"true" if n % 3 else b"false",
            n % 1000, n % 77, n, rng.gauss(10, 3), (b"eu", b"us", b"as")[n % 3],
        )
        for n in range(first, first + count)
    )  # fmt: skip


@suite("ingest")
def run(quick: bool) -> Iterator[Figure]:
    yield from _throughput(50_000 if quick else 200_000)
    yield _memory((64 if quick else 1024) << 20)
    yield from _cloud(5 if quick else 15, 50 if quick else 200)


def _throughput(count: int) -> Iterator[Figure]:
    """From bytes in memory to Parquet in memory: CPU time on one core, the minimum of several runs, in turn.

    Ours digests, parses, checks against the table and encodes with zstd and content-defined chunking; the peer is
    pyarrow.json and write_table with their defaults, on one thread.
    """
    data, schema = lines(count), as_schema(COLUMNS)
    hint = pa.schema([(name, ARROW_TYPES[type_]) for name, type_ in COLUMNS.items()])

    def ours() -> None:
        stream = DigestingStream(io.BytesIO(data), nullcontext)
        rows = _checked(schema, list(read_rows(stream, "a.jsonl", FormatLimits(), hint)), 0, "t")
        stream.digest()
        encode(rows, "zstd")

    def peer() -> None:
        table = pj.read_json(io.BytesIO(data), pj.ReadOptions(use_threads=False))
        pq.write_table(table, pa.BufferOutputStream())

    before = pa.cpu_count()
    pa.set_cpu_count(1)
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(7):
        times["ours"].append(_cpu(ours))
        times["peer"].append(_cpu(peer))
    pa.set_cpu_count(before)
    best = {name: min(seconds) for name, seconds in times.items()}
    detail: dict[str, object] = {"rows": count, "bytes": len(data), "cpu_s": best}
    yield Figure(
        "JSON lines to Parquet, per core", count / best["ours"], "rows/s", 100_000, better="higher", detail=detail
    )
    yield Figure("the same beside pyarrow.json + write_table", best["peer"] / best["ours"], "x", 0.8, better="higher")


ARROW_TYPES = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}


def _cpu(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


class GeneratedObject:
    """An S3 client with one object whose bytes are generated as they are read, so that nothing holds them in memory.

    All other requests go to the real client.
    """

    def __init__(self, s3: Any, size: int) -> None:
        self._s3, self.size = s3, size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._s3, name)

    def get_object(self, **parameters: Any) -> Any:
        if parameters["Key"] != _KEY:
            return self._s3.get_object(**parameters)
        body = _Body(self.size)
        return {"Body": body, "ContentLength": self.size, "LastModified": datetime.now(UTC), "ETag": '"x"'}


class _Body:
    def __init__(self, size: int) -> None:
        self._remaining, self._next, self._buffer = size, 0, b""

    def read(self, size: int | None = None) -> bytes:
        size = min(self._remaining, size if size is not None else self._remaining)
        while len(self._buffer) < size:
            self._buffer += lines(10_000, self._next)
            self._next += 10_000
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        self._remaining -= size
        if not self._remaining and data:  # the object ends with a complete line
            data = data[: data.rfind(b"\n") + 1].ljust(len(data), b"\n")
        return data

    def close(self) -> None:
        return None


def _memory(size: int) -> Figure:
    """Peak resident memory of a child process that ingests over a real endpoint, as the kernel counts it."""
    server = ApiServer()
    server.start()
    try:
        person = server.endpoint.client("s3", "person")
        person.create_bucket(Bucket="lake")
        glue = server.endpoint.client("glue", "person")
        glue.create_database(DatabaseInput={"Name": "bronze", "LocationUri": "s3://lake/tables/bronze"})
        environment = {**os.environ, **server.endpoint.environment("function.ingest"), "STRANDLINE_BUCKET": "lake"}
        child = subprocess.run(
            [sys.executable, "-m", "bench.ingest", str(size)], env=environment, capture_output=True, check=True
        )
    finally:
        server.stop()
    result = json.loads(child.stdout.splitlines()[-1])
    name = f"peak memory for a JSON-lines object of {size >> 20} MB"
    return Figure(name, result.pop("peak_mb"), "MB", 700, detail=result)


def _child(size: int) -> None:
    lake = open_lake(load_settings())
    before = resident("VmHWM") / MB
    began = time.perf_counter()
    (outcome,) = Ingest(GeneratedObject(lake.s3, size), lake.tables, lake.settings.bucket).run(
        [LandedFile("lake", _KEY)]
    )
    seconds = time.perf_counter() - began
    peak = resident("VmHWM") / MB
    result = {"peak_mb": peak, "imports_mb": before, "status": outcome.status, "rows": outcome.rows, "seconds": seconds}
    if outcome.error is not None:
        raise outcome.error
    print(json.dumps(result))


def _cloud(drops: int, many: int) -> Iterator[Figure]:
    with EmbeddedCloud() as cloud:
        os.environ.update(cloud.environment("person"))
        lake = open_lake(load_settings())
        s3, settings = lake.s3, lake.settings
        rows, first = 4500, 0
        for table in ("tides", "many"):  # the first file creates the table and warms the functions
            s3.put_object(Bucket=settings.bucket, Key=f"landing/bronze/{table}/first.jsonl", Body=lines(100, -100))
        cloud.wait_until_idle(120)
        waits = []
        for number in range(drops):
            body = lines(rows, first)
            first += rows
            size = _size(s3, settings)
            began = time.perf_counter()
            s3.put_object(Bucket=settings.bucket, Key=f"landing/bronze/tides/{number}.jsonl", Body=body)
            while _size(s3, settings) == size:
                time.sleep(0.01)
            waits.append(time.perf_counter() - began)
            cloud.wait_until_idle(60)
        detail: dict[str, object] = {"bytes": len(lines(rows)), "samples": waits}
        yield Figure("drop to published proof, 1 MB of JSON lines, p50", p50(waits), "s", 1.5, detail=detail)

        bodies = [lines(100, 10_000_000 + 100 * n) for n in range(many)]
        began = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            put = lambda n: s3.put_object(  # noqa: E731
                Bucket=settings.bucket, Key=f"landing/bronze/many/{n}.jsonl", Body=bodies[n]
            )
            list(pool.map(put, range(many)))
        cloud.wait_until_idle(300)
        seconds = time.perf_counter() - began
        row_count, commits = lake.tables.scan("bronze.many").num_rows, len(lake.tables.history("bronze.many"))
        assert row_count == 100 * (many + 1), row_count
        _, leaf = lake.timeline.find(lake.tables.history("bronze.many")[0].snapshot_id)
        assert leaf.table == "bronze.many"
        detail = {"seconds": seconds, "commits": commits}
        yield Figure(
            f"{many} files at once, all sequenced", many / seconds, "files/s", 20, better="higher", detail=detail
        )


def _size(s3: Any, settings: Settings) -> int:
    note = s3.get_object(Bucket=settings.bucket, Key="timeline/checkpoint")["Body"].read()
    return int(note.splitlines()[1])


if __name__ == "__main__":
    _child(int(sys.argv[1]))
