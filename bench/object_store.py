"""The S3 server for time measurements: versitygw with its data in memory, for us and for every peer.

The embedded cloud spends milliseconds of Python on each request, so times measured there say little about the engine.
versitygw checks signatures, evaluates If-Match and If-None-Match atomically, and is several times as fast. Go builds
it once, into build/bench; where that is not possible, the embedded cloud's S3 is used and the report says so. Glue,
and all request counts except GETs by key, stay on the embedded cloud.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3

if TYPE_CHECKING:
    from bench.timeline_world import Cloud

MODULE, VERSION = "github.com/versity/versitygw", "v1.8.0"
# That version's checksum in Go's checksum database: a mirror that delivers another is rejected.
SUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
BUILD_DIR = Path(__file__).parents[1] / "build" / "bench" / f"versitygw-{VERSION}"
KEYS = {"access": "bench", "secret": "x", "region": "us-east-1"}
MEMORY = Path("/dev/shm")


@dataclass
class ObjectStore:
    """An S3 endpoint that accepts requests signed with KEYS."""

    url: str
    gets: Callable[[], Counter[str]]
    """Returns the GETs by path since the last call."""

    def bucket(self) -> str:
        name = f"bench-{uuid4().hex[:12]}"
        session = boto3.Session(KEYS["access"], KEYS["secret"], region_name=KEYS["region"])
        session.client("s3", endpoint_url=self.url).create_bucket(Bucket=name)
        return name


@contextmanager
def object_store(running: Cloud) -> Iterator[ObjectStore]:
    """An empty store, removed with all its data at the end. Without versitygw uses the S3 of the cloud `running`."""
    program = build_versitygw()
    if program is None:
        yield ObjectStore(running.url, running.gets)
        return
    with tempfile.TemporaryDirectory(prefix="strandline-bench-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        data, log = Path(folder) / "data", Path(folder) / "log"
        data.mkdir()
        log.touch()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        options = ["--port", address, "--keep-alive", "--quiet", "--access-log", log]
        process = subprocess.Popen(
            [program, *options, "posix", *_posix(folder), data],
            env={**os.environ, "ROOT_ACCESS_KEY": KEYS["access"], "ROOT_SECRET_KEY": KEYS["secret"], "GOGC": "400"},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = dict(os.environ)
        # versitygw may take the checksum that Arrow's client sends after a chunked body for the connection's next
        # request, so no client sends one. Closing connections instead would cost every request half a millisecond.
        os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"
        try:
            _wait(process, address)
            with log.open() as lines:
                yield ObjectStore(f"http://{address}", lambda: _read(lines))
        finally:
            os.environ.clear()
            os.environ.update(before)
            process.terminate()
            process.wait(20)


def _read(log: Iterable[str]) -> Counter[str]:
    """The GETs by path in the new lines of the log. The server logs a request before it responds."""
    # owner bucket [time zone] address requester id operation key path status …
    requests = (line.split(" ") for line in log)
    return Counter(fields[9] for fields in requests if len(fields) > 9 and fields[7] == "s3_GetObject")


def _posix(folder: str) -> list[str]:
    """Options of the posix backend. Reads are of a few KB: allocating the default buffer of 1 MB for each would be
    most of their cost."""
    options = ["--io-buffer-size", str(1 << 16)]
    try:
        os.setxattr(folder, "user.strandline", b"x")
    except OSError:  # a tmpfs before Linux 6.6
        os.mkdir(f"{folder}/metadata")
        options += ["--sidecar", f"{folder}/metadata"]
    return options


def _wait(process: subprocess.Popen[bytes], address: str, seconds: float = 20.0) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"versitygw does not listen at {address} (exit code {process.poll()})")


def describe() -> str:
    """The name of the server that `object_store` uses; builds nothing."""
    exists = (BUILD_DIR / "versitygw").exists()
    return f"versitygw {VERSION.removeprefix('v')}" if exists else "the embedded cloud's S3, for want of versitygw"


@cache
def build_versitygw() -> Path | None:
    """The program, built if necessary, with two minutes of CPU time. None if it cannot be built.

    Raises RuntimeError when the built version has another checksum than SUM.
    """
    program, go = BUILD_DIR / "versitygw", shutil.which("go")
    if program.exists():
        return program
    if go is None:
        return None
    print(f"Building versitygw {VERSION} with Go. This takes some minutes, once.", file=sys.stderr)
    BUILD_DIR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD_DIR) as folder:
        command = [go, "install", f"{MODULE}/cmd/versitygw@{VERSION}"]
        install = subprocess.run(command, env={**os.environ, "GOBIN": folder}, capture_output=True, text=True)
        if install.returncode:
            print(f"The build failed; using the embedded cloud's S3.\n{install.stderr[-2000:]}", file=sys.stderr)
            return None
        info = subprocess.run([go, "version", "-m", f"{folder}/versitygw"], capture_output=True, text=True, check=True)
        if ["mod", MODULE, VERSION, SUM] not in [line.split() for line in info.stdout.splitlines()]:
            raise RuntimeError(f"the checksum of {MODULE} {VERSION} is not {SUM}: check the Go module proxy")
        (Path(folder) / "versitygw").rename(program)
    return program
