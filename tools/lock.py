"""Resolves pyproject.toml into the lock files: names, versions and hashes, without a registry's host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"

# Installed separately from the project: the installer, the build tools of source packages, LocalStack for one test
# (the newest that runs without Docker and without a token, with the dependency versions that it supports), and
# TPC-DS's generator, an extension for one version of DuckDB that is not the lake's.
SEPARATE = {
    "setup.lock": ["uv==0.13.7"],
    "build.lock": ["hatchling==1.33.0", "editables==0.5", "setuptools==84.2.1"],
    "localstack.lock": [
        "localstack-core[runtime]==4.9.2",
        "cbor2<6",
        "cryptography<47",
        "localstack-twisted<26",
        "pyopenssl<26",
    ],
    "tpcds.lock": ["duckdb==1.5.5", "duckdb-extension-tpcds==1.5.5"],
}


# The images of functions and jobs, by the extras that they install; for the Python and the architecture of their bases.
IMAGES = {
    "timeline": ["timeline"],
    "ingest": ["ingest"],
    "api": ["api"],
    "jobs": ["ingest", "notes", "query", "vectors"],
}
IMAGE_PYTHON, IMAGE_PLATFORM = "3.12", "x86_64-manylinux_2_28"


def compile_image_lock(name: str, extras: list[str]) -> None:
    """The versions of all.lock. From wheels only: the images have no compiler."""
    (LOCKS / "images").mkdir(exist_ok=True)
    command = ["uv", "pip", "compile", "pyproject.toml", "--constraint", str(LOCKS / "all.lock"), "--generate-hashes"]
    command += [part for extra in extras for part in ("--extra", extra)]
    command += ["--python-version", IMAGE_PYTHON, "--python-platform", IMAGE_PLATFORM, "--only-binary", ":all:"]
    command += ["--no-emit-index-url", "--no-header", "--no-annotate", "--quiet"]
    print(f"locking images/{name}.lock …", file=sys.stderr)
    subprocess.run([*command, "-o", str(LOCKS / "images" / f"{name}.lock")], cwd=ROOT, check=True)


def compile_lock(target: str, arguments: list[str], stdin: str | None = None) -> None:
    command = ["uv", "pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-emit-index-url", "--no-header", "--quiet", "-o", str(LOCKS / target), *arguments]
    print(f"locking {target} …", file=sys.stderr)
    subprocess.run(command, cwd=ROOT, check=True, input=stdin, text=True)


def main() -> None:
    LOCKS.mkdir(exist_ok=True)
    compile_lock("all.lock", ["pyproject.toml", "--extra", "dev"])
    for name, packages in SEPARATE.items():
        compile_lock(name, ["-"], stdin="\n".join(packages))
    for name, extras in IMAGES.items():
        compile_image_lock(name, extras)
    for lock in LOCKS.rglob("*.lock"):
        if "://" in lock.read_text():
            sys.exit(f"{lock.name} names a host: a lock file has only names, versions and hashes")


if __name__ == "__main__":
    main()
