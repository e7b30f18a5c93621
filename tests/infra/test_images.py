"""The images: every package is locked by hash, for the image's Python and architecture, and has a wheel for it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from infra.app import build_app
from infra.local.assembly import LOCAL_CONTEXT
from infra.pinned_bases import TAGS
from infra.stacks.jobs import INTERPRETER
from infra.stage import ROOT, StageError, load_stage
from spark_jobs.releases import RELEASE_LABEL
from tests.infra.stages import STAGES, of_type
from tools.lock import IMAGE_PLATFORM, IMAGE_PYTHON, IMAGES

IMAGE_FILES = ROOT / "infra" / "images"
BASES = {"function_base": "functions", "job_base": "jobs"}
FUNCTIONS, JOBS = (IMAGE_FILES / f"{name}.Dockerfile" for name in ("functions", "jobs"))


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==(\S+)", (ROOT / "requirements" / lock).read_text(), re.M))


@pytest.mark.parametrize("name", IMAGES)
def test_an_images_lock_has_the_versions_of_the_lake_and_a_hash_for_each(name: str) -> None:
    text = (ROOT / "requirements" / "images" / f"{name}.lock").read_text()
    locked, everything = pins(f"images/{name}.lock"), pins("all.lock")
    assert locked and {package: everything.get(package) for package in locked} == locked
    assert text.count("==") == len(locked) and all(f"{package}==" in text for package in locked)
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


@pytest.mark.parametrize("recipe", [FUNCTIONS, JOBS], ids=lambda path: path.stem)
def test_an_image_installs_what_is_committed_and_resolves_nothing(recipe: object) -> None:
    text = recipe.read_text()  # type: ignore[attr-defined]
    assert "pip compile" not in text
    installs = [line for line in text.replace("\\\n", " ").splitlines() if "pip install" in line]
    assert installs
    for line in installs:
        assert all("--require-hashes" in part for part in line.split("&&") if "pip install" in part), line
        assert "--only-binary :all:" in line
    assert re.search(r"^ARG BASE=", text, re.M) and set(re.findall(r"^FROM (\S+)", text, re.M)) == {"${BASE}"}


@pytest.mark.parametrize("stage", STAGES)
def test_images_are_for_the_architecture_that_their_locks_are_for(stage: str) -> None:
    assert IMAGE_PLATFORM.startswith("x86_64-")
    for function in of_type(stage, "AWS::Lambda::Function").values():
        assert function["Architectures"] == ["x86_64"]
    (application,) = of_type(stage, "AWS::EMRServerless::Application").values()
    assert application["Architecture"] == "X86_64"
    assert f"python:{IMAGE_PYTHON}-x86_64" in FUNCTIONS.read_text()


def test_the_jobs_image_is_left_as_emr_asks_and_its_python_is_named() -> None:
    lines = [line for line in JOBS.read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if line.startswith(("USER", "WORKDIR"))][-2:] == [
        "USER hadoop:hadoop",
        "WORKDIR /home/hadoop",
    ]
    assert f"python{IMAGE_PYTHON} -m venv {INTERPRETER.removesuffix('/bin/python')}" in JOBS.read_text()
    (application,) = of_type("prod", "AWS::EMRServerless::Application").values()
    (defaults,) = application["RuntimeConfiguration"]
    for variable in ("driverEnv.PYSPARK_PYTHON", "driverEnv.PYSPARK_DRIVER_PYTHON"):
        assert defaults["Properties"][f"spark.emr-serverless.{variable}"] == INTERPRETER
    assert defaults["Properties"]["spark.executorEnv.PYSPARK_PYTHON"] == INTERPRETER


PINNED = f"registry.example/base@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("name", "changed", "errors", "warnings"),
    [
        ("prod", {"function_base": PINNED}, {"job_base": 1}, {}),
        ("dev", {}, {}, {"function_base": 3, "job_base": 1}),
    ],
)
def test_a_stage_that_retains_its_data_is_refused_without_digests(
    tmp_path: Path, name: str, changed: dict[str, str], errors: dict[str, int], warnings: dict[str, int]
) -> None:
    stages = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]
    stages[name] |= changed
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDK_VALIDATION", "false")
        assembly = build_app({**LOCAL_CONTEXT, "stage": name, "stages": stages}, str(tmp_path)).synth()
    said: dict[str, Counter[str]] = {"error": Counter(), "warning": Counter()}
    for stack in assembly.stacks:
        for message in stack.messages:
            setting = re.search(r"set (\w+) in cdk.json", str(message.entry.data))
            if setting:
                said[str(message.level.name).lower()][setting[1]] += 1
    assert said == {"error": errors, "warning": warnings}
    recipes = {setting: (IMAGE_FILES / f"{file}.Dockerfile").read_text() for setting, file in BASES.items()}
    for setting, tag in TAGS.items():  # what is said is what would be built
        assert f"ARG BASE={tag.replace(RELEASE_LABEL, '${RELEASE}')}\n" in recipes[setting]


def test_a_base_is_pinned_by_digest_or_not_at_all() -> None:
    stage = {"origin": "a/b", "retain_data": False, "log_retention_days": 7, "sweep_minutes": 1}
    pinned = f"registry.example/python@sha256:{'0' * 64}"
    assert load_stage("dev", {"stages": {"dev": {**stage, "function_base": pinned}}}).function_base == pinned
    with pytest.raises(StageError):
        load_stage("dev", {"stages": {"dev": {**stage, "job_base": "registry.example/spark:latest"}}})
