"""Ingestion's figures: how fast JSON lines become Parquet, in how much memory, and how soon a file is proven."""

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
from catalog.ingest.appends import _checked
from catalog.ingest.flow import Ingest
from catalog.ingest.objects import DigestingStream
from catalog.lake import open_lake
from catalog.pipeline.formats import read_rows
from catalog.pipeline.landing import Landed
from catalog.pipeline.limits import Limits
from catalog.settings import Settings, load_settings
from catalog.tables.creation import as_schema
from catalog.tables.files import encode
from infra.local.cloud import EmbeddedCloud
from infra.local.server import ApiServer

COLUMNS: dict[str, Any] = {
    "id": "long", "station": "string", "at": "string", "metres": "double", "ok": "boolean", "note": "string",
    "count": "long", "code": "string", "temperature": "double", "region": "string",
}  # fmt: skip
_KEY = "landing/bronze/big/big.jsonl"
MB = 1 << 20


def lines(count: int, first: int = 0) -> bytes:
    """Rows of ten columns, about 230 bytes each, no two alike."""
    dice = random.Random(first)
    return b"".join(
        b'{"id": %d, "station": "station-%d", "at": "2026-01-%02dT%02d:00:00", "metres": %.6f, "ok": %s, '
        b'"note": "spring tide at the outer pier, gauge %d", "count": %d, "code": "%012d", "temperature": %.4f, '
        b'"region": "%s"}\n'
        % (
            n, n % 500, n % 28 + 1, n % 24, dice.random() * 10, b"true" if n % 3 else b"false",
            n % 1000, n % 77, n, dice.gauss(10, 3), (b"eu", b"us", b"as")[n % 3],
        )
        for n in range(first, first + count)
    )  # fmt: skip


@suite("ingest")
def run(quick: bool) -> Iterator[Figure]:
    yield from _throughput(50_000 if quick else 200_000)
    yield _memory((64 if quick else 1024) << 20)
    yield from _cloud(5 if quick else 15, 50 if quick else 200)


def _throughput(count: int) -> Iterator[Figure]:
    """One core, CPU time, best of several that take turns: the bytes in memory to Parquet in memory.

    Ours digests, parses, checks against the table and encodes with zstd and content-defined chunking; the peer is
    pyarrow.json and write_table with their defaults, but on one thread.
    """
    data, schema = lines(count), as_schema(COLUMNS)
    hint = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])

    def ours() -> None:
        stream = DigestingStream(io.BytesIO(data), nullcontext)
        rows = _checked(schema, list(read_rows(stream, "a.jsonl", Limits(), hint)), 0, "t")
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
    best = {name: min(found) for name, found in times.items()}
    detail: dict[str, object] = {"rows": count, "bytes": len(data), "cpu_s": best}
    yield Figure(
        "JSON lines to Parquet, per core", count / best["ours"], "rows/s", 100_000, better="higher", detail=detail
    )
    yield Figure("the same beside pyarrow.json + write_table", best["peer"] / best["ours"], "x", 0.8, better="higher")


kinds = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}


def _cpu(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


class MadeUp:
    """S3 as the function sees it, but for one object, whose bytes are made up as they are read: nobody holds them.

    Everything else, also every write, is the real client's.
    """

    def __init__(self, s3: Any, size: int) -> None:
        self._s3, self.size = s3, size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._s3, name)

    def get_object(self, **wanted: Any) -> Any:
        if wanted["Key"] != _KEY:
            return self._s3.get_object(**wanted)
        body = _Body(self.size)
        return {"Body": body, "ContentLength": self.size, "LastModified": datetime.now(UTC), "ETag": '"x"'}


class _Body:
    def __init__(self, size: int) -> None:
        self._left, self._next, self._rest = size, 0, b""

    def read(self, wanted: int | None = None) -> bytes:
        wanted = min(self._left, wanted if wanted is not None else self._left)
        while len(self._rest) < wanted:
            self._rest += lines(10_000, self._next)
            self._next += 10_000
        data, self._rest = self._rest[:wanted], self._rest[wanted:]
        self._left -= wanted
        if not self._left and data:  # the last line ends where the object does
            data = data[: data.rfind(b"\n") + 1].ljust(len(data), b"\n")
        return data

    def close(self) -> None:
        return None


def _memory(size: int) -> Figure:
    """In a process of its own, over a real endpoint; peak resident memory as the kernel counts it."""
    server = ApiServer()
    server.start()
    try:
        person = server.endpoint.client("s3", "person")
        person.create_bucket(Bucket="lake")
        glue = server.endpoint.client("glue", "person")
        glue.create_database(DatabaseInput={"Name": "bronze", "LocationUri": "s3://lake/tables/bronze"})
        environment = {**os.environ, **server.endpoint.environment("function.ingest"), "STRANDLINE_BUCKET": "lake"}
        done = subprocess.run(
            [sys.executable, "-m", "bench.ingest", str(size)], env=environment, capture_output=True, check=True
        )
    finally:
        server.stop()
    said = json.loads(done.stdout.splitlines()[-1])
    name = f"peak memory for a JSON-lines object of {size >> 20} MB"
    return Figure(name, said.pop("peak_mb"), "MB", 700, detail=said)


def _child(size: int) -> None:
    lake = open_lake(load_settings())
    before = resident("VmHWM") / MB
    began = time.perf_counter()
    (outcome,) = Ingest(MadeUp(lake.s3, size), lake.tables, lake.settings.bucket).run([Landed("lake", _KEY)])
    seconds = time.perf_counter() - began
    peak = resident("VmHWM") / MB
    said = {"peak_mb": peak, "imports_mb": before, "status": outcome.status, "rows": outcome.rows, "seconds": seconds}
    if outcome.error is not None:
        raise outcome.error
    print(json.dumps(said))


def _cloud(drops: int, many: int) -> Iterator[Figure]:
    with EmbeddedCloud() as cloud:
        os.environ.update(cloud.environment("person"))
        lake = open_lake(load_settings())
        s3, settings = lake.s3, lake.settings
        rows, first = 4500, 0
        for table in ("tides", "many"):  # the first drop makes the table and warms the functions
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
        found, commits = lake.tables.scan("bronze.many").num_rows, len(lake.tables.history("bronze.many"))
        assert found == 100 * (many + 1), found
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
