"""The CDK's command line: one npm package, pinned by its digest, in build/cdk. Deployments and their test use it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.setup import ROOT, SetupFailed, node, say

LOCK = ROOT / "requirements" / "cdk"
PLACE = ROOT / "build" / "cdk"
BIN = PLACE / "node_modules" / ".bin"
STAMP = PLACE / "lock.sha256"


def ensure() -> None:
    """`npm ci` of the lock: it holds the version and its digest, and no registry's host."""
    wanted = hashlib.sha256((LOCK / "package-lock.json").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted and (BIN / "cdk").exists():
        return
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCK / name, PLACE / name)
    say("installing the CDK's command line (28 MB)")
    path = os.pathsep.join([*node.path_entries(), os.environ.get("PATH", "")])
    command = [_npm(path), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=PLACE, env={**os.environ, "PATH": path}, stdout=sys.stderr)
    if done.returncode:
        raise SetupFailed("the CDK's command line could not be installed (npm's output is above); try again")
    STAMP.write_text(wanted)


def path_entries() -> list[str]:
    return [str(BIN)]


def _npm(path: str) -> str:
    """Node's own; where a system ships Node without it, the one of PyPI's wheel."""
    found = shutil.which("npm", path=path)
    if found is None:
        node.install()
        found = shutil.which("npm", path=str(Path(node.wheel()).parent))
    if found is None:
        raise SetupFailed("there is no npm: install it (apt-get install npm, brew install node) and try again")
    return found
