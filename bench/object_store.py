"""The S3 server that time figures over S3 are taken on: versitygw with its data in memory, for us and for every peer.

The embedded cloud spends milliseconds of Python on each request, so a figure taken there says little of the engine
that asked. versitygw checks signatures, decides If-Match and If-None-Match one at a time, and is several times as
quick. It is built once, by Go, into build/bench; where that cannot be, the embedded cloud's S3 stands in for it and
the report says so. Glue, and every count of requests that is not one of GETs by key, stay with the embedded cloud.
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
# What Go's checksum database says of that version: a mirror that gives something else is not believed.
SUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
BUILT = Path(__file__).parents[1] / "build" / "bench" / f"versitygw-{VERSION}"
KEYS = {"access": "bench", "secret": "x", "region": "us-east-1"}
MEMORY = Path("/dev/shm")


@dataclass
class ObjectStore:
    """An S3 endpoint for whoever signs with KEYS."""

    url: str
    gets: Callable[[], Counter[str]]
    """How often each path was read since the last call."""

    def bucket(self) -> str:
        name = f"bench-{uuid4().hex[:12]}"
        session = boto3.Session(KEYS["access"], KEYS["secret"], region_name=KEYS["region"])
        session.client("s3", endpoint_url=self.url).create_bucket(Bucket=name)
        return name


@contextmanager
def object_store(running: Cloud) -> Iterator[ObjectStore]:
    """Empty, and gone afterwards with all it held. `running` is the cloud that stands in where there is no other."""
    program = built()
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
        serving = ["--port", address, "--keep-alive", "--quiet", "--access-log", log]
        process = subprocess.Popen(
            [program, *serving, "posix", *_posix(folder), data],
            env={**os.environ, "ROOT_ACCESS_KEY": KEYS["access"], "ROOT_SECRET_KEY": KEYS["secret"], "GOGC": "400"},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = dict(os.environ)
        # What Arrow's client sends after a chunked body, a checksum, versitygw may take for the next request of the
        # connection. Nobody sends one here: closing connections instead would cost everybody half a millisecond.
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
    """Of the lines that are new. A request is in the log before it is answered."""
    # owner bucket [time zone] address requester id operation key path status …
    asked = (line.split(" ") for line in log)
    return Counter(fields[9] for fields in asked if len(fields) > 9 and fields[7] == "s3_GetObject")


def _posix(folder: str) -> list[str]:
    """Readers ask for a few KB at a time: a buffer of the usual MB for each is most of what such a read costs."""
    options = ["--io-buffer-size", str(1 << 16)]
    try:
        os.setxattr(folder, "user.strandline", b"x")
    except OSError:  # a tmpfs before Linux 6.6
        os.mkdir(f"{folder}/metadata")
        options += ["--sidecar", f"{folder}/metadata"]
    return options


def _wait(process: subprocess.Popen[bytes], address: str, seconds: float = 20.0) -> None:
    host, port = address.split(":")
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"versitygw does not listen at {address} (it ended with {process.poll()})")


def described() -> str:
    """What `object_store` gives; builds nothing."""
    there = (BUILT / "versitygw").exists()
    return f"versitygw {VERSION.removeprefix('v')}" if there else "the embedded cloud's S3, for want of versitygw"


@cache
def built() -> Path | None:
    """The program, built if need be: two minutes of processor time, once. None where it cannot be."""
    program, go = BUILT / "versitygw", shutil.which("go")
    if program.exists():
        return program
    if go is None:
        return None
    print(f"Building versitygw {VERSION} with Go: once, some minutes.", file=sys.stderr)
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        asked = [go, "install", f"{MODULE}/cmd/versitygw@{VERSION}"]
        made = subprocess.run(asked, env={**os.environ, "GOBIN": folder}, capture_output=True, text=True)
        if made.returncode:
            print(f"It cannot be built; the embedded cloud's S3 is used.\n{made.stderr[-2000:]}", file=sys.stderr)
            return None
        told = subprocess.run([go, "version", "-m", f"{folder}/versitygw"], capture_output=True, text=True, check=True)
        if ["mod", MODULE, VERSION, SUM] not in [line.split() for line in told.stdout.splitlines()]:
            raise RuntimeError(f"{MODULE} {VERSION} is not what it was: its sum is not {SUM}")
        (Path(folder) / "versitygw").rename(program)
    return program
