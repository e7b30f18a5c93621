"""`strandline witness`: a key of one's own, and a witness that keeps its word over restarts."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from catalog.lake import Lake
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.cosignature import WitnessKey, read_cosignatures
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.witness import AddCheckpoint, origin_hash
from infra.local.server import ApiServer
from tests.worlds.cli import answer, run
from tests.worlds.lake import lake_on

LOG = Ed25519Signer.generate("neighbour.example/lake")
NAME = "witness.example/w1"


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        yield made


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    answer("witness", "keygen", str(tmp_path / "witness.key"), "--name", NAME)
    return tmp_path / "witness.key"


@contextmanager
def running(*words: str) -> Iterator[dict[str, str]]:
    """The command in a process of its own, killed without warning at the end; what it said when it listened."""
    code = "from cli.main import main; main()"
    command = [sys.executable, "-c", code, "-o", "json", "witness", "run", *words, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            line = process.stdout.readline()
            yield json.loads(line) if line else pytest.fail(process.stderr.read())
        finally:
            process.kill()


def checkpoint(size: int, root: bytes = b"r" * 32) -> bytes:
    return Checkpoint(LOG.name, size, root).sign([LOG])


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "witness.key"
    previous = os.umask(0)
    try:
        made = answer("witness", "keygen", str(file), "--name", NAME)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert WitnessKey.parse(made["key"]).name == NAME
    secret = file.read_text()
    assert secret.startswith("PRIVATE+KEY+") and secret.split("+")[-1].strip() not in json.dumps(made)
    again = run("witness", "keygen", str(file), "--name", NAME)
    assert again.exception.kind.exit_code == 2 and file.read_text() == secret
    for name in ("", "with space", "with+plus"):
        refused = run("witness", "keygen", str(tmp_path / "other.key"), "--name", name)
        assert refused.exception.kind.exit_code == 2 and not (tmp_path / "other.key").exists()


def test_a_key_that_others_may_read_is_refused(lake: Lake, key_file: Path) -> None:
    key_file.chmod(0o640)
    refused = run("witness", "run", str(key_file), "--log", str(LOG.verifier_key))
    assert refused.exception.kind.exit_code == 2 and "chmod 600" in str(refused.exception)


def test_what_cannot_be_run_is_said_before_it_listens(lake: Lake, key_file: Path, tmp_path: Path) -> None:
    log = ["--log", str(LOG.verifier_key)]
    own = tmp_path / "log.key"
    own.write_text(LOG.private_key())
    own.chmod(0o600)
    empty = tmp_path / "empty.key"
    empty.touch(0o600)
    for words, reason in (
        ([str(tmp_path / "missing.key"), *log], "cannot be read"),
        ([str(empty), *log], "keygen"),
        ([str(own), *log], "key of a log"),
        ([str(key_file), "--log", "rubbish"], "verifier key"),
        ([str(key_file), *log, "--listen", "7380"], "HOST:PORT"),
        ([str(key_file), *log, "--listen", "127.0.0.1:x"], "HOST:PORT"),
        ([str(key_file), *log, "--state", "/tmp/witness"], "s3://"),
        ([str(key_file), *log, "--listen", "192.0.2.1:80"], "listened on"),
    ):
        refused = run("witness", "run", *words)
        assert (refused.exception.kind.exit_code, reason in str(refused.exception)) == (2, True), refused.exception
    missing = run("witness", "run", str(key_file), *log, "--state", "s3://no-such-bucket-here/witness")
    assert missing.exception.kind.exit_code == 1


def test_a_witness_that_is_killed_and_started_again_remembers(lake: Lake, key_file: Path) -> None:
    words = [str(key_file), "--log", str(LOG.verifier_key)]
    with running(*words) as said:
        key = WitnessKey.parse(said["key"])
        first = httpx.post(f"{said['url']}/add-checkpoint", content=AddCheckpoint(0, (), checkpoint(5)).encode())
        assert first.status_code == 200
        assert read_cosignatures(checkpoint(5) + first.content, [key])
    with running(*words) as said:
        url = said["url"]
        served = httpx.get(f"{url}/{origin_hash(LOG.name)}/checkpoint")
        assert served.content == checkpoint(5) + first.content
        forked = httpx.post(f"{url}/add-checkpoint", content=AddCheckpoint(0, (), checkpoint(3)).encode())
        assert (forked.status_code, forked.content) == (409, b"5\n")
        forked = httpx.post(f"{url}/add-checkpoint", content=AddCheckpoint(5, (), checkpoint(5, b"f" * 32)).encode())
        assert forked.status_code == 422
    path = f"witness/{key.key_id.hex()}/{origin_hash(LOG.name)}"
    assert lake.s3.get_object(Bucket=lake.settings.bucket, Key=path)["Body"].read() == served.content


def test_the_records_may_be_in_another_bucket(lake: Lake, key_file: Path) -> None:
    lake.s3.create_bucket(Bucket="records-of-a-witness")
    with running(str(key_file), "--log", str(LOG.verifier_key), "--state", "s3://records-of-a-witness/a/b") as said:
        body = AddCheckpoint(0, (), checkpoint(5)).encode()
        assert httpx.post(f"{said['url']}/add-checkpoint", content=body).status_code == 200
    (item,) = lake.s3.list_objects_v2(Bucket="records-of-a-witness")["Contents"]
    assert item["Key"].startswith("a/b/")
