"""The tables' figures: inserts and upserts against pyiceberg, deltalake and lancedb, on one S3 endpoint in one run.

Every engine runs in a process of its own, the endpoint in another; rows, keys and order are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench import tables_peers as peers
from bench.children import alone
from bench.harness import Figure, Plot, p50, suite
from bench.object_store import object_store
from bench.timeline_world import cloud

MB = 1 << 20
REPEATS = 3


@suite("tables")
def tables(quick: bool) -> Iterator[Figure]:
    with _worlds() as world:
        yield from _inserts(world, 60 if quick else 300)
    with _worlds() as world:  # new endpoints: what the inserts left there would slow the next down
        yield from _upserts(
            world(), 100_000 if quick else 1_000_000, 10_000 if quick else 100_000, 1 if quick else REPEATS
        )


@contextmanager
def _worlds() -> Iterator[Callable[[], peers.World]]:
    """Each call gives a new bucket at the same endpoints."""
    with cloud() as running, object_store(running) as store:
        yield lambda: peers.World(running.url, store.url, store.bucket())


def _inserts(world: Callable[[], peers.World], times: int) -> Iterator[Figure]:
    ours = alone(peers.our_inserts, world(), times)
    plain = alone(peers.iceberg_inserts, world(), times)
    rate, other = times / sum(ours), times / sum(plain)
    detail: dict[str, Any] = {"ours_per_s": round(rate, 1), "pyiceberg_per_s": round(other, 2)}
    lines = {"ours": _growth(ours), "pyiceberg": _growth(plain)}
    plot = Plot("Cost of an append against the commits before it", "commits", "ms", lines, log_x=False)
    name = f"{times} ten-row inserts in turn / pyiceberg's rate"
    yield Figure(name, rate / other, "x", 5, "higher", detail, plot=plot)

    part = times // 6
    first, last = ours[:part], ours[-part:]
    detail = {"first_ms": _ms(first), "last_ms": _ms(last), "pyiceberg_first_ms": _ms(plain[:part])}
    detail |= {"pyiceberg_last_ms": _ms(plain[-part:]), "by_mean": round(sum(last) / sum(first), 2)}
    yield Figure(f"last {part} / first {part} of them, p50", p50(last) / p50(first), "x", 1.3, detail=detail)

    group = alone(peers.our_group, world(), times)
    turns = alone(peers.delta_inserts, world(), times, False)
    once = alone(peers.delta_inserts, world(), times, True)
    rates = {"in turn": times / sum(turns), f"{peers.THREADS} at once": once["done"] / once["seconds"]}
    best = max(rates, key=lambda how: rates[how])
    rate = group["done"] / group["seconds"]
    detail = {"ours_per_s": round(rate), "commits": group["commits"], "deltalake_best": best, "deltalake": once}
    detail |= {f"deltalake_{how}_per_s": round(found, 1) for how, found in rates.items()}
    yield Figure(f"{times} inserts at once / deltalake's best rate", rate / rates[best], "x", 10, "higher", detail)

    lance = alone(peers.lance_inserts, world(), times)
    detail = {"lancedb_per_s": round(times / sum(lance), 1), "lancedb_last_ms": _ms(lance[-part:])}
    yield Figure("inserts in turn / lancedb's rate", (times / sum(ours)) / (times / sum(lance)), "x", detail=detail)


def _upserts(world: peers.World, rows: int, upserted: int, repeats: int) -> Iterator[Figure]:
    shown = f"{upserted:,} rows into {rows:,}"

    def median(prepare: Any, upsert: Any, name: str, *options: Any, times: int = repeats) -> dict[str, Any]:
        """Of several runs, each on a new table in a new process: the one with the median time, the largest memory."""
        found = []
        for number in range(times):
            alone(prepare, world, f"{name}{number}", *options, rows)
            found.append(alone(upsert, world, f"{name}{number}", rows, upserted))
        found.sort(key=lambda one: one["seconds"])
        return found[len(found) // 2] | {"extra_bytes": max(one["extra_bytes"] for one in found)}

    mor = median(peers.prepare_ours, peers.our_upsert, "bench.mor", "mor")
    delta = median(peers.prepare_delta, peers.delta_upsert, "upsert")
    detail = {"ours": _told(mor, upserted), "deltalake": _told(delta, upserted)}
    ratio = delta["seconds"] / mor["seconds"]
    yield Figure(f"mor upsert of {shown} / deltalake's rows/s", ratio, "x", 1, "higher", detail)
    ratio = mor["extra_bytes"] / delta["extra_bytes"]
    yield Figure("peak memory of that / deltalake's", ratio, "x", 1.5, detail=detail)

    cow = median(peers.prepare_ours, peers.our_upsert, "bench.cow", "cow")
    plain = median(peers.prepare_iceberg, peers.iceberg_upsert, "upsert", times=1)  # a minute each
    detail = {"ours": _told(cow, upserted), "pyiceberg": _told(plain, upserted)}
    ratio = plain["seconds"] / cow["seconds"]
    yield Figure(f"cow upsert of {shown} / pyiceberg's rows/s", ratio, "x", 20, "higher", detail)

    lance = median(peers.prepare_lance, peers.lance_upsert, "upsert")
    detail = {"lancedb": _told(lance, upserted)}
    yield Figure("mor upsert / lancedb's rows/s", lance["seconds"] / mor["seconds"], "x", detail=detail)


def _growth(seconds: list[float], points: int = 20) -> list[tuple[float, float]]:
    """The median of each stretch, at its end."""
    step = max(1, len(seconds) // points)
    stretches = [(at + step, seconds[at : at + step]) for at in range(0, len(seconds) - step + 1, step)]
    return [(float(end), p50(part) * 1000) for end, part in stretches]


def _ms(samples: list[float]) -> float:
    return round(p50(samples) * 1000, 1)


def _told(found: dict[str, Any], rows: int) -> dict[str, Any]:
    return {
        "rows_per_s": round(rows / found["seconds"]),
        "seconds": round(found["seconds"], 2),
        "cpu_s": round(found["cpu_s"], 2),
        "extra_mb": round(found["extra_bytes"] / MB),
    }
