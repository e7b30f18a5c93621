"""`strandline dev`, as typed in a terminal: its lines paste into another one, and Ctrl-C ends it quietly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from infra.stage import ROOT
from tests.waiting import wait_until

PATIENCE = 120.0
CTRL_C = b"\x03"
GREETING_ENDS = '"$STRANDLINE_ENDPOINT/tables"\n'  # a terminal may hand over half a line before
_IN_TERMINAL = "import os, sys; os.login_tty(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
_SHELL = """set -eu
strandline() {{ "{python}" -m cli.main "$@"; }}
{lines}
strandline status > /dev/null
strandline table create silver.pasted --column id:long > /dev/null
strandline -o json query --fresh "select count(*) as n from silver.pasted"
strandline -o json api list silver
curl -fsS -H "Authorization: Bearer $STRANDLINE_TOKEN" "$STRANDLINE_ENDPOINT/tables"
"""


def outside() -> dict[str, str]:
    """The variables of a shell that knows nothing of set-up: `.venv/bin` is not on its PATH."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("STRANDLINE_", "AWS_", "JAVA_"))}
    own = os.path.dirname(sys.executable)
    path = [entry for entry in env["PATH"].split(os.pathsep) if os.path.realpath(entry) != os.path.realpath(own)]
    return {**env, "PATH": os.pathsep.join(path), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "TERM": "xterm"}


class Terminal:
    """A command in the foreground of a terminal of its own, which turns Ctrl-C into SIGINT for the whole group."""

    def __init__(self, *words: str) -> None:
        self._keyboard, screen = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _IN_TERMINAL, "-m", "cli.main", *words],
            env=outside(),
            stdin=screen,
            stdout=screen,
            stderr=screen,
        )
        os.close(screen)
        self._seen = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    def text(self) -> str:
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def processes(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def interrupt(self) -> int:
        """Ctrl-C; the exit code, once the command and all of its processes have ended."""
        there = self.processes()
        self.type(CTRL_C)
        code = self.process.wait(PATIENCE)
        wait_until(lambda: not any(running(one) for one in there), "all of its processes to end", PATIENCE)
        self._reader.join(10)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._keyboard)

    def _read(self) -> None:
        with suppress(OSError):  # nobody has the terminal open any more
            while chunk := os.read(self._keyboard, 65536):
                self._seen += chunk


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    opened = Terminal(*words)
    try:
        yield opened
    finally:
        opened.close()


def running(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def test_its_lines_paste_into_another_terminal_and_ctrl_c_ends_it_quietly() -> None:
    with terminal("dev", "--port", "0") as dev:
        wait_until(lambda: GREETING_ENDS in dev.text() or dev.process.poll() is not None, "the greeting", PATIENCE)
        lines = "\n".join(re.findall(r"^ *export .*$", dev.text(), re.MULTILINE))
        bare = {name: value for name, value in outside().items() if name in ("PATH", "HOME", "PYTHONPATH")}
        script = _SHELL.format(python=sys.executable, lines=lines)
        done = subprocess.run(["bash", "-c", script], env=bare, capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stderr) == (0, ""), f"{lines}\n{done.stderr}"
        queried, listed, fetched = map(json.loads, done.stdout.splitlines())
        assert (queried["rows"], listed, fetched["tables"]) == ([{"n": 0}], ["silver.pasted"], ["silver.pasted"])
        assert dev.interrupt() == 0  # Ctrl-C is how it is meant to end
        assert_quiet(dev.text())


MOMENTS: dict[str, Callable[[Terminal], object]] = {
    "Node starts": lambda dev: any("jsii-runtime" in " ".join(words(one)) for one in dev.processes()),
    "the stacks are synthesised": lambda dev: psutil.Process(dev.process.pid).net_connections("tcp4"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_while_it_starts_ends_it_quietly(moment: str) -> None:
    with terminal("dev", "--port", "0") as dev:
        wait_until(lambda: MOMENTS[moment](dev), moment, PATIENCE)
        assert dev.interrupt() == 130
        assert_quiet(dev.text())


def words(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process.cmdline()
    return []


def assert_quiet(text: str) -> None:
    assert not re.search("Traceback|BrokenPipe|KeyboardInterrupt|Error|Aborted|end-of-life", text), text
