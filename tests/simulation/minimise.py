"""Makes a failing run short: leaves out operations and faults as long as the run still fails in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from tests.simulation.run import Defect, Outcome, simulate

T = TypeVar("T")
RUNS = 80


def minimise(found: Outcome, defect: Defect | None = None, runs: int = RUNS) -> Outcome:
    """The shortest run that was found with this many tries. It has the failure's kind, not always its words."""
    best, left = found, runs

    def fails(outcome: Outcome) -> bool:
        return outcome.failure is not None and _kind(outcome.failure) == _kind(found.failure or "")

    def attempt(ops: Sequence[object], faults: Sequence[object]) -> bool:
        nonlocal best, left
        left -= 1
        outcome = simulate(
            found.seed,
            ops=[op for op in best.ops if op in ops],
            faults={fault: kind for fault, kind in best.faults.items() if fault in faults},
            defect=defect,
        )
        if fails(outcome):
            # The faults that it met: others may strike where the run does not come any more.
            best = replace(outcome, faults=dict(outcome.faults))
            return True
        return False

    size = max(len(best.faults), len(best.ops))
    while size >= 1 and left > 0:
        shorter = False
        for faults in _without(list(best.faults), size):
            shorter |= left > 0 and attempt(best.ops, faults)
        for ops in _without(best.ops, size):
            shorter |= left > 0 and attempt(ops, list(best.faults))
        if not shorter:
            size //= 2
    return best


def describe(outcome: Outcome) -> str:
    """What to read, and what to type to see the run again."""
    faults = [f"  request {number} of {process}: {kind}" for (process, number), kind in outcome.faults.items()]
    lines = [
        f"seed {outcome.seed}: {outcome.failure}",
        f"shortest schedule: {len(outcome.ops)} operations, {len(outcome.faults)} faults",
        *(f"  {op}" for op in outcome.ops),
        *faults,
        f"again, with every request: make simulate SEEDS={outcome.seed} ARGS=--trace",
    ]
    return "\n".join(lines)


def _without(items: Sequence[T], size: int) -> list[list[T]]:
    """The items without each run of `size` of them."""
    starts = range(0, len(items), size) if items else range(0)
    return [[*items[:start], *items[start + size :]] for start in starts]


def _kind(failure: str) -> str:
    """The words of a failure without what depends on the run."""
    return " ".join(word for word in failure.split() if word.isalpha())[:40]
