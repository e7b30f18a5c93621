"""The command, in this process and in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from typer.testing import CliRunner

from cli.main import app


def run(*words: str, stdin: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, list(words), input=stdin)


def answer(*words: str, stdin: str | bytes | None = None) -> Any:
    result = run("--output", "json", *words, stdin=stdin)
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def strandline(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own: exit codes as a shell sees them."""
    code = "import sys; from cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code, *words], input=stdin, capture_output=True, timeout=300)
