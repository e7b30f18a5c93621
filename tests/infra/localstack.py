"""LocalStack as one process on loopback, its files in memory. It ends with the tests, however those end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from infra.local.assembly import MEMORY
from infra.local.endpoint import ACCOUNT, Endpoint
from tests.waiting import wait_until
from tools.setup.separate import LOCALSTACK

START_S, STOP_S = 300, 60
# The kernel ends it with its parent (PR_SET_PDEATHSIG): tests that are killed leave no server behind.
MAIN = """
import ctypes, runpy, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
runpy.run_module("localstack.runtime.main", run_name="__main__", alter_sys=True)
"""


class LocalStack:
    """Up when entered, gone when left: process, group and files. Installs itself where `make test` has not."""

    def __enter__(self) -> Self:
        LOCALSTACK.ensure()
        self.files = Path(
            tempfile.mkdtemp(prefix="strandline-localstack-", dir=MEMORY if os.path.isdir(MEMORY) else None)
        )
        port = _free_port()
        self.endpoint = Endpoint(f"http://127.0.0.1:{port}")
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.files),
            "TMPDIR": str(self.files),
            "FILESYSTEM_ROOT": str(self.files),
            "GATEWAY_LISTEN": f"127.0.0.1:{port}",
            "LOCALSTACK_HOST": f"127.0.0.1:{port}",
            "OVERRIDE_IN_DOCKER": "0",
            # A type that it does not know is an error, not a line in a log.
            "CFN_IGNORE_UNSUPPORTED_RESOURCE_TYPES": "0",
            # It asks nobody outside for anything.
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DISABLE_EVENTS": "1",
            "DNS_ADDRESS": "0",
            "LS_LOG": "warning",
        }
        with (self.files / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [LOCALSTACK.python, "-c", MAIN],
                env=environment,
                cwd=self.files,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def client(self, service: str) -> Any:
        """As the account's owner: in LocalStack a key id of twelve digits says which account one is in."""
        return self.endpoint.client(service, ACCOUNT)

    def log(self) -> str:
        return (self.files / "log").read_text(errors="replace")

    def _wait(self) -> None:
        def healthy() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"LocalStack ended with {self.process.returncode}:\n{self.log()}")
            try:
                with urllib.request.urlopen(f"{self.endpoint.url}/_localstack/health", timeout=10):
                    return True
            except (OSError, urllib.error.URLError):
                return False

        try:
            wait_until(healthy, "LocalStack to be up", START_S)
        except AssertionError as error:
            raise RuntimeError(f"{error}:\n{self.log()}") from None

    def _stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # and what it had started
        except ProcessLookupError:
            pass
        self.process.wait(STOP_S)
        shutil.rmtree(self.files)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
