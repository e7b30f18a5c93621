"""Resolves pyproject.toml into the lock files: names, versions and hashes, without a registry's host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"

# Installed separately from the project: the installer, the build tools of source packages, and LocalStack for one test
# (the newest that runs without Docker and without a token, with the dependency versions that it supports).
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
}


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
    for lock in LOCKS.glob("*.lock"):
        if "://" in lock.read_text():
            sys.exit(f"{lock.name} names a host: a lock file has only names, versions and hashes")


if __name__ == "__main__":
    main()
