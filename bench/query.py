"""Queries against DuckDB and polars.

TPC-H: DuckDB has no S3 client offline, so it reads the same Parquet bytes as local files, while ours come over HTTP on
loopback. Point queries: polars reads the same Iceberg table from the same endpoint.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from bench.harness import Figure, Plot, suite
from bench.object_store import KEYS
from bench.query_workers import worker_figures
from bench.query_world import Warehouse, warehouse
from bench.tpch import QUERIES, TABLES, generate
from catalog.query import Queries
from catalog.query.plan.routing import Route
from catalog.tables import Delta, Tables


@suite("query")
def run(quick: bool) -> Iterator[Figure]:
    with warehouse() as house:
        yield from _tpch(house, 0.1 if quick else 1.0)
        yield from _point(house, 500_000 if quick else 5_000_000)
        yield from _plan(house, 1_000 if quick else 10_000)
        yield from _growth(house, [1, 4, 16, 64] if quick else [1, 4, 16, 64, 256])
    yield from worker_figures()


def _timed(call: Callable[[], Any], turns: int = 3) -> float:
    """Wall seconds, the minimum of several turns: other load on the machine only adds time."""
    return _clocked(call, turns)[0]


def _clocked(call: Callable[[], Any], turns: int = 3) -> tuple[float, float]:
    """Wall and CPU seconds, each the minimum of several turns."""
    wall, cpu = [], []
    for _ in range(turns):
        wall_began, cpu_began = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - wall_began)
        cpu.append(time.process_time() - cpu_began)
    return min(wall), min(cpu)


def _tpch(house: Warehouse, scale: float) -> Iterator[Figure]:
    tables = house.tables()
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as folder:
        generate(Path(folder), scale)
        for name in TABLES:
            rows = pq.read_table(Path(folder) / f"{name}.parquet")
            tables.create(f"tpch.{name}", rows.schema)
            tables.insert(f"tpch.{name}", rows)
        duck = duckdb.connect()
        duck.execute("SET threads = 2")
        for name in TABLES:
            paths = _copied(house, f"tpch.{name}", Path(folder))
            duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({paths!r})")
        ours, theirs, cpu = {}, {}, [0.0, 0.0]
        queries = house.reader()
        for number, text in QUERIES.items():
            theirs[number], their_cpu = _clocked(lambda text=text: duck.sql(text).to_arrow_table())
            ours[number], our_cpu = _clocked(lambda text=text: _uncached(queries, _qualified(text)))
            cpu = [cpu[0] + our_cpu, cpu[1] + their_cpu]
    ratios = {number: ours[number] / theirs[number] for number in QUERIES}
    worst = max(ratios, key=lambda number: ratios[number])
    detail: dict[str, object] = {
        "scale": scale,
        "ours_s": {n: round(s, 4) for n, s in ours.items()},
        "duckdb_s": {n: round(s, 4) for n, s in theirs.items()},
        "processor_ratio": round(cpu[0] / cpu[1], 3),
        "peer": "DuckDB over the same Parquet bytes as local files; ours over HTTP",
    }
    yield Figure("TPC-H, 22 queries", sum(ours.values()) / sum(theirs.values()), "x DuckDB", 1.5, detail=detail)
    yield Figure(f"TPC-H, the worst query (Q{worst})", ratios[worst], "x DuckDB", 4.0)


def _uncached(queries: Queries, text: str) -> pa.Table:
    """Runs a query and clears the result cache, so that the next turn runs it again."""
    table = queries.run(text).table()
    queries._cache._entries.clear()
    queries._cache._bytes = 0
    return table


def _qualified(text: str) -> str:
    """The query with qualified table names, so that no lookup of the database is needed."""
    names = "|".join(sorted(TABLES, key=len, reverse=True))
    return re.sub(rf"((?:from|join|,)\s+)({names})\b", r"\1tpch.\2", text)


def _copied(house: Warehouse, name: str, folder: Path) -> list[str]:
    """Copies the table's data files to a folder where DuckDB can read them."""
    tables = house.tables()
    paths = []
    for number, task in enumerate(tables.plan_scan(name).plan_files()):
        target = folder / f"{name}-{number}.copy"
        with tables.table_store.io.new_input(task.file.file_path).open() as stream:
            target.write_bytes(stream.read())
        paths.append(str(target))
    return paths


def _point(house: Warehouse, rows: int) -> Iterator[Figure]:
    rng = np.random.default_rng(7)
    _insert_tides(house.tables(), rows, rng)
    ours, theirs = _point_queries(house, iter(rng.integers(0, rows, 400).tolist()))
    assert ours() == theirs() == 1
    for call in (ours, theirs):
        for _ in range(8):
            call()
    house.store.gets()
    samples: dict[str, list[float]] = {"ours": [], "polars": []}
    gets = 0
    for _ in range(40):
        for name, call in (("ours", ours), ("polars", theirs)):
            began = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - began)
            paths = house.store.gets()
            if name == "ours":
                gets = max(gets, _data_gets(paths))
    mine, polars = median(samples["ours"]), median(samples["polars"])
    detail: dict[str, object] = {"rows": rows, "ours_ms": round(mine * 1000, 2), "polars_ms": round(polars * 1000, 2)}
    ratios = [a / b for a, b in zip(samples["ours"], samples["polars"], strict=True)]
    yield Figure("warm point query", mine / polars, "x polars", 1.3, detail=detail, samples=ratios)
    yield Figure("warm point query, data GETs", gets, "requests", 2)
    cold = house.reader()
    house.store.gets()
    answer = cold.run("SELECT count(*) FROM bench.tides")
    assert answer.table().column(0).to_pylist() == [rows]
    assert answer.route is Route.METADATA
    yield Figure("COUNT(*), data GETs", _data_gets(house.store.gets()), "requests", 0)


def _insert_tides(tables: Tables, rows: int, rng: np.random.Generator) -> None:
    """Creates bench.tides in five commits, with ids in order."""
    for part in range(5):
        start, count = part * rows // 5, rows // 5
        batch = pa.table(
            {
                "id": pa.array(np.arange(start, start + count)),
                "station": pa.array(rng.integers(0, 1000, count).astype(str)),
                "metres": pa.array(rng.random(count)),
            }
        )
        if part == 0:
            tables.create("bench.tides", batch.schema)
        tables.insert("bench.tides", batch)


def _point_queries(house: Warehouse, ids: Iterator[int]) -> tuple[Callable[[], int], Callable[[], int]]:
    """Queries for the next of `ids` by us and by polars; each returns the number of rows."""
    queries = house.reader()

    def ours() -> int:
        return queries.run("SELECT * FROM bench.tides WHERE id = $1", parameters=[next(ids)]).table().num_rows

    table = house.tables().load("bench.tides")
    options = {
        "aws_endpoint_url": house.url,
        "aws_access_key_id": KEYS["access"],
        "aws_secret_access_key": KEYS["secret"],
        "aws_region": KEYS["region"],
        "aws_allow_http": "true",
    }

    def theirs() -> int:
        scan = pl.scan_iceberg(table, storage_options=options, reader_override="native")
        return scan.filter(pl.col("id") == next(ids)).collect().height

    return ours, theirs


def _data_gets(paths: Counter[str]) -> int:
    return sum(count for path, count in paths.items() if "/data/" in path)


def _plan(house: Warehouse, files: int) -> Iterator[Figure]:
    """Planning reads only metadata, so the data files need not exist."""
    tables = house.tables()
    tables.create("bench.many", {"id": "long", "day": "long"})
    data_files = [_file(house.bucket, number) for number in range(files)]
    step = files // 10
    for start in range(0, files, step):
        tables.committer.write(
            "bench.many", lambda planner, first=start: Delta(added=tuple(data_files[first : first + step]))
        )
    text = "SELECT sum(day) FROM bench.many WHERE id BETWEEN $1 AND $2"

    def explain(queries: Queries, first: int) -> int:
        return queries.explain(text, parameters=[first, first + 250]).tables[0].files

    cold, warm = [], []
    for _ in range(3):
        queries = house.reader()
        cold.append(_timed(lambda queries=queries: explain(queries, 5000), 1))
        warm += [
            _timed(lambda queries=queries, first=first: explain(queries, first), 1) for first in range(1000, 9000, 500)
        ]
    detail: dict[str, object] = {"files": files}
    yield Figure(f"plan over {files} files, cold", min(cold), "s", 2.0, detail=detail)
    warm_ms = [seconds * 1000 for seconds in warm]
    yield Figure(f"plan over {files} files, warm", median(warm_ms), "ms", 50.0, detail=detail, samples=warm_ms)


def _growth(house: Warehouse, sizes: list[int]) -> Iterator[Figure]:
    """A growing table with files of a thousand rows: a point query, which needs one file, and a sum over all."""
    tables, written = house.tables(), 0
    tables.create("bench.grown", {"id": "long", "metres": "double"})
    lines: dict[str, list[tuple[float, float]]] = {"one row": [], "sum of all": []}
    statements = {
        "one row": "SELECT * FROM bench.grown WHERE id = 7",
        "sum of all": "SELECT sum(metres) FROM bench.grown",
    }
    for size in sizes:
        for number in range(written, size):
            ids = pa.array(np.arange(number * 1000, number * 1000 + 1000))
            tables.insert(
                "bench.grown", pa.table({"id": ids, "metres": pa.array(np.random.default_rng(7).random(1000))})
            )
        written = size
        queries = house.reader()
        for name, text in statements.items():
            queries.run(text).table()
            lines[name].append((size, _timed(lambda text=text, queries=queries: queries.run(text).table(), 7) * 1000))
    plot = Plot("Time of a query against files", "files", "ms", lines)
    for name, points in lines.items():
        ratio = points[-1][1] / points[0][1]
        yield Figure(
            f"{name}, {sizes[-1]} files / {sizes[0]} file", ratio, "x", plot=plot if name == "one row" else None
        )


def _file(bucket: str, number: int) -> DataFile:
    low, high = (to_bytes(LongType(), value) for value in (number * 100, number * 100 + 99))
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"s3://{bucket}/tables/bench/many/data/{uuid4()}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=100,
        file_size_in_bytes=4096,
        column_sizes={1: 900, 2: 900},
        value_counts={1: 100, 2: 100},
        null_value_counts={1: 0, 2: 0},
        nan_value_counts={},
        lower_bounds={1: low, 2: low},
        upper_bounds={1: high, 2: high},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    data_file.spec_id = 0
    return data_file
