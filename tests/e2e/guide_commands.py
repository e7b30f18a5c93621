"""The commands of a document, and how a test runs them: in bash, with `strandline` answered by the test's own process.

A document becomes a script by blanking out everything that is no command: each line keeps its number.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from catalog.errors import as_lake_error
from cli.main import app

SHELL = ("sh", "bash", "console")
_FENCE = re.compile(r"^\s*```\s*(\w*)")
# `strandline` in the scripts: its words, place and input go to the test; what comes back is its own.
_ASKS = """#!{python} -IS
import base64, json, os, socket, sys
given = base64.b64encode(sys.stdin.buffer.read()).decode()
asked = {{"words": sys.argv, "cwd": os.getcwd(), "stdin": given}}
with socket.socket(socket.AF_UNIX) as line:
    line.connect({path!r})
    line.sendall(json.dumps(asked).encode() + b"\\n")
    answer = json.loads(line.makefile().readline())
sys.stdout.buffer.write(base64.b64decode(answer["out"]))
sys.stderr.write(answer["err"])
sys.stdout.flush()
sys.exit(answer["code"])
"""


def script_of(text: str, left_out: Callable[[str], bool]) -> str:
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


class Bench:
    """A directory to run scripts in, with `strandline` and `aws s3 cp` on its PATH."""

    def __init__(self, folder: Path, settle: Callable[[], None], copy: Callable[[str, str], None]) -> None:
        self._folder, self._settle, self._copy = folder, settle, copy
        self._tools, self._lock = folder / "tools", threading.Lock()
        self._tools.mkdir(parents=True)
        path = str(self._tools / "asked")
        for name in ("strandline", "aws"):
            (self._tools / name).write_text(_ASKS.format(python=sys.executable, path=path))
            (self._tools / name).chmod(0o755)
        self._line = socket.socket(socket.AF_UNIX)
        self._line.bind(path)
        self._line.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._line.close()

    def run(self, name: str, script: str, variables: dict[str, str]) -> None:
        """In a directory of its own; the first command that fails is named with its line."""
        place = self._folder / name
        if not place.exists():
            (place / ".venv" / "bin").mkdir(parents=True)
            (place / ".venv" / "bin" / "strandline").symlink_to(self._tools / "strandline")
        trap = "trap 'echo \"line $LINENO: $BASH_COMMAND: exit code $?\" >&2' ERR; set -euo pipefail; "
        env = {"PATH": f"{self._tools}:{os.environ['PATH']}", "HOME": str(place), "NO_COLOR": "1", **variables}
        command, closed = ["bash", "-c", trap + script], subprocess.DEVNULL
        done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, stdin=closed)
        assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}\n{done.stdout[-1500:]}"

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._line.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with line:
            asked = json.loads(line.makefile().readline())
            tool, words = Path(asked["words"][0]).name, asked["words"][1:]
            try:
                with self._lock:
                    answer = self._strandline(words, asked) if tool == "strandline" else self._aws(words, asked)
            except Exception as error:  # of the test, not of the command: said where the command's would be
                answer = {"code": 70, "out": "", "err": f"{type(error).__name__}: {error}\n"}
            line.sendall(json.dumps(answer).encode() + b"\n")

    def _strandline(self, words: list[str], asked: dict[str, Any]) -> dict[str, Any]:
        """What the command would do; whatever the lake still had to do is done first, as if a moment had gone by."""
        self._settle()
        before = os.getcwd()
        os.chdir(asked["cwd"])
        try:
            result = CliRunner().invoke(app, words, input=base64.b64decode(asked["stdin"]))
        finally:
            os.chdir(before)
        code, said = result.exit_code, result.stderr
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            known = as_lake_error(result.exception)
            code, said = known.kind.exit_code, f"{said}{known.kind.name}: {known.message}\n"
        return {"code": code, "out": base64.b64encode(result.stdout_bytes).decode(), "err": said}

    def _aws(self, words: list[str], asked: dict[str, Any]) -> dict[str, Any]:
        """`aws s3 cp FILE s3://BUCKET/KEY`; a KEY that ends in / keeps the file's name."""
        if words[:2] != ["s3", "cp"] or len(words) != 4:
            return {"code": 2, "out": "", "err": f"here, aws can only `s3 cp FILE URL`, not {words}\n"}
        self._copy(str(Path(asked["cwd"]) / words[2]), words[3])
        return {"code": 0, "out": "", "err": ""}
