"""Chooses the Node for aws-cdk-lib (jsii): the one on PATH if it is new enough, otherwise PyPI's wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.setup import ROOT, VENV, SetupFailed, say

NODE_MIN = 22  # older ones are past their end of life, and jsii warns about them at every start
LOCK = ROOT / "requirements" / "node.lock"


def ensure() -> None:
    """Installs the wheel if there is no Node that is new enough."""
    if _usable() is None:
        install()


def install() -> None:
    """Installs PyPI's wheel into the virtual environment."""
    say(f"no Node {NODE_MIN} or newer with npm on PATH; installing {LOCK.relative_to(ROOT)} (about 60 MB)")
    python, uv = VENV / "bin" / "python", VENV / "bin" / "uv"
    installer = [uv, "pip", "install", "--python", python] if uv.exists() else [python, "-m", "pip", "install"]
    command = [*installer, "--no-deps", "--require-hashes", "-r", LOCK]
    if subprocess.run([str(part) for part in command], stdout=sys.stderr).returncode:
        raise SetupFailed(
            f"Node could not be installed (its output is above). Install Node {NODE_MIN} or newer\n"
            "(apt-get install nodejs, dnf install nodejs, brew install node) and try again."
        )
    if not _is_new_enough(wheel()):
        raise SetupFailed(f"the wheel's {wheel()} does not run here: install Node {NODE_MIN} or newer and try again")
    say(f"Node: {wheel()} (version {major(wheel())})")


def path_entries() -> list[str]:
    """The wheel's directory if its Node is used; nothing if the Node on PATH is."""
    node = _usable()
    return [str(node.parent)] if node == wheel() else []


def _usable() -> Path | None:
    on_path = shutil.which("node")
    choices = ([Path(on_path)] if on_path else []) + [wheel()]
    return next((node for node in choices if _is_new_enough(node)), None)


def major(node: Path) -> int | None:
    try:
        version = subprocess.run([str(node), "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"v(\d+)\.", version.stdout)
    return int(match[1]) if match and version.returncode == 0 else None


def _is_new_enough(node: Path) -> bool:
    return (major(node) or 0) >= NODE_MIN


def wheel() -> Path:
    return VENV / "bin" / "node"
