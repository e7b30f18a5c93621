"""What a figure is, and how figures are collected, run and reported."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("slatedb", "pyiceberg", "pyarrow", "datafusion", "pyspark", "lancedb", "moto")


@dataclass
class Figure:
    """One measured number. `target` is what it should be at most (or at least); `detail` what else was seen."""

    name: str
    value: float
    unit: str
    target: float | None = None
    better: Literal["lower", "higher"] = "lower"
    detail: dict[str, object] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        met = self.value <= self.target if self.better == "lower" else self.value >= self.target
        return "met" if met else "MISSED"


Suite = Callable[[bool], Iterator[Figure]]
"""Runs measurements and yields figures as they come; the argument asks for the quick version."""

SUITES: dict[str, Suite] = {}


def suite(name: str) -> Callable[[Suite], Suite]:
    def register(run: Suite) -> Suite:
        SUITES[name] = run
        return run

    return register


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """`with stopwatch() as seconds: …; seconds()` gives the wall time of the block."""
    began = time.perf_counter()
    ended: list[float] = []
    yield lambda: (ended[0] if ended else time.perf_counter()) - began
    ended.append(time.perf_counter())


def cpu_seconds() -> float:
    """CPU time of this process and of all it started, ended ones too once they were waited for: a JVM, its workers.

    What a loaded machine leaves as it is, where wall time does not.
    """
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(process)
            spent[process] = sum(map(int, fields[11:15]))  # its own, and of children that ended
    total, todo = 0, [os.getpid()]
    while todo:
        process = todo.pop()
        total += spent.get(process, 0)
        todo += children.get(process, ())
    return total / os.sysconf("SC_CLK_TCK")


def p50(samples: list[float]) -> float:
    return statistics.median(samples)


def run(names: list[str], quick: bool) -> dict[str, list[Figure]]:
    """Runs the suites, telling stderr how far it is; each suite's figures are saved when it ends."""
    done: dict[str, list[Figure]] = {}
    for position, name in enumerate(names, 1):
        print(f"[{position}/{len(names)}] {name} …", file=sys.stderr, flush=True)
        figures: list[Figure] = []
        for figure in SUITES[name](quick):
            figures.append(figure)
            print(f"      {line(figure)}", file=sys.stderr, flush=True)
        done[name] = figures
        _save(name, figures, quick)
    return done


def line(figure: Figure) -> str:
    wanted = "" if figure.target is None else f"  (target {'≤' if figure.better == 'lower' else '≥'} {figure.target:g})"
    return f"{figure.verdict:<6} {figure.name}: {figure.value:.4g} {figure.unit}{wanted}"


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _save(name: str, figures: list[Figure], quick: bool) -> None:
    RESULTS.mkdir(exist_ok=True)
    rows = [{**asdict(figure), "verdict": figure.verdict} for figure in figures]
    report = {"suite": name, "quick": quick, "machine": machine(), "figures": rows}
    (RESULTS / f"{name}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
