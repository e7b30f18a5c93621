"""A short run of every target on each change: the seeds and the corpus as they are, then mutations of them."""

from __future__ import annotations

from tests.fuzz.mutation import mutate
from tests.fuzz.runs import Run, failures
from tests.fuzz.targets import TARGETS, seeds

COUNT = 120


def test_no_input_crashes_hangs_or_takes_too_much() -> None:
    runs = [Run(name, -(kept := len(seeds(name))), kept + COUNT) for name in TARGETS]
    found = failures(runs)
    assert found == [], "\n".join(f"{one.target} {one.number}: {one.reason}\n{one.data()[:500]!r}" for one in found)


def test_the_same_number_gives_the_same_input() -> None:
    inputs = [b"a,b\n1,2\n", b"x"]
    assert [mutate(inputs, number) for number in range(50)] == [mutate(inputs, number) for number in range(50)]
