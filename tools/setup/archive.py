"""Spark's classes, parsed once and kept in build/, so that every later Spark starts in half the time.

Only a cache: where it cannot be made, set-up goes on.
"""

from __future__ import annotations

import os
import subprocess

from tools.setup import ROOT, VENV, java, say


def ensure() -> None:
    command = [str(VENV / "bin" / "python"), "-m", "infra.local.emr.archive"]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **java.variables()}).returncode:
        say("the archive of Spark's classes could not be made (see above); Spark will start more slowly")
