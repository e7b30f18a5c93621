"""Measurements in a child process: engines do not share an allocator, a cache or the interpreter's lock."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def in_child(measure: Callable[..., Any], *args: Any) -> Any:
    """Runs `measure(*args)` in a new process and returns its result. Function and arguments must be picklable."""
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=_run, args=(child_end, measure, args), daemon=True)
    process.start()
    child_end.close()
    try:
        failed, result = parent_end.recv()
    except EOFError:
        raise RuntimeError(f"{measure.__name__} exited without a result") from None
    finally:
        process.join(30)
    if failed:
        raise RuntimeError(f"{measure.__name__} failed:\n{result}")
    return result


def _run(pipe: Any, measure: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        pipe.send((False, measure(*args)))
    except BaseException:
        pipe.send((True, traceback.format_exc()))


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """The peak of resident bytes during the block, minus those at its start.

    Uses the kernel's high-water mark, reset at the start, which misses no peak. Where it cannot be reset, samples
    every 5 ms instead.
    """
    exact = False
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        exact = True
    base = resident("VmRSS")
    peak = base
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, resident("VmRSS"))

    sampler = threading.Thread(target=sample)
    if not exact:
        sampler.start()
    try:
        yield lambda: (resident("VmHWM") if exact else peak) - base
    finally:
        done.set()
        if not exact:
            sampler.join()


def resident(field: str) -> int:
    """A memory field of this process in bytes: VmRSS is the current value, VmHWM its peak. getrusage would at first
    include the memory of the parent process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status")
