"""Good traffic beside hostile statements, on the deployed functions: its median against that of good traffic alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import cycle

import httpx

from bench.harness import Figure, p50
from infra.local.cloud import EmbeddedCloud
from tests.worlds.hostile_queries import hostile_queries


def hostile_load_figures(cloud: EmbeddedCloud, table: str, count: int) -> Iterator[Figure]:
    """A small query and `/health`, alone and beside one caller who sends the hostile set again and again."""
    endpoint = cloud.addresses()["api"]
    good = {"Authorization": f"Bearer {cloud.token(f'reader:{table}', subject='good')}"}
    hostile = {"Authorization": f"Bearer {cloud.token(f'reader:{table}', subject='hostile')}"}
    statements = cycle(hostile_queries(table, "gold.hidden").values())
    stop, sent = threading.Event(), [0]

    def attack() -> None:
        with httpx.Client(headers=hostile, timeout=60) as http:
            while not stop.is_set():
                http.post(f"{endpoint}/query", json={"sql": next(statements), "engine": "lambda"})
                sent[0] += 1

    with httpx.Client(headers=good, timeout=60) as http:
        alone = _measure(http, endpoint, table, count)
        attacker = threading.Thread(target=attack)
        attacker.start()
        beside = _measure(http, endpoint, table, count)
        stop.set()
        attacker.join()
    for name in alone:
        detail: dict[str, object] = {
            "alone_p50_ms": round(p50(alone[name]), 2),
            "beside_p50_ms": round(p50(beside[name]), 2),
            "hostile_statements": sent[0],
        }
        yield Figure(
            f"{name} beside hostile load, over alone", p50(beside[name]) / p50(alone[name]), "x", 2, detail=detail
        )


def _measure(http: httpx.Client, endpoint: str, table: str, count: int) -> dict[str, list[float]]:
    """Milliseconds of each request, the first ten left out."""
    samples: dict[str, list[float]] = {"small query": [], "/health": []}
    for turn in range(-10, count):
        for name, taken in samples.items():
            began = time.perf_counter()
            if name == "/health":
                response = http.get(f"{endpoint}/health")
            else:
                sql = f"select {turn} as turn, count(metres) as n from {table}"
                response = http.post(f"{endpoint}/query", json={"sql": sql, "engine": "lambda"})
            response.raise_for_status()
            if turn >= 0:
                taken.append((time.perf_counter() - began) * 1000)
    return samples
