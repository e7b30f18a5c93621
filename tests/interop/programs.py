"""The Go programs of this directory, and litewitness: built once for each version, under build/interop/."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "interop"
LITEWITNESS = "filippo.io/torchwood/cmd/litewitness"


@cache
def programs() -> Path:
    """The directory of the programs. Skips the test only where there is no Go."""
    sources = sorted([HERE / "go.mod", HERE / "go.sum", *HERE.glob("*/*.go")])
    version = sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    built = CACHE / version
    if built.exists():
        return built
    if shutil.which("go") is None:
        pytest.skip("needs Go, to build other implementations of the formats")
    partial = CACHE / f"{version}.{os.getpid()}"
    partial.mkdir(parents=True)
    # `local`: the Go that is here, and none that would be fetched. `readonly`: the versions of go.mod and go.sum alone.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_ENABLED": "0"}
    command = ["go", "build", "-o", f"{partial}/", "./...", LITEWITNESS]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    partial.rename(built)
    return built


def run(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end."""
    return subprocess.run([programs() / name, *words], capture_output=True, text=True)
