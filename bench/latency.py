"""What an insert, a query and a proof take when each request takes as long as on AWS, and which requests they wait for.

The embedded cloud runs in this process, with latencies from a fixed seed (`strandline dev --latency aws` has the same).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import boto3

from bench.harness import Figure, stopwatch, suite
from catalog import Lake, load_settings, open_lake
from catalog.merkle.note import Ed25519Signer
from infra.local.latency import Latency, TimedRequest, critical_path
from infra.local.server import ApiServer

ORIGIN = "strandline.bench/latency"
TABLE = "bench.tides"
ROWS = [{"id": number, "station": f"s{number % 7}", "metres": number / 10} for number in range(100)]


@suite("latency")
def latency(quick: bool) -> Iterator[Figure]:
    rounds = 5 if quick else 25
    with _lake() as (server, lake):
        _prepare(lake)
        server.latency = Latency()
        numbers = iter(range(1_000_000))

        def insert() -> None:
            lake.tables.insert(TABLE, [{**row, "id": 1000 * next(numbers) + row["id"]} for row in ROWS])

        def commit() -> None:
            """A leaf that no earlier round has proven or read."""
            insert()
            size = lake.sequencer.catch_up([TABLE]).size
            while lake.timeline.head().checkpoint.size < size:
                time.sleep(0.05)

        def query() -> None:
            sql = f"select station, max(metres) m from {TABLE} where id >= $id group by station"
            lake.queries.run(sql, parameters={"id": next(numbers)}).table()

        def prove() -> None:
            lake.timeline.proof(lake.timeline.head().checkpoint.size - 1)

        yield _measured("insert of 100 rows acknowledged, p50", insert, server.latency, rounds, 0.4)
        commit()
        yield _measured("warm query of a small table, p50", query, server.latency, rounds, 0.15)
        yield _measured("query after a new commit, p50", query, server.latency, rounds, None, before=commit)
        yield _measured("inclusion proof of a new leaf, p50", prove, server.latency, rounds, 0.2, before=commit)
        server.latency = None


def describe(path: list[TimedRequest]) -> str:
    """`s3 PUT 21 ms, glue UpdateTable 55 ms`: the requests that were waited for, in their order."""
    return ", ".join(f"{t.request.service} {t.request.action} {t.seconds * 1000:.0f} ms" for t in path)


def _measured(
    name: str,
    work: Callable[[], None],
    latency: Latency,
    rounds: int,
    target: float | None,
    before: Callable[[], None] = lambda: None,
) -> Figure:
    work()
    samples, paths = list[float](), list[list[TimedRequest]]()
    for _ in range(rounds):
        before()
        latency.take()
        with stopwatch() as seconds:
            work()
        samples.append(seconds())
        paths.append(critical_path(latency.take()))
    middle = paths[sorted(range(rounds), key=lambda number: samples[number])[rounds // 2]]
    print(f"  {name}: {describe(middle) or 'no request'}")
    detail: dict[str, object] = {"critical path": describe(middle), "requests in order": len(middle)}
    return Figure(f"{name}, latencies of AWS", median(samples), "s", target, detail=detail, samples=samples)


def _prepare(lake: Lake) -> None:
    """A table with a few commits, sequenced, and every cache warm."""
    lake.iceberg.create_namespace("bench")
    lake.tables.create(TABLE, {"id": "long", "station": "string", "metres": "double"})
    for number in range(5):
        lake.tables.insert(TABLE, [{**row, "id": -1 - 100 * number - row["id"]} for row in ROWS])
    lake.sequencer.catch_up([TABLE])


@contextmanager
def _lake() -> Iterator[tuple[ApiServer, Lake]]:
    server = ApiServer()
    server.start()
    try:
        client: Callable[[str, str], Any] = server.endpoint.client
        suffix = uuid4().hex[:8]
        client("s3", "person").create_bucket(Bucket=f"lake-{suffix}")
        key = Ed25519Signer.generate(ORIGIN).private_key()
        client("secretsmanager", "person").create_secret(Name=f"key-{suffix}", SecretString=key)
        fifo = {"FifoQueue": "true"}
        queue = client("sqs", "person").create_queue(QueueName=f"moved-{suffix}.fifo", Attributes=fifo)["QueueUrl"]
        variables = {
            "STRANDLINE_BUCKET": f"lake-{suffix}",
            "STRANDLINE_ORIGIN": ORIGIN,
            "STRANDLINE_SIGNER": f"secret:key-{suffix}",
            "STRANDLINE_MOVED_QUEUE_URL": queue,
            **server.endpoint.environment("person"),
        }
        with patch.dict(os.environ, variables), patch.object(boto3, "DEFAULT_SESSION", None):
            lake = open_lake(load_settings())
            try:
                yield server, lake
            finally:
                lake.close()
    finally:
        server.stop()
