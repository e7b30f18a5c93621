"""The CDK's command line: one npm package, pinned by its digest, in build/cdk. For deployments and their test."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.setup import ROOT, SetupFailed, node, say

LOCK = ROOT / "requirements" / "cdk"
FOLDER = ROOT / "build" / "cdk"
BIN = FOLDER / "node_modules" / ".bin"
STAMP = FOLDER / "lock.sha256"


def ensure() -> None:
    """Runs `npm ci` with the lock, which has the version and its digest, and no registry's host."""
    digest = hashlib.sha256((LOCK / "package-lock.json").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == digest and (BIN / "cdk").exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCK / name, FOLDER / name)
    say("installing the CDK's command line (28 MB)")
    path = os.pathsep.join([*node.path_entries(), os.environ.get("PATH", "")])
    command = [_npm(path), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=FOLDER, env={**os.environ, "PATH": path}, stdout=sys.stderr)
    if done.returncode:
        raise SetupFailed("the CDK's command line could not be installed (npm's output is above); try again")
    STAMP.write_text(digest)


def path_entries() -> list[str]:
    return [str(BIN)]


def _npm(path: str) -> str:
    """The npm on PATH; if there is none, that of PyPI's Node wheel."""
    npm = shutil.which("npm", path=path)
    if npm is None:
        node.install()
        npm = shutil.which("npm", path=str(Path(node.wheel()).parent))
    if npm is None:
        raise SetupFailed("there is no npm: install it (apt-get install npm, brew install node) and try again")
    return npm
