"""This machine: what `make setup`, `strandline dev` and `cdk deploy` need. Asks Node and Java for their versions."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from infra.doctor.finding import Check, Finding, run_checks
from spark_jobs import releases
from spark_jobs.session import JARS_DIRECTORY

PYTHON_MIN = (3, 11)
NODE_ENDS = {20: date(2026, 4, 30), 22: date(2027, 4, 30), 24: date(2028, 4, 30)}
"""The major versions that are maintained for long, and their end of life (nodejs.org's schedule)."""


def machine(today: date | None = None, jars: Path = JARS_DIRECTORY) -> Iterator[Finding]:
    checks: list[tuple[str, Check]] = [
        ("python", _python),
        ("node", lambda: _node(today or date.today())),
        ("java", _java),
        ("docker", _image_builder),
        ("jars", lambda: _jars(jars)),
    ]
    return run_checks(checks)


def _python() -> Finding:
    seen = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, PYTHON_MIN))
    return Finding(
        "python", sys.version_info >= PYTHON_MIN, seen, f"install Python {wanted} or newer, then `make setup`"
    )


def _node(today: date) -> Finding:
    install = "install Node 22 or newer, or run `make setup`, which brings one"
    text = _version("node", "--version")
    if text is None or not (major := re.match(r"v(\d+)", text)):
        return Finding("node", False, "not found", install)
    end = NODE_ENDS.get(int(major[1]), date.max if int(major[1]) > max(NODE_ENDS) else date.min)
    state = "" if end > today else ", past its end of life"
    return Finding("node", end > today, f"{text}{state}", install)


def _java() -> Finding:
    install = f"install Java {releases.JAVA_MIN} to {releases.JAVA_MAX}, and set JAVA_HOME"
    text = _version("java", "-version")
    if text is None or not (version := re.search(r'version "(\d+)', text)):
        return Finding("java", False, "not found", install)
    good = releases.JAVA_MIN <= int(version[1]) <= releases.JAVA_MAX
    return Finding("java", good, version[1], install)


def _image_builder() -> Finding:
    found = next((name for name in ("docker", "finch", "podman", "buildah") if shutil.which(name)), None)
    return Finding("docker", found is not None, found or "not found", "install Docker: `cdk deploy` builds four images")


def _jars(directory: Path) -> Finding:
    missing = [jar.file_name for jar in releases.JARS if not (directory / jar.file_name).exists()]
    seen = f"{', '.join(missing)} missing" if missing else f"{len(releases.JARS)} of Iceberg"
    return Finding("jars", not missing, seen, "run `make setup`")


def _version(command: str, option: str) -> str | None:
    path = shutil.which(command)
    if path is None:
        return None
    done = subprocess.run([path, option], capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout + done.stderr).strip()
