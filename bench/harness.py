"""Figures and suites: how suites are registered and run, and how their figures are saved."""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import boto3
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.object_store import describe

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    *("slatedb", "pyiceberg", "pyarrow", "datafusion", "pyspark", "lancedb", "moto"),
    *("deltalake", "duckdb", "polars"),
)


@dataclass
class Plot:
    """How a figure grows: the points of each line. Both axes are logarithmic by default."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]
    log_x: bool = True
    log_y: bool = True


@dataclass
class Figure:
    """One measured number. `target` is its upper limit, or its lower limit if higher is better.

    `detail` holds other measurements; `samples` are the values behind `value`, in the same unit, and give its spread.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    better: Literal["lower", "higher"] = "lower"
    detail: dict[str, object] = field(default_factory=dict)
    samples: list[float] = field(default_factory=list)
    plot: Plot | None = None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        met = self.value <= self.target if self.better == "lower" else self.value >= self.target
        return "met" if met else "MISSED"

    @property
    def spread(self) -> tuple[float, float] | None:
        """The 10th and 90th percentile of the samples; None for a single measurement or a count."""
        if len(self.samples) < 2:
            return None
        ordered = sorted(self.samples)
        cut = len(ordered) // 10
        return ordered[cut], ordered[-1 - cut]


Suite = Callable[[bool], Iterator[Figure]]
"""Runs measurements and yields their figures; the argument selects the quick version."""

SUITES: dict[str, Suite] = {}


def suite(name: str) -> Callable[[Suite], Suite]:
    def register(run: Suite) -> Suite:
        SUITES[name] = run
        return run

    return register


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """`with stopwatch() as seconds: …`: afterwards `seconds()` is the wall time of the block."""
    began = time.perf_counter()
    ended: list[float] = []
    yield lambda: (ended[0] if ended else time.perf_counter()) - began
    ended.append(time.perf_counter())


def cpu_seconds(without: Collection[int] = ()) -> float:
    """The CPU time of this process and its descendants, such as a JVM and its workers, also of those that have ended.

    Unlike wall time it hardly depends on the machine's load. `without`: processes to leave out, with their descendants.
    """
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(process)
            spent[process] = sum(map(int, fields[11:15]))  # its own, and that of children it has waited for
    total, todo = 0, [os.getpid()]
    while todo:
        process = todo.pop()
        if process in without:
            continue
        alive = children.get(process, [])
        if process in _CHILD_TICKS or (alive and _ignores_sigchld(process)):
            ticks_of = _CHILD_TICKS.setdefault(process, {})
            ticks_of |= {child: spent[child] for child in alive}
            total += sum(ticks for child, ticks in ticks_of.items() if child not in alive)
        total += spent.get(process, 0)
        todo += alive
    return total / os.sysconf("SC_CLK_TCK")


_CHILD_TICKS: dict[int, dict[int, int]] = {}
"""By parent: each child's CPU ticks when last read. Only for parents that ignore SIGCHLD, as Spark's daemon does: once
its workers have ended, no process's count includes their CPU time."""


def _ignores_sigchld(process: int) -> bool:
    with suppress(OSError):
        for text in Path(f"/proc/{process}/status").read_text().splitlines():
            if text.startswith("SigIgn:"):
                return bool(int(text.split()[1], 16) >> (signal.SIGCHLD - 1) & 1)
    return False


def p50(samples: list[float]) -> float:
    return statistics.median(samples)


def folder(quick: bool) -> Path:
    """Where results are saved. Quick figures have a folder of their own, so that they never replace real ones."""
    return RESULTS / "quick" if quick else RESULTS


def run(names: Sequence[str], quick: bool, rounds: int = 1) -> dict[str, list[Figure]]:
    """Runs the suites with a progress bar on stderr, and saves each suite's figures when it ends.

    With several rounds each figure is the median round's, and its samples are the rounds' values.
    """
    results: dict[str, list[Figure]] = {}
    with _bars() as bars:
        suites_bar = bars.add_task("suites", total=len(names))
        for name in names:
            bar = bars.add_task(name, total=_last_count(name, quick) * rounds or None)
            figures_by_round: list[list[Figure]] = []
            began = time.perf_counter()
            for _ in range(rounds):
                figures_by_round.append([])
                with _own_environment():
                    for figure in SUITES[name](quick):
                        figures_by_round[-1].append(figure)
                        bars.console.print(f"  {line(figure)}", highlight=False, markup=False)
                        bars.advance(bar)
            results[name] = _medians(figures_by_round)
            _save(name, results[name], quick, rounds, time.perf_counter() - began)
            bars.remove_task(bar)
            bars.advance(suites_bar)
    return results


@contextmanager
def _own_environment() -> Iterator[None]:
    """Restores the environment after a suite, which may set its cloud's endpoint, and resets boto3's default session,
    which caches credentials."""
    before = dict(os.environ)
    boto3.DEFAULT_SESSION = None
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _bars() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(file=sys.stderr, soft_wrap=True), transient=True)


def _last_count(name: str, quick: bool) -> int:
    """The number of figures in the suite's last results, for its progress bar; 0 without any."""
    with suppress(OSError, ValueError, KeyError):
        return len(json.loads((folder(quick) / f"{name}.json").read_text())["figures"])
    return 0


def _medians(rounds: list[list[Figure]]) -> list[Figure]:
    if len(rounds) == 1:
        return rounds[0]
    medians = []
    for figures in zip(*rounds, strict=True):
        ordered = sorted(figures, key=lambda figure: figure.value)
        median = ordered[len(ordered) // 2]
        median.samples = [figure.value for figure in figures]
        medians.append(median)
    return medians


def line(figure: Figure) -> str:
    target = "" if figure.target is None else f"  (target {'≤' if figure.better == 'lower' else '≥'} {figure.target:g})"
    return f"{figure.verdict:<6} {figure.name}: {figure.value:.4g} {figure.unit}{target}"


def machine() -> dict[str, Any]:
    """The machine and software of the measurements, with the load average at their end."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": platform.platform(),
        "object_store": describe(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _cpu() -> str:
    with suppress(OSError):
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _save(name: str, figures: list[Figure], quick: bool, rounds: int, seconds: float) -> None:
    folder(quick).mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(figure), "verdict": figure.verdict, "spread": figure.spread} for figure in figures]
    report = {
        "suite": name,
        "quick": quick,
        "rounds": rounds,
        "taken": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "seconds": round(seconds, 1),
        "machine": machine(),
        "figures": rows,
    }
    (folder(quick) / f"{name}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
