"""What a figure is, and how figures are collected, run and kept."""

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

from bench.object_store import described

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    *("slatedb", "pyiceberg", "pyarrow", "datafusion", "pyspark", "lancedb", "moto"),
    *("deltalake", "duckdb", "polars"),
)


@dataclass
class Plot:
    """How a figure grows: for each line its points. Both axes are logarithmic unless it says otherwise."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]
    log_x: bool = True
    log_y: bool = True


@dataclass
class Figure:
    """One measured number. `target` is what it should be at most (or at least); `detail` what else was seen.

    `samples` are what `value` was taken from, in the same unit: they give its spread.
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
        """The middle eight tenths of the samples; None where the value was taken once, or is a count."""
        if len(self.samples) < 2:
            return None
        ordered = sorted(self.samples)
        cut = len(ordered) // 10
        return ordered[cut], ordered[-1 - cut]


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


def cpu_seconds(without: Collection[int] = ()) -> float:
    """CPU time of this process and of all it started: a JVM, its workers. Those that ended count as well.

    What a loaded machine leaves as it is, where wall time does not. `without`: processes to leave out, and theirs.
    """
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(process)
            spent[process] = sum(map(int, fields[11:15]))  # its own, and of children that ended and were waited for
    total, todo = 0, [os.getpid()]
    while todo:
        process = todo.pop()
        if process in without:
            continue
        alive = children.get(process, [])
        if process in _UNTOLD or (alive and _ignores_ends(process)):
            known = _UNTOLD.setdefault(process, {})
            known |= {child: spent[child] for child in alive}
            total += sum(ticks for child, ticks in known.items() if child not in alive)
        total += spent.get(process, 0)
        todo += alive
    return total / os.sysconf("SC_CLK_TCK")


_UNTOLD: dict[int, dict[int, int]] = {}
"""By parent: what each child had spent when it was last seen. Only of parents that ignore a child's end, as Spark's
daemon does: what its idle workers spent is in no process's count once they are gone."""


def _ignores_ends(process: int) -> bool:
    with suppress(OSError):
        for text in Path(f"/proc/{process}/status").read_text().splitlines():
            if text.startswith("SigIgn:"):
                return bool(int(text.split()[1], 16) >> (signal.SIGCHLD - 1) & 1)
    return False


def p50(samples: list[float]) -> float:
    return statistics.median(samples)


def folder(quick: bool) -> Path:
    """Quick figures are a first look, and never take the place of real ones."""
    return RESULTS / "quick" if quick else RESULTS


def run(names: Sequence[str], quick: bool, rounds: int = 1) -> dict[str, list[Figure]]:
    """Runs the suites with a bar on stderr; each suite's figures are saved when it ends.

    Of several rounds a figure is the median one, and its samples are the rounds' values.
    """
    done: dict[str, list[Figure]] = {}
    with _bars() as bars:
        whole = bars.add_task("suites", total=len(names))
        for name in names:
            bar = bars.add_task(name, total=_known(name, quick) * rounds or None)
            taken: list[list[Figure]] = []
            began = time.perf_counter()
            for _ in range(rounds):
                taken.append([])
                with _own_environment():
                    for figure in SUITES[name](quick):
                        taken[-1].append(figure)
                        bars.console.print(f"  {line(figure)}", highlight=False, markup=False)
                        bars.advance(bar)
            done[name] = _medians(taken)
            _save(name, done[name], quick, rounds, time.perf_counter() - began)
            bars.remove_task(bar)
            bars.advance(whole)
    return done


@contextmanager
def _own_environment() -> Iterator[None]:
    """A suite may say where its cloud is: the next one has another. boto3 remembers whom it saw there first."""
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


def _known(name: str, quick: bool) -> int:
    """How many figures the suite gave the last time: what its bar is measured by."""
    with suppress(OSError, ValueError, KeyError):
        return len(json.loads((folder(quick) / f"{name}.json").read_text())["figures"])
    return 0


def _medians(rounds: list[list[Figure]]) -> list[Figure]:
    if len(rounds) == 1:
        return rounds[0]
    found = []
    for figures in zip(*rounds, strict=True):
        ordered = sorted(figures, key=lambda one: one.value)
        chosen = ordered[len(ordered) // 2]
        chosen.samples = [one.value for one in figures]
        found.append(chosen)
    return found


def line(figure: Figure) -> str:
    wanted = "" if figure.target is None else f"  (target {'≤' if figure.better == 'lower' else '≥'} {figure.target:g})"
    return f"{figure.verdict:<6} {figure.name}: {figure.value:.4g} {figure.unit}{wanted}"


def machine() -> dict[str, Any]:
    """What the figures were taken on; the load is what others asked of it meanwhile."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": platform.platform(),
        "object_store": described(),
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
