"""Writes RESULTS.md and its plots from bench/results: one row per figure, with missed targets marked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.plots import svg

METHOD = """## Method

Everything runs on one machine. So figures over S3 show how engines compare and how many requests they send, not
the times on AWS.

- **Inserts, upserts, changes, queries, search, the router, ten leaves sequenced**: objects are in the S3 server that
  the machine's line names, which runs in its own process with its data in memory (`bench/object_store.py`) and
  enforces conditional writes. Ours and the peers use the same endpoint in the same run. DuckDB has no S3 client
  offline: it reads the same bytes as local files, which favours it. GETs of data are counted from the server's log.
- **All other request counts, jobs, ingestion, the API, and Glue everywhere**: the embedded cloud's API server (moto in
  memory, in its own process), with atomic conditional writes and Glue's `VersionId` enforced
  (`infra/local/hardening.py`). It spends milliseconds of CPU on every request, the same for us and for the peers.
- **The timeline at size**: SlateDB in memory; its requests are counted on the embedded cloud.

`spread` is the range from the 10th to the 90th percentile of a figure's samples, or of its values in several rounds;
a count has none.
"""


def write(results: Path, to: Path) -> Path:
    """Writes RESULTS.md to `to`, with its plots in a folder beside it. Returns its path."""
    reports = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    plots = to / "plots"
    lines = ["# Results", "", "<!-- Written by `make bench`. -->", "", *_machine(reports), "", *_summary(reports), ""]
    for report in reports:
        lines += [*_suite(report), ""]
        for figure in report["figures"]:
            if figure.get("plot"):
                plots.mkdir(parents=True, exist_ok=True)
                name = f"{report['suite']}-{_slug(figure['plot']['title'])}.svg"
                (plots / name).write_text(svg(figure["plot"]))
                lines += [f"![{figure['plot']['title']}](plots/{name})", ""]
    path = to / "RESULTS.md"
    path.write_text("\n".join([*lines, METHOD.rstrip(), ""]))
    return path


def _machine(reports: list[dict[str, Any]]) -> Iterator[str]:
    """Each machine once, with its suites: suites may have run on different machines."""
    suites_by_machine: dict[str, list[str]] = {}
    for report in reports:
        m = report["machine"]
        packages = ", ".join(f"{name} {version}" for name, version in m["packages"].items())
        text = f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB; {m['system']}; Python {m['python']}; {packages}"
        text += f"; objects on {m['object_store']}" if "object_store" in m else ""
        suites_by_machine.setdefault(text, []).append(report["suite"])
    for text, suites in suites_by_machine.items():
        yield f"- {', '.join(suites)}: {text}"


def _summary(reports: list[dict[str, Any]]) -> Iterator[str]:
    figures = [figure for report in reports for figure in report["figures"]]
    met, missed = (sum(figure["verdict"] == word for figure in figures) for word in ("met", "MISSED"))
    yield f"{len(figures)} figures, {met + missed} with a target: {met} met, {missed} missed."
    if any(report["quick"] for report in reports):
        yield "\n**A quick run with smaller sizes: a first look, not the real figures.**"


def _suite(report: dict[str, Any]) -> Iterator[str]:
    rounds = f", {report['rounds']} rounds" if report["rounds"] > 1 else ""
    yield f"## {report['suite']}"
    yield ""
    yield f"{report['taken']}, {report['seconds']:.0f} s{rounds}; load {report['machine']['load']} at the end."
    yield ""
    yield "| figure | measured | spread | target | |"
    yield "|---|---:|---:|---:|---|"
    for figure in report["figures"]:
        sign = "≤" if figure["better"] == "lower" else "≥"
        target = "" if figure["target"] is None else f"{sign} {_number(figure['target'])}"
        spread = "" if figure["spread"] is None else " – ".join(_number(value) for value in figure["spread"])
        verdict = "**missed**" if figure["verdict"] == "MISSED" else figure["verdict"]
        name = figure["name"].replace("|", "\\|")
        yield f"| {name} | {_number(figure['value'])} {figure['unit']} | {spread} | {target} | {verdict} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
