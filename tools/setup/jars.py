"""Downloads the two Iceberg jars into build/jars, by Maven coordinates.

Uses `mvn` if it is installed, otherwise Spark's own Ivy, with the repositories that they are configured for. Neither is
trusted: a file whose SHA-256 is not the pinned one is deleted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from spark_jobs.releases import JARS, Jar
from tools.setup import ROOT, VENV, SetupFailed, java, say

JARS_DIRECTORY = ROOT / "build" / "jars"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.9.0:copy"

Fetch = Callable[[Sequence[Jar], Path], None]


def ensure() -> None:
    provide(JARS_DIRECTORY, [with_maven, with_ivy] if shutil.which("mvn") else [with_ivy])


def with_maven(jars: Sequence[Jar], incoming: Path) -> None:
    for jar in jars:
        say(f"fetching {jar.coordinates} with mvn")
        # Progress bars on a terminal, plain lines in a log.
        quiet = [] if sys.stderr.isatty() else ["--batch-mode"]
        command = ["mvn", *quiet, COPY, f"-Dartifact={jar.coordinates}", f"-DoutputDirectory={incoming}"]
        # Not in the checkout, where mvn would look for a project.
        if subprocess.run(command, stdout=sys.stderr, cwd=incoming).returncode:
            raise SetupFailed(f"mvn could not fetch {jar.coordinates} (its output is above)")


def with_ivy(jars: Sequence[Jar], incoming: Path) -> None:
    """Runs spark-submit with an empty program: it resolves packages before it starts the program."""
    submit = next(VENV.glob("lib/python*/site-packages/pyspark/bin/spark-submit"), None)
    if submit is None:
        raise SetupFailed("pyspark is not in the virtual environment: run `make setup` again")
    cache = incoming / "ivy"
    program = incoming / "empty.py"
    program.write_text("")
    coordinates = ",".join(jar.coordinates for jar in jars)
    say(f"fetching {coordinates} with Spark's Ivy (112 MB, a minute or more)")
    command = [str(submit), "--master", "local[1]", "--packages", coordinates]
    command += ["--conf", f"spark.jars.ivy={cache}", str(program)]
    environment = {**os.environ, **java.variables(), "SPARK_HOME": str(submit.parents[1])}
    environment["PYSPARK_PYTHON"] = sys.executable
    if subprocess.run(command, stdout=sys.stderr, cwd=incoming, env=environment).returncode:
        raise SetupFailed(f"Spark's Ivy could not fetch {coordinates} (its output is above)")
    for jar in jars:
        shutil.move(cache / "jars" / f"{jar.group}_{jar.file_name}", incoming / jar.file_name)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_pinned(jar: Jar, path: Path) -> bool:
    return path.exists() and sha256(path) == jar.sha256


def take(jar: Jar, fetched: Path, target: Path) -> None:
    """Moves a downloaded jar to its target if its digest is the pinned one, and deletes it otherwise."""
    digest = sha256(fetched)
    if digest != jar.sha256:
        fetched.unlink()
        raise SetupFailed(
            f"{jar.coordinates} does not have the pinned digest and was deleted:\n  expected {jar.sha256}\n"
            f"  got      {digest}\nTry again. If it happens again, the repository or a proxy alters the file."
        )
    os.replace(fetched, target)  # atomic: an interrupted run leaves no partial jar


def provide(directory: Path, fetchers: Sequence[Fetch]) -> None:
    """Downloads missing and damaged jars into the directory, with the first fetcher that succeeds."""
    targets = {jar: directory / jar.file_name for jar in JARS}
    missing = [jar for jar, path in targets.items() if not is_pinned(jar, path)]
    if not missing:
        return
    incoming = directory / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    try:
        _fetch(fetchers, missing, incoming)
        for jar in missing:
            take(jar, incoming / jar.file_name, targets[jar])
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _fetch(fetchers: Sequence[Fetch], jars: Sequence[Jar], incoming: Path) -> None:
    failures = []
    for fetch in fetchers:
        try:
            return fetch(jars, incoming)
        except SetupFailed as error:
            say(error.message)
            failures.append(error.message)
    raise SetupFailed(
        "\n".join(failures)
        + "\nCheck the network (mvn takes a proxy or mirror from ~/.m2/settings.xml), or put these into\n"
        + f"{JARS_DIRECTORY} by hand: "
        + ", ".join(jar.file_name for jar in jars)
    )
