"""The API: a warm request, many concurrent callers, and the import time of a cold start. All over loopback."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import httpx

from bench.body_reader import body_reader_figures
from bench.harness import Figure, p50, suite
from bench.hostile_load import hostile_load_figures
from infra.local.cloud import EmbeddedCloud
from strandline.client import Client

TABLE = "bronze.tides"
CALLERS = 50
HANDLERS = ("functions.api", "functions.ingest", "functions.sequencer")
HEAVIEST = "pyiceberg.table, pyiceberg.io.pyarrow, pyiceberg.catalog.glue"
# The functions' images have no pandas, which pyarrow imports if it is installed.
IMPORT = """
import resource, sys

class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoPandas())
import {modules}
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""


@suite("api")
def api(quick: bool) -> Iterator[Figure]:
    yield from _cold(2 if quick else 7)
    yield from body_reader_figures()
    with EmbeddedCloud() as cloud:
        endpoint, token = cloud.addresses()["api"], cloud.token("admin")
        with Client(endpoint, token) as client:
            client.create_table(TABLE, {"station": "string", "metres": "double"}, key=["station"])
            for start in range(0, 50, 10):
                client.insert(TABLE, [{"station": str(n), "metres": n / 2} for n in range(start, start + 10)])
        cloud.wait_until_idle()
        headers = {"Authorization": f"Bearer {token}"}
        yield _warm(endpoint, headers, 50 if quick else 300)
        yield from hostile_load_figures(cloud, TABLE, 40 if quick else 300)
        yield from _concurrent(endpoint, headers, 5.0 if quick else 60.0)


def _warm(endpoint: str, headers: dict[str, str], count: int) -> Figure:
    samples = []
    with httpx.Client(headers=headers, timeout=60) as http:
        for _ in range(20):
            http.get(f"{endpoint}/tables/{TABLE}").raise_for_status()
        for _ in range(count):
            began = time.perf_counter()
            http.get(f"{endpoint}/tables/{TABLE}").raise_for_status()
            samples.append((time.perf_counter() - began) * 1000)
    detail: dict[str, object] = {"p95": sorted(samples)[int(len(samples) * 0.95)], "requests": count}
    return Figure("GET /tables/{t}, warm, p50", p50(samples), "ms", 25.0, detail=detail, samples=samples)


def _concurrent(endpoint: str, headers: dict[str, str], seconds: float) -> Iterator[Figure]:
    statuses: Counter[int] = Counter()
    samples: list[float] = []
    lock = threading.Lock()
    deadline = time.monotonic() + seconds

    def call() -> None:
        with httpx.Client(headers=headers, timeout=60) as http:
            while time.monotonic() < deadline:
                began = time.perf_counter()
                response = http.get(f"{endpoint}/tables/{TABLE}")
                milliseconds = (time.perf_counter() - began) * 1000
                with lock:
                    statuses[response.status_code] += 1
                    samples.append(milliseconds)

    threads = [threading.Thread(target=call) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = sum(count for status, count in statuses.items() if status >= 500)
    detail: dict[str, object] = {
        "statuses": {str(status): count for status, count in statuses.items()},
        "seconds": seconds,
    }
    yield Figure(f"{CALLERS} callers at once, answers of 5xx", failed, "answers", 0, detail=detail)
    yield Figure(f"{CALLERS} callers at once, rate", sum(statuses.values()) / seconds, "requests/s", better="higher")
    yield Figure(f"{CALLERS} callers at once, p50", p50(samples), "ms")


def _cold(runs: int) -> Iterator[Figure]:
    """CPU seconds of a cold start's imports, the minimum of several runs."""
    heaviest = min(_import_cpu(HEAVIEST) for _ in range(runs))
    for handler in HANDLERS:
        own = min(_import_cpu(handler) for _ in range(runs))
        detail: dict[str, object] = {"handler_s": own, "pyiceberg_s": heaviest}
        yield Figure(f"cold import of {handler}, over that of pyiceberg", own / heaviest, "x", 1.5, detail=detail)


def _import_cpu(modules: str) -> float:
    script = IMPORT.format(modules=modules)
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(child.stdout)
