"""The verifier in Go that follows docs/spec/, and ours beside it: one question, two verdicts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from catalog.changes import ExpectedRows, FeedVerifier, RowProof
from catalog.core.errors import Unverified
from catalog.merkle import proof as proof_file
from catalog.merkle.checkpoint import open_checkpoint
from catalog.merkle.note import VerifierKey
from catalog.merkle.verify import ProofError
from catalog.timeline import Erasure, Erasures, parse_shown_leaf, read_as_of
from strandline.feed_files import read_sets

SOURCES = Path(__file__).parent / "verifier"
CACHE = SOURCES.parents[2] / "build" / "interop"


@cache
def program() -> Path:
    """The verifier, built from the standard library alone: nothing is fetched. Skips the test where there is no Go."""
    sources = sorted([SOURCES / "go.mod", *SOURCES.glob("*.go")])
    version = sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    built = CACHE / f"verifier-{version}"
    if built.exists():
        return built
    if shutil.which("go") is None:
        pytest.skip("needs Go, to build the second verifier")
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = CACHE / f"verifier-{version}.{os.getpid()}"
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", "GOPROXY": "off"}
    command = ["go", "build", "-o", str(partial), "."]
    done = subprocess.run(command, cwd=SOURCES, env=environment | {"CGO_ENABLED": "0"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    partial.replace(built)
    return built


@dataclass
class Verdicts:
    """Both verdicts on one question; they must agree."""

    process: subprocess.Popen[str]
    folder: Path
    keys: tuple[VerifierKey, ...]
    asked: int = 0
    accepted: int = 0

    def both(self, kind: str, data: bytes, **question: Any) -> bool:
        ours, why = self._ours(kind, data, **question)
        theirs, what = self._theirs(kind, data, **question)
        assert ours == theirs, f"Python: {ours} ({why}); Go: {theirs} ({what}); {kind} {question}: {data[:3000]!r}"
        self.asked += 1
        self.accepted += ours
        return ours

    def _theirs(self, kind: str, data: bytes, **question: Any) -> tuple[bool, str]:
        encoded = {name: _as_json(value) for name, value in question.items()}
        request = {"kind": kind, "keys": [str(key) for key in self.keys], "data": b64encode(data).decode()}
        request |= {"since": -1, "until": -1, **encoded}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the second verifier ended"
        response = json.loads(line)
        return response["ok"], response["what"]

    def _ours(self, kind: str, data: bytes, **question: Any) -> tuple[bool, str]:
        try:
            getattr(self, f"_{kind.replace('-', '_')}")(data, **question)
        except (Unverified, ProofError) as error:
            return False, str(error)
        return True, "verified"

    def _checkpoint(self, data: bytes, origin: str | None = None) -> None:
        open_checkpoint(data, self.keys, origin)

    def _proof(self, data: bytes, entry: bytes) -> None:
        proof_file.verify(data, entry, self.keys)

    def _leaf(self, data: bytes) -> None:
        parse_shown_leaf(data)

    def _as_of(self, data: bytes, *, checkpoint: bytes | None = None, uuid: str | None = None, **question: Any) -> None:
        known = None if checkpoint is None else open_checkpoint(checkpoint, self.keys)
        read_as_of(data).verify(self.keys, table_uuid=uuid, checkpoint=known, **question)

    def _row(
        self, data: bytes, *, key: str, checkpoint: bytes | None = None, uuid: str | None = None, **question: Any
    ) -> None:
        known = None if checkpoint is None else open_checkpoint(checkpoint, self.keys)
        asked = json.loads(key)
        keys = asked if isinstance(asked, list) else [asked]
        expected = ExpectedRows(keys=keys, table_uuid=uuid, checkpoint=known, **question)
        RowProof.read(data).verify_all(self.keys, None, expected)

    def _feed(
        self,
        data: bytes,
        *,
        table: str | None = None,
        uuid: str | None = None,
        since: int = -1,
        until: int = -1,
        checkpoint: bytes | None = None,
        writer: bool = False,
    ) -> None:
        kept = None if checkpoint is None else open_checkpoint(checkpoint, self.keys)
        path = self.folder / "feed.jsonl"
        path.write_bytes(data)
        demand: Any = "writer" if writer else "lake"
        verifier = FeedVerifier(self.keys, table, uuid, since, kept=kept, demand=demand)
        for changes in read_sets(str(path)):
            verifier.add(changes)
        verifier.finish(until)

    def _erasures(self, data: bytes, *, leaves: list[bytes], records: list[bytes]) -> None:
        chain, stored = [(at, parse_shown_leaf(entry)) for at, entry in enumerate(leaves)], list[tuple[str, Erasure]]()
        for record in records:
            with suppress(Unverified):  # one that is no record covers nothing
                stored.append(("", Erasure.decode(record)))
        if faults := Erasures.load(chain, stored).faults:
            raise Unverified(faults[0].what)


def _as_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return b64encode(value).decode() if isinstance(value, bytes) else value


@contextmanager
def verdicts(folder: Path, *keys: VerifierKey) -> Iterator[Verdicts]:
    process = subprocess.Popen([program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Verdicts(process, folder, keys)
    finally:
        process.kill()
        process.communicate()
