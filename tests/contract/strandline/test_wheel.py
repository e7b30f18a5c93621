"""`pip install strandline` into an empty environment: the wheel, and of PyPI only what it says it needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from infra.stage import ROOT

NEEDED = ("cryptography", "httpx", "pyarrow")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    return Path(built)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and the packages in NEEDED with theirs, linked."""
    place = tmp_path_factory.mktemp("empty")
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    command = ["uv", "pip", "install", "--quiet", "--offline", "--no-cache", "--no-deps", "--no-index"]
    subprocess.run([*command, "--python", str(python), str(wheel)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    for name in sorted(closure(NEEDED)):
        found = distribution(name)
        tops = {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        for top in tops:
            (packages / top).symlink_to(str(found.locate_file(top)))
    return python


def closure(names: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            wanted = (Requirement(text) for text in distribution(name).requires or ())
            waiting += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def run(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STRANDLINE"))}
    return subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, env=environ, cwd="/")


def answer(python: Path, code: str) -> str:
    done = run(python, code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def required(wheel: Path) -> Iterator[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        for line in archive.read(metadata).decode().split("\n\n")[0].splitlines():
            if line.startswith("Requires-Dist: "):
                yield Requirement(line.removeprefix("Requires-Dist: "))


def test_only_the_clients_packages_come_with_it(wheel: Path) -> None:
    plain = {one.name for one in required(wheel) if "extra" not in str(one.marker or "")}
    assert plain == set(NEEDED)


def test_whoever_installs_a_part_of_the_lake_gets_what_every_part_needs(wheel: Path) -> None:
    extras: dict[str, set[str]] = {}
    for one in required(wheel):
        for extra in re.findall(r'extra == "([\w-]+)"', str(one.marker or "")):
            extras.setdefault(extra, set()).add(one.name)
    assert extras["server"] == {"aws-lambda-powertools", "boto3", "pydantic"}
    assert [extra for extra, names in extras.items() if not names >= extras["server"]] == ["bench", "verify"]


def test_the_package_is_typed_and_whole(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "strandline/py.typed" in names and {"catalog/merkle/verify.py", "cli/entry.py"} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "tools/"))]


@pytest.mark.parametrize("absent", ["boto3", "pydantic", "numpy", "pandas", "typer", "pyiceberg"])
def test_the_environment_is_as_empty_as_it_should_be(python: Path, absent: str) -> None:
    assert "ModuleNotFoundError" in run(python, f"import {absent}").stderr


def test_every_module_is_imported_there(python: Path) -> None:
    code = (
        "import importlib, json, pkgutil, strandline;"
        "names = sorted(one.name for one in pkgutil.iter_modules(strandline.__path__));"
        "[importlib.import_module(f'strandline.{name}') for name in names if name != 'feed_files'];"
        "[getattr(strandline, name) for name in strandline.__all__];"
        "print(json.dumps([strandline.__file__, names]))"
    )
    file, names = json.loads(answer(python, code))
    assert str(python.parent.parent) in file and {"lake", "verify", "feed_files"} <= set(names)


def test_a_query_is_asked_there(python: Path) -> None:
    code = """
import io, httpx, pyarrow as pa, strandline
def lake(request):
    rows = pa.table({"n": [1, None]}).replace_schema_metadata({"strandline:receipt": '{"index": 7}'})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return httpx.Response(200, content=sink.getvalue())
found = strandline.connect("https://lake.example", "token", transport=httpx.MockTransport(lake)).sql("select n")
assert found.rows() == [{"n": 1}, {"n": None}] and found.receipt == {"index": 7}
assert "<td>NULL</td>" in found._repr_html_()
for ask in (found.to_pandas, found.to_polars):
    try:
        ask()
    except strandline.MissingDependency as error:
        print(error)
"""
    assert answer(python, code).splitlines() == [
        "to_pandas() needs pandas: pip install pandas",
        "to_polars() needs polars: pip install polars",
    ]


def test_a_checkpoint_is_verified_there_and_a_feed_says_what_it_needs(python: Path) -> None:
    golden = ROOT / "tests" / "golden" / "timeline"
    verifier = json.loads((golden / "keys.json").read_text())["log"]["verifier"]
    code = f"""
import strandline
print(strandline.verify.checkpoint({str(golden / "checkpoints" / "300")!r}, key={verifier!r}).size)
try:
    strandline.verify.feed([], key={verifier!r}, table="a.b", uuid="c")
except strandline.MissingDependency as error:
    print(error)
"""
    size, said = answer(python, code).splitlines()
    assert (size, said) == ("300", "verifying a change feed needs numpy: pip install 'strandline[verify]'")


def test_the_command_says_what_it_needs(python: Path) -> None:
    done = subprocess.run([python.parent / "strandline", "login"], capture_output=True, text=True, cwd="/")
    assert done.returncode == 1 and "pip install 'strandline[cli]'" in done.stderr and "Traceback" not in done.stderr


def test_the_interpreter_is_ours(python: Path) -> None:
    assert answer(python, "import sys; print(sys.version_info[:2])") == str(sys.version_info[:2])
