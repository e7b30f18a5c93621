"""Chooses the Node under aws-cdk-lib (jsii): the one on PATH when new enough, else PyPI's wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.setup import ROOT, VENV, SetupFailed, say

NODE_MIN = 22  # older ones are past their end of life, and jsii says so at every start
LOCK = ROOT / "requirements" / "node.lock"


def ensure() -> None:
    """The wheel is installed into the virtual environment, and only where PATH has nothing to offer."""
    if _found() is None:
        install()


def install() -> None:
    """PyPI's wheel, into the virtual environment."""
    say(f"no Node {NODE_MIN} or newer with npm on PATH; installing {LOCK.relative_to(ROOT)} (about 60 MB)")
    python, uv = VENV / "bin" / "python", VENV / "bin" / "uv"
    installer = [uv, "pip", "install", "--python", python] if uv.exists() else [python, "-m", "pip", "install"]
    command = [*installer, "--no-deps", "--require-hashes", "-r", LOCK]
    if subprocess.run([str(part) for part in command], stdout=sys.stderr).returncode:
        raise SetupFailed(
            f"Node could not be installed (its output is above). Install Node {NODE_MIN} or newer\n"
            "(apt-get install nodejs, dnf install nodejs, brew install node) and try again."
        )
    if not _will_do(wheel()):
        raise SetupFailed(f"the wheel was installed, but {wheel()} does not run on this machine")
    say(f"Node: {wheel()} (version {major(wheel())})")


def path_entries() -> list[str]:
    """What PATH lacks: nothing when its own Node will do."""
    found = _found()
    return [str(found.parent)] if found == wheel() else []


def _found() -> Path | None:
    on_path = shutil.which("node")
    choices = ([Path(on_path)] if on_path else []) + [wheel()]
    return next((node for node in choices if _will_do(node)), None)


def major(node: Path) -> int | None:
    try:
        answer = subprocess.run([str(node), "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"v(\d+)\.", answer.stdout)
    return int(found[1]) if found and answer.returncode == 0 else None


def _will_do(node: Path) -> bool:
    return (major(node) or 0) >= NODE_MIN


def wheel() -> Path:
    return VENV / "bin" / "node"
