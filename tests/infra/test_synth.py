"""`make synth` leaves the templates where `cdk` looks for them and says so; no runtime in them is past its end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from infra.stage import ROOT
from tests.infra.stages import STAGES, of_type, resources

# From AWS's tables of runtimes and releases: the day from which security fixes are no longer promised.
LAMBDA_RUNTIMES = {
    "nodejs22.x": date(2027, 4, 30),
    "nodejs24.x": date(2028, 4, 30),
    "python3.11": date(2027, 6, 30),
    "python3.12": date(2028, 10, 31),
    "python3.13": date(2029, 6, 30),
}


def test_it_says_which_templates_it_leaves_and_where(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("CDK_")}
    done = subprocess.run(
        [sys.executable, "-m", "infra.app"],
        cwd=tmp_path,
        env={**env, "PYTHONPATH": str(ROOT), "CDK_VALIDATION": "false"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    said = dict(re.findall(r"^(\S+)\s+(cdk\.out/\S+)$", done.stdout, re.MULTILINE))
    assert set(said) == {f"strandline-dev-{part}" for part in ("storage", "compute", "jobs", "api", "observe")}
    for place in said.values():
        assert json.loads((tmp_path / place).read_text())["Resources"]


def test_under_the_cdks_command_line_it_says_nothing_and_writes_where_it_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infra.app"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CDK_VALIDATION": "false", "CDK_OUTDIR": str(tmp_path / "there")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "there" / "manifest.json").exists() and not (tmp_path / "cdk.out").exists()


@pytest.mark.parametrize("stage", STAGES)
def test_no_function_has_a_runtime_past_its_end_of_support(stage: str) -> None:
    for name, body in of_type(stage, "AWS::Lambda::Function").items():
        if (runtime := body.get("Runtime")) is not None:  # one of an image has none
            assert LAMBDA_RUNTIMES.get(runtime, date.min) > date.today(), f"{name} runs on {runtime}"
    assert "nodejs20" not in json.dumps(resources(stage))


def test_the_images_start_from_a_python_that_is_supported() -> None:
    bases = {base for file in (ROOT / "infra" / "images").iterdir() for base in _bases(file.read_text())}
    assert bases
    for version in bases:
        assert LAMBDA_RUNTIMES.get(f"python{version}", date.min) > date.today(), (
            f"an image starts from Python {version}"
        )


def _bases(recipe: str) -> list[str]:
    return re.findall(r"^ARG BASE=\S+/lambda/python:([0-9.]+)", recipe, re.MULTILINE)
