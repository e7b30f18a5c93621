"""`strandline demo`, as somebody types it: what it finds, as data; and nothing left of it, even when cut short."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

from cli.demo_notes import demo_events, demo_notes
from infra.stage import ROOT
from tests.waiting import wait_until

PATIENCE = 600.0


@contextmanager
def demo(*words: str) -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own, as a shell starts it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("STRANDLINE_", "AWS_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *words],
        env={**env, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C: the terminal tells the whole group. Then whoever belonged to the demo must be gone."""
    there = children(process)
    assert there, "functions run in processes"
    os.killpg(process.pid, signal.SIGINT)
    process.wait(PATIENCE)
    wait_until(lambda: not alive(there), "all of its processes to end", PATIENCE)


def assert_quiet(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    said = process.stderr.read()
    assert "Traceback" not in said and "BrokenPipe" not in said and "end-of-life" not in said, said


@pytest.mark.timeout(900)
def test_two_at_once_one_shows_everything_one_is_cut_short_and_neither_leaves_a_trace() -> None:
    with demo("-o", "json", "demo", "--keep") as process, demo("demo") as other:
        wait_until(
            lambda: other.poll() is not None or "java" in alive(children(other)), "Spark's JVM to start", PATIENCE
        )
        assert other.poll() is None, other.communicate()
        interrupt(other)
        assert other.returncode == 130
        assert_quiet(other)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        interrupt(process)
        assert process.returncode == 0  # Ctrl-C is how --keep is meant to end
        assert_quiet(process)
    report = json.loads(line)
    steps: list[dict[str, Any]] = report["steps"]
    assert len(steps) == 12 and all(step["seconds"] >= 0 for step in steps)
    merged = {name: value for step in steps for name, value in step.items()}
    notes = demo_notes()
    (dropped,) = [step for step in steps if "quarantined" in step]
    assert dropped["rows"] == {"bronze.tide_gauges": 5, "bronze.raw_notes": len(notes), "bronze.raw_imports": 600}
    assert len(dropped["quarantined"]) == 1
    assert set(merged["tables"]) == {"bronze", "silver", "gold"}
    assert merged["tables"]["silver"]["silver.processed_notes"] == len(notes)
    assert merged["tables"]["silver"]["silver.user_events"] == 600
    assert merged["tables"]["gold"]["gold.note_metrics"] == len(notes)
    now, then, gold = [step["rows"] for step in steps if isinstance(step.get("rows"), list)]
    assert now[0] == {"station": "Brest", "metres": 6.9} and then[0]["station"] == "Reykjavik"
    assert gold[0]["links_in"] > gold[-1]["links_in"] > 0
    assert [change["op"] for change in merged["changes"]] == ["UPDATE"]
    assert merged["hits"][0] == "Spring tides"
    assert merged["flipped"] in merged["named"] and "commit" in merged["named"]


def alive(processes: list[psutil.Process]) -> list[str]:
    """The names of those that still run; a process may end while it is looked at."""
    names = []
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            names += [one.name()] if one.status() != psutil.STATUS_ZOMBIE else []
    return names


def test_the_notes_are_the_same_in_every_run_and_read_like_notes() -> None:
    notes = demo_notes()
    assert notes == demo_notes() and 190 <= len(notes) <= 210
    assert all(body.startswith(b"---\ntitle:") for name, body in notes.items() if "/" in name)
    assert sum(b"[[" in body for body in notes.values()) > 150
    events = demo_events(list(notes))
    assert events == demo_events(list(notes)) and {name.rpartition(".")[2] for name in events} == {"csv", "jsonl"}
