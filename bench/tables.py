"""Tables: inserts and upserts against pyiceberg, deltalake and lancedb, on one S3 endpoint in one run.

Each engine runs in its own process, and so does the endpoint; rows, keys and order are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench import tables_peers as peers
from bench.children import in_child
from bench.harness import Figure, Plot, p50, suite
from bench.object_store import object_store
from bench.timeline_world import cloud

MB = 1 << 20
REPEATS = 3


@suite("tables")
def tables(quick: bool) -> Iterator[Figure]:
    with _worlds() as world:
        yield from _inserts(world, 60 if quick else 300)
    with _worlds() as world:  # new endpoints: the objects of the inserts would slow down the upserts
        yield from _upserts(
            world(), 100_000 if quick else 1_000_000, 10_000 if quick else 100_000, 1 if quick else REPEATS
        )


@contextmanager
def _worlds() -> Iterator[Callable[[], peers.World]]:
    """Each call returns a new bucket at the same endpoints."""
    with cloud() as running, object_store(running) as store:
        yield lambda: peers.World(running.url, store.url, store.bucket())


def _inserts(world: Callable[[], peers.World], times: int) -> Iterator[Figure]:
    ours = in_child(peers.our_inserts, world(), times)
    pyiceberg = in_child(peers.iceberg_inserts, world(), times)
    rate, pyiceberg_rate = times / sum(ours), times / sum(pyiceberg)
    detail: dict[str, Any] = {"ours_per_s": round(rate, 1), "pyiceberg_per_s": round(pyiceberg_rate, 2)}
    lines = {"ours": _growth(ours), "pyiceberg": _growth(pyiceberg)}
    plot = Plot("Cost of an append against the commits before it", "commits", "ms", lines, log_x=False)
    name = f"{times} ten-row inserts in turn / pyiceberg's rate"
    yield Figure(name, rate / pyiceberg_rate, "x", 5, "higher", detail, plot=plot)

    part = times // 6
    first, last = ours[:part], ours[-part:]
    detail = {"first_ms": _ms(first), "last_ms": _ms(last), "pyiceberg_first_ms": _ms(pyiceberg[:part])}
    detail |= {"pyiceberg_last_ms": _ms(pyiceberg[-part:]), "by_mean": round(sum(last) / sum(first), 2)}
    yield Figure(f"last {part} / first {part} of them, p50", p50(last) / p50(first), "x", 1.3, detail=detail)

    concurrent = in_child(peers.our_group, world(), times)
    delta_seconds = in_child(peers.delta_inserts, world(), times, False)
    delta_concurrent = in_child(peers.delta_inserts, world(), times, True)
    rates = {
        "in turn": times / sum(delta_seconds),
        f"{peers.THREADS} at once": delta_concurrent["done"] / delta_concurrent["seconds"],
    }
    best = max(rates, key=lambda way: rates[way])
    rate = concurrent["done"] / concurrent["seconds"]
    detail = {
        "ours_per_s": round(rate),
        "commits": concurrent["commits"],
        "deltalake_best": best,
        "deltalake": delta_concurrent,
    }
    detail |= {f"deltalake_{way}_per_s": round(value, 1) for way, value in rates.items()}
    yield Figure(f"{times} inserts at once / deltalake's best rate", rate / rates[best], "x", 10, "higher", detail)

    lance = in_child(peers.lance_inserts, world(), times)
    detail = {"lancedb_per_s": round(times / sum(lance), 1), "lancedb_last_ms": _ms(lance[-part:])}
    yield Figure("inserts in turn / lancedb's rate", (times / sum(ours)) / (times / sum(lance)), "x", detail=detail)


def _upserts(world: peers.World, rows: int, upserted: int, repeats: int) -> Iterator[Figure]:
    sizes = f"{upserted:,} rows into {rows:,}"

    def median(prepare: Any, upsert: Any, name: str, *options: Any, times: int = repeats) -> dict[str, Any]:
        """Of several runs, each on a new table in a new process: the median time and the largest memory."""
        runs = []
        for number in range(times):
            in_child(prepare, world, f"{name}{number}", *options, rows)
            runs.append(in_child(upsert, world, f"{name}{number}", rows, upserted))
        runs.sort(key=lambda run: run["seconds"])
        return runs[len(runs) // 2] | {"extra_bytes": max(run["extra_bytes"] for run in runs)}

    mor = median(peers.prepare_ours, peers.our_upsert, "bench.mor", "mor")
    delta = median(peers.prepare_delta, peers.delta_upsert, "upsert")
    detail = {"ours": _rounded(mor, upserted), "deltalake": _rounded(delta, upserted)}
    ratio = delta["seconds"] / mor["seconds"]
    yield Figure(f"mor upsert of {sizes} / deltalake's rows/s", ratio, "x", 1, "higher", detail)
    ratio = mor["extra_bytes"] / delta["extra_bytes"]
    yield Figure("peak memory of that / deltalake's", ratio, "x", 1.5, detail=detail)

    cow = median(peers.prepare_ours, peers.our_upsert, "bench.cow", "cow")
    pyiceberg = median(peers.prepare_iceberg, peers.iceberg_upsert, "upsert", times=1)  # a minute each
    detail = {"ours": _rounded(cow, upserted), "pyiceberg": _rounded(pyiceberg, upserted)}
    ratio = pyiceberg["seconds"] / cow["seconds"]
    yield Figure(f"cow upsert of {sizes} / pyiceberg's rows/s", ratio, "x", 20, "higher", detail)

    lance = median(peers.prepare_lance, peers.lance_upsert, "upsert")
    detail = {"lancedb": _rounded(lance, upserted)}
    yield Figure("mor upsert / lancedb's rows/s", lance["seconds"] / mor["seconds"], "x", detail=detail)


def _growth(seconds: list[float], points: int = 20) -> list[tuple[float, float]]:
    """The median of each stretch of samples, at the stretch's end."""
    step = max(1, len(seconds) // points)
    stretches = [(start + step, seconds[start : start + step]) for start in range(0, len(seconds) - step + 1, step)]
    return [(float(end), p50(part) * 1000) for end, part in stretches]


def _ms(samples: list[float]) -> float:
    return round(p50(samples) * 1000, 1)


def _rounded(run: dict[str, Any], rows: int) -> dict[str, Any]:
    return {
        "rows_per_s": round(rows / run["seconds"]),
        "seconds": round(run["seconds"], 2),
        "cpu_s": round(run["cpu_s"], 2),
        "extra_mb": round(run["extra_bytes"] / MB),
    }
