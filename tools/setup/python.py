"""The virtual environment with the locked dependencies. Does nothing if the locks have not changed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv

from tools.setup import ROOT, VENV, SetupFailed, say

BIN = VENV / "bin"
LOCKS = ROOT / "requirements"
STAMP = VENV / "strandline-locks.sha256"
ROOMS = ("catalog", "cli", "functions", "infra", "spark_jobs", "strandline", "bench", "tests")
OLDEST = (3, 11)


def ensure() -> None:
    if sys.version_info[:2] < OLDEST:
        version = sys.version.split()[0]
        raise SetupFailed(f"Python 3.11 or newer is needed, this is {version}. Try: make PYTHON=python3.12 …")
    digest = _digest()
    if not (STAMP.exists() and STAMP.read_text() == digest and (BIN / "strandline").exists()):
        _install()
        STAMP.write_text(digest)
    # Compiles changed files, as in an image: a lake is dozens of processes, and without stored bytecode each would
    # compile them. Errors are ignored here: the tests report a file that does not compile.
    subprocess.run([BIN / "python", "-m", "compileall", "-qq", *ROOMS], cwd=ROOT)


def _install() -> None:
    if not (BIN / "python").exists():
        say("creating the virtual environment in .venv")
        venv.create(VENV, with_pip=True, clear=True, symlinks=True)
    run(
        "the installer",
        BIN / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "-r",
        LOCKS / "setup.lock",
    )
    say("installing the locked dependencies: 2 GB unpacked, pyspark built from source; a minute or two")
    uv = (BIN / "uv", "pip")
    into = ("--python", BIN / "python")
    build = ("--build-constraints", LOCKS / "build.lock")
    run("the dependencies", *uv, "sync", *into, "--compile-bytecode", "--require-hashes", *build, LOCKS / "all.lock")
    run(
        "the project itself",
        *uv,
        "install",
        *into,
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--editable",
        ROOT,
    )


def _digest() -> str:
    files = (*sorted(LOCKS.glob("*.lock")), ROOT / "pyproject.toml")
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def run(what: str, *command: object) -> None:
    """Runs an installer, which shows its own progress; SetupFailed says what to do if it fails."""
    # A network with its own certificate authority sets PIP_CERT for pip; uv reads SSL_CERT_FILE.
    certificates = {"SSL_CERT_FILE": os.environ["PIP_CERT"]} if "PIP_CERT" in os.environ else {}
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env={**certificates, **os.environ})
    if done.returncode:
        raise SetupFailed(
            f"installing {what} ended with exit code {done.returncode}; see the lines above.\n"
            "A package registry must be reachable; run the same make command to continue."
        )
