"""What a worker process adds to a small query, against the same query in the caller's own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median
from typing import Any
from uuid import uuid4

import boto3

from bench.harness import Figure
from bench.timeline_world import cloud
from catalog import Settings, open_lake, query_workers
from catalog.query import EngineLimits

TURNS = 200
ROWS = [{"id": number, "station": f"station {number}", "metres": number / 7} for number in range(25)]
LIMITS = EngineLimits(256 << 20, 60.0)


def worker_figures() -> Iterator[Figure]:
    """The added time of a query over a table of 25 rows; turns alternate, and no result is cached."""
    with cloud() as running:
        bucket = f"bench-{uuid4().hex[:12]}"
        boto3.client("s3", endpoint_url=running.url, region_name="us-east-1").create_bucket(Bucket=bucket)
        settings = Settings(
            stage="dev", region="us-east-1", endpoint_url=running.url, bucket=bucket, log_level="WARNING"
        )
        lake = open_lake(settings)
        lake.tables.create("bench.small", {"id": "long", "station": "string", "metres": "double"})
        lake.tables.insert("bench.small", ROWS)
        began = time.perf_counter()
        with closing(query_workers(settings)) as workers:
            workers.ask("SELECT 1", limits=LIMITS)
            start = time.perf_counter() - began
            own, apart = _alternating(lake.queries.ask, workers.ask)
    added = [(b - a) * 1000 for a, b in zip(own, apart, strict=True)]
    detail: dict[str, object] = {
        "in_process_p50_ms": round(median(own) * 1000, 2),
        "worker_p50_ms": round(median(apart) * 1000, 2),
        "worker_start_s": round(start, 2),
        "queries": TURNS,
    }
    value = (median(apart) - median(own)) * 1000
    yield Figure("small query in a worker, added", value, "ms", 5, detail=detail, samples=added)


def _alternating(*asks: Callable[..., Any]) -> tuple[list[float], ...]:
    samples: tuple[list[float], ...] = tuple([] for _ in asks)
    for turn in range(-10, TURNS):
        for number, ask in enumerate(asks):
            began = time.perf_counter()
            parameters = {"n": turn}  # another value each time: its result is not cached
            rows = ask("SELECT *, $n AS n FROM bench.small WHERE id < 20", parameters=parameters, limits=LIMITS).table()
            if turn >= 0:
                samples[number].append(time.perf_counter() - began)
            assert rows.num_rows == 20
    return samples
