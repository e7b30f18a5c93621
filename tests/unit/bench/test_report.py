"""What `make bench` writes: a missed target is shown as missed, spread and machine are told, growth is drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import boto3
import pytest

from bench import harness, report
from bench.harness import Figure, Plot
from bench.plots import svg

PLOT = Plot("Cost <of> growth", "commits", "ms", {"ours": [(1, 2.0), (10, 4.0)], "theirs": [(1, 1.0), (10, 300.0)]})


def some(quick: bool = False) -> list[Figure]:
    return [
        Figure("inserts / pyiceberg's", 6.5, "x", 5, "higher", samples=[6.0, 6.5, 9.0], plot=PLOT),
        Figure("GETs", 3, "requests", 2),
        Figure("rate", 12345.6, "rows/s", better="higher"),
    ]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setitem(harness.SUITES, "small", lambda quick: iter(some(quick)))
    return tmp_path


def test_a_missed_target_is_shown_as_missed(results: Path) -> None:
    harness.run(["small"], quick=False)
    text = report.write(results, results).read_text()
    assert "| inserts / pyiceberg's | 6.5 x | 6 – 9 | ≥ 5 | met |" in text
    assert "| GETs | 3 requests |  | ≤ 2 | **missed** |" in text
    assert "| rate | 12,346 rows/s |  |  |  |" in text
    assert "3 figures, 2 with a target: 1 met, 1 missed." in text
    assert f"{harness.machine()['cores']} cores" in text and "pyiceberg 0.12" in text
    assert "quick run" not in text


def test_quick_figures_never_take_the_place_of_real_ones(results: Path) -> None:
    harness.run(["small"], quick=False)
    before = (results / "small.json").read_bytes()
    harness.run(["small"], quick=True)
    assert (results / "small.json").read_bytes() == before
    assert json.loads((results / "quick" / "small.json").read_text())["quick"] is True
    assert "quick run" in report.write(results / "quick", results / "quick").read_text()


def test_of_several_rounds_the_median_counts_and_the_rest_is_spread(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([5.0, 1.0, 3.0])
    monkeypatch.setitem(harness.SUITES, "small", lambda quick: iter([Figure("f", next(values), "ms")]))
    (figure,) = harness.run(["small"], quick=False, rounds=3)["small"]
    assert figure.value == 3.0 and figure.spread == (1.0, 5.0)


def test_what_a_suite_says_in_the_environment_is_not_told_to_the_next(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(quick: bool) -> Iterator[Figure]:
        os.environ |= {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "first"}
        seen.append(_whom())
        yield Figure("f", 1, "")

    def _whom() -> str:
        """Who boto3 takes us for, and where it would ask."""
        client = boto3.client("s3", region_name="us-east-1")
        return f"{client._request_signer._credentials.access_key} at {client.meta.endpoint_url}"

    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setitem(harness.SUITES, "first", first)
    seen = list[str]()

    def second(quick: bool) -> Iterator[Figure]:
        os.environ["AWS_ACCESS_KEY_ID"] = "second"
        seen.append(_whom())
        yield Figure("g", 1, "")

    monkeypatch.setitem(harness.SUITES, "second", second)
    harness.run(["first", "second"], quick=True)
    assert seen == ["first at http://127.0.0.1:1", "second at https://s3.amazonaws.com"]


def test_growth_is_drawn_to_scale(results: Path) -> None:
    harness.run(["small"], quick=False)
    text = report.write(results, results).read_text()
    picture = results / "plots" / "small-cost-of-growth.svg"
    assert "(plots/small-cost-of-growth.svg)" in text
    root = ET.fromstring(picture.read_text())
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "Cost <of> growth"
    ours, theirs = [
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        for line in root.iter("{http://www.w3.org/2000/svg}polyline")
    ]
    assert ours[0][0] == theirs[0][0] < ours[1][0]
    assert theirs[1][1] < ours[1][1] < ours[0][1] < theirs[0][1], "more is higher up"


@pytest.mark.parametrize("log", [True, False])
def test_a_plot_of_one_point_or_none_is_still_a_picture(log: bool) -> None:
    for lines in ({}, {"ours": []}, {"ours": [(3.0, 0.0)]}, {"ours": [(3.0, 3.0)]}):
        ET.fromstring(svg(asdict(Plot("t", "x", "y", lines, log, log))))


def test_what_a_child_spent_is_counted_after_it_ended_though_its_parent_did_not_wait() -> None:
    parent = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = os.fork()
if child == 0:
    while time.process_time() < 0.4:  # the kernel counts in hundredths
        pass
    print("spent", flush=True)
    time.sleep(600)
sys.stdin.readline()
os.kill(child, signal.SIGKILL)
while True:
    try:
        os.kill(child, 0)
    except ProcessLookupError:
        break
print("ended", flush=True)
sys.stdin.readline()
"""
    before = harness.cpu_seconds()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", parent], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "spent\n"
        spent = harness.cpu_seconds()
        print("end it", file=process.stdin, flush=True)
        assert process.stdout.readline() == "ended\n"
        assert spent - before > 0.3 and harness.cpu_seconds() >= spent
        assert harness.cpu_seconds(without=[process.pid]) - before < spent - before
        print("end", file=process.stdin, flush=True)
