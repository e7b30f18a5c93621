"""A measurement in a process of its own: engines do not share an allocator, a cache or the interpreter's lock."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def alone(measure: Callable[..., Any], *args: Any) -> Any:
    """What `measure(*args)` gives in a fresh process. It and its arguments must be picklable."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, measure, args), daemon=True)
    process.start()
    theirs.close()
    try:
        failed, answer = ours.recv()
    except EOFError:
        raise RuntimeError(f"{measure.__name__} ended without an answer") from None
    finally:
        process.join(30)
    if failed:
        raise RuntimeError(f"{measure.__name__} failed:\n{answer}")
    return answer


def _run(pipe: Any, measure: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        pipe.send((False, measure(*args)))
    except BaseException:
        pipe.send((True, traceback.format_exc()))


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """The most bytes resident during the block, beyond those before it.

    The kernel's own high-water mark, reset at the start: nothing falls between two samples. Where it cannot be
    reset, samples every 5 ms stand in for it.
    """
    exact = False
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        exact = True
    base = resident("VmRSS")
    top = base
    done = threading.Event()

    def sample() -> None:
        nonlocal top
        while not done.wait(0.005):
            top = max(top, resident("VmRSS"))

    watcher = threading.Thread(target=sample)
    if not exact:
        watcher.start()
    try:
        yield lambda: (resident("VmHWM") if exact else top) - base
    finally:
        done.set()
        if not exact:
            watcher.join()


def resident(field: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most since it was started. Not getrusage's, which for a while counts
    the process that started this one."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status")
