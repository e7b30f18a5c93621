"""The simulator keeps finding what it found, and finds nothing in the lake as it is.

Each test runs it in a process of its own with a fixed hash seed: so a failing seed fails again by `make simulate`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SEEDS = ("0:50", "50:100", "100:150", "150:200")
FIRST_SEEDS = {
    "ignore_glue_version": 3,
    "forget_expired_tokens": 29,
    "bind_names_late": 4,
    "trust_messages": 150,
    "cache_snapshots_by_id": 20,
    "keep_old_readers": 34,
    "read_without_holding": 20,
    "believe_the_clock": 43,
}
"""Where the search begins: the seeds before it do not find the defect."""
WITHIN = 3


def _simulate(*arguments: str, timeout_s: float = 1200) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", SEEDS)
def test_the_lake_keeps_its_promises_in_every_seed(seeds: str) -> None:
    code, output = _simulate("--seeds", seeds)
    assert code == 0, output


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = (_simulate("--seeds", "7", "--trace")[1].splitlines()[:-1] for _ in range(2))
    assert len(first) > 300
    assert first == second


@pytest.mark.parametrize("defect", list(FIRST_SEEDS))
def test_a_known_defect_is_found(defect: str) -> None:
    first = FIRST_SEEDS[defect]
    code, output = _simulate("--seeds", f"{first}:{first + WITHIN}", "--defect", defect, "--shorten", "0")
    assert code == 1, f"not found within {WITHIN} seeds: {output}"
    assert "failed" in output


def test_a_failure_prints_its_seed_and_a_short_schedule() -> None:
    first = FIRST_SEEDS["ignore_glue_version"]
    code, output = _simulate(
        "--seeds", f"{first}:{first + WITHIN}", "--defect", "ignore_glue_version", "--shorten", "30"
    )
    assert code == 1
    assert "make simulate SEEDS=" in output
    _, _, schedule = output.partition("shortest schedule: ")
    assert int(schedule.split(" ")[0]) <= 6, output
