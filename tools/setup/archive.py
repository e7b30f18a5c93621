"""A class-data archive of Spark in build/: with it, Spark starts in half the time.

Only a cache: if it cannot be created, set-up continues.
"""

from __future__ import annotations

import os
import subprocess

from tools.setup import ROOT, VENV, java, say


def ensure() -> None:
    command = [str(VENV / "bin" / "python"), "-m", "infra.local.emr.archive"]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **java.variables()}).returncode:
        say("the archive of Spark's classes could not be created (see above): Spark will start more slowly")
