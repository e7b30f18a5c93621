"""The commands of a document, and how a test runs them: in bash, with `strandline`, `aws`, `cdk` answered by the test.

A document becomes a script by blanking out everything that is no command: each line keeps its number.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from botocore.exceptions import ClientError
from typer.testing import CliRunner

from catalog.core.errors import as_lake_error
from cli.main import app
from tests.guides import aws_command

SHELL = ("sh", "bash", "console")
_FENCE = re.compile(r"^\s*```\s*(\w*)")
# A tool in the scripts: its words, place and input go to the test; what comes back is its own.
_ASKS = """#!{python} -IS
import base64, json, os, socket, sys
given = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
asked = {{"words": sys.argv, "cwd": os.getcwd(), "stdin": base64.b64encode(given).decode()}}
with socket.socket(socket.AF_UNIX) as line:
    line.connect({path!r})
    line.sendall(json.dumps(asked).encode() + b"\\n")
    answer = json.loads(line.makefile().readline())
sys.stdout.buffer.write(base64.b64decode(answer["out"]))
sys.stderr.write(answer["err"])
sys.stdout.flush()
sys.exit(answer["code"])
"""


def script_of(text: str, left_out: Callable[[str], bool] = lambda _: False) -> str:
    """Of a `console` block, what follows a `$ `; of a shell's, everything."""
    lines, kind = list[str](), ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if fence:
            kind = "" if kind else fence[1] or "text"
            lines.append("")
            continue
        command = line if kind in ("sh", "bash") else line.removeprefix("$ ") if line.startswith("$ ") else ""
        command = command if kind in SHELL else ""
        lines.append("" if left_out(command.partition("  #")[0].strip()) else command)
    return "\n".join(lines)


def python_of(text: str) -> str:
    """The Python of a document, as one program; each line keeps its number."""
    lines, kind = list[str](), ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        kind = kind if fence is None else "" if kind else fence[1] or "text"
        lines.append(line if kind == "python" and fence is None else "")
    return "\n".join(lines)


def sections(text: str, *wanted: str) -> str:
    """The document with all but the sections of these headings blanked out; a heading that is not there is an error."""
    lines, heading, met = list[str](), "", set[str]()
    for line in text.splitlines():
        heading = line.removeprefix("## ") if line.startswith("## ") else heading
        met.add(heading)
        lines.append(line if heading in wanted else "")
    assert met >= set(wanted), f"no such sections: {set(wanted) - met}"
    return "\n".join(lines)


@dataclass(frozen=True)
class Invocation:
    """A tool's words after its name, where it was called, and what was piped into it."""

    words: list[str]
    cwd: Path
    stdin: bytes


@dataclass(frozen=True)
class Said:
    code: int = 0
    out: bytes = b""
    err: str = ""


Tool = Callable[[Invocation], Said]


class Bench:
    """A directory to run scripts in, with the tools on its PATH and `.venv/bin` as a checkout has it."""

    def __init__(self, folder: Path, tools: Mapping[str, Tool]) -> None:
        self._folder, self._tools, self._lock = folder, tools, threading.Lock()
        self._path = folder / "tools"
        self._path.mkdir(parents=True)
        for name in tools:
            self._program(name, _ASKS.format(python=sys.executable, path=str(self._path / "asked")))
        self._program("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        self._line = socket.socket(socket.AF_UNIX)
        self._line.bind(str(self._path / "asked"))
        self._line.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._line.close()

    def run(self, name: str, script: str, variables: Mapping[str, str]) -> None:
        """In a directory of its own; the first command that fails is named with its line."""
        place = self._folder / name
        if not place.exists():
            (place / ".venv").mkdir(parents=True)
            (place / ".venv" / "bin").symlink_to(self._path)
        trap = "trap 'echo \"line $LINENO: $BASH_COMMAND: exit code $?\" >&2' ERR; set -euo pipefail; "
        env = {"PATH": f"{self._path}:{os.environ['PATH']}", "HOME": str(place), "NO_COLOR": "1", **variables}
        command, closed = ["bash", "-c", trap + script], subprocess.DEVNULL
        done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, stdin=closed)
        assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}\n{done.stdout[-1500:]}"
        # A command that says it succeeded must not have failed half-way either.
        assert "Traceback" not in done.stderr, f"{name}: {done.stderr[-3000:]}"

    def _program(self, name: str, text: str) -> None:
        (self._path / name).write_text(text)
        (self._path / name).chmod(0o755)

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._line.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with line:
            told = json.loads(line.makefile().readline())
            name, *words = told["words"]
            asked = Invocation(words, Path(told["cwd"]), base64.b64decode(told["stdin"]))
            try:
                with self._lock:
                    said = self._tools[Path(name).name](asked)
            except Exception as error:  # of the test, not of the command: said where the command's would be
                said = Said(70, err=f"{type(error).__name__}: {error}\n")
            answer = {"code": said.code, "out": base64.b64encode(said.out).decode(), "err": said.err}
            line.sendall(json.dumps(answer).encode() + b"\n")


def strandline(wait_until_idle: Callable[[], None]) -> Tool:
    """What the command would do; whatever the lake still had to do is done first, as if a moment had gone by."""

    def run(asked: Invocation) -> Said:
        wait_until_idle()
        before = os.getcwd()
        os.chdir(asked.cwd)
        try:
            with _logged() as logged:
                result = CliRunner().invoke(app, asked.words, input=asked.stdin)
        finally:
            os.chdir(before)
        code, said = result.exit_code, result.stderr + logged.getvalue()
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            known = as_lake_error(result.exception)
            code, said = known.kind.exit_code, f"{said}{known.kind.name}: {known.message}\n"
        return Said(code, result.stdout_bytes, said)

    return run


@contextmanager
def _logged() -> Iterator[io.StringIO]:
    """What the lake logs meanwhile. The command's own process would print it to stderr; here pytest takes it."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setLevel(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("catalog", "cli")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield text
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def aws(client: aws_command.Clients) -> Tool:
    def run(asked: Invocation) -> Said:
        try:
            return Said(out=aws_command.answer(asked.words, client, asked.cwd, asked.stdin).encode())
        except (aws_command.NotSaid, ClientError) as error:
            return Said(254, err=f"aws {' '.join(asked.words)}: {error}\n")

    return run
