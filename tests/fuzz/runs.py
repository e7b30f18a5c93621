"""Runs inputs in a worker process, and tells which of them ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.fuzz.mutation import mutate
from tests.fuzz.targets import seeds


@dataclass(frozen=True)
class Run:
    """The inputs of a target from number `first` on; negative ones are its seeds and its corpus."""

    target: str
    first: int
    count: int


@dataclass(frozen=True)
class Failure:
    target: str
    number: int
    reason: str

    def data(self) -> bytes:
        inputs = seeds(self.target)
        return inputs[-self.number - 1] if self.number < 0 else mutate(inputs, self.number)


def failures(runs: Sequence[Run]) -> list[Failure]:
    """Tries the inputs; each target's first failure. After one, the other targets go on in a new process."""
    found, remaining = list[Failure](), list(runs)
    while remaining and (failure := _first_failure(remaining)) is not None:
        found.append(failure)
        names = [run.target for run in remaining]
        remaining = remaining[names.index(failure.target) + 1 :]
    return found


def _first_failure(runs: Sequence[Run]) -> Failure | None:
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "PYTHONHASHSEED": "0"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.worker", *(f"{run.target}:{run.first}:{run.count}" for run in runs)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if ended.returncode == 0:
        return None
    lines = ended.stdout.splitlines()
    if not lines:
        raise RuntimeError(f"the worker did not start: {ended.stderr[-2000:]}")
    if ended.returncode == -signal.SIGPROF:
        reason = "it took more than two seconds"
    elif ended.returncode < 0:
        reason = f"signal {-ended.returncode}: {ended.stderr[-500:]}"
    else:
        reason = ended.stderr[-1500:]
    name, number = lines[-1].split()
    return Failure(name, int(number), reason)
