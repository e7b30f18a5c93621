"""Other people's witnesses, logs and verifiers, unmodified, with ours: litewitness, Tessera, torchwood, x/mod."""

from __future__ import annotations

import base64
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from catalog.merkle.cosignature import WitnessSigner
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.policy import Policy
from catalog.timeline.log import feeder as feeder_module
from catalog.timeline.log.feeder import Feeder
from infra.local.server import ApiServer
from tests.interop.programs import programs, run
from tests.interop.ssh_agent import ssh_agent
from tests.waiting import wait_until
from tests.worlds.witness import PATIENCE_S, PublishedLog, policy_of, witness

LITEWITNESS = WitnessSigner.generate("witness.example/litewitness")
OURS = WitnessSigner.generate("witness.example/strandline")


@pytest.fixture
def log(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> PublishedLog:
    monkeypatch.setattr(feeder_module, "LIMIT_S", PATIENCE_S)
    s3, bucket = server.endpoint.client("s3", "person"), f"lake-{uuid4().hex[:12]}"
    s3.create_bucket(Bucket=bucket)
    return PublishedLog(s3, bucket, Ed25519Signer.generate("lake.example/log"))


@contextmanager
def litewitness(folder: Path, log: Ed25519Signer) -> Iterator[str]:
    """litewitness with this one log; its URL."""
    database = folder / "litewitness.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        # As its `witnessctl add-log` and `add-key` do, which cannot be built without sigsum's module.
        connection.execute(
            "CREATE TABLE log (origin TEXT PRIMARY KEY, tree_size INTEGER NOT NULL, tree_hash TEXT NOT NULL)"
        )
        connection.execute(
            "CREATE TABLE key (origin TEXT NOT NULL, key TEXT NOT NULL, FOREIGN KEY(origin) REFERENCES log(origin))"
        )
        empty = base64.b64encode(sha256().digest()).decode()
        connection.execute("INSERT INTO log VALUES (?, 0, ?)", (log.name, empty))
        connection.execute("INSERT INTO key VALUES (?, ?)", (log.name, str(log.verifier_key)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    fingerprint = sha256(LITEWITNESS.witness_key.public_key).hexdigest()
    # A socket's path is short: pytest's directories are too deep.
    with tempfile.TemporaryDirectory() as short, ssh_agent(Path(short) / "agent", LITEWITNESS.seed):
        words = ["-name", LITEWITNESS.name, "-db", str(database), "-key", fingerprint]
        words += ["-ssh-agent", f"{short}/agent", "-listen", f"127.0.0.1:{port}"]
        with (folder / "litewitness.log").open("wb") as said:
            process = subprocess.Popen([programs() / "litewitness", *words], stderr=said)
        try:
            wait_until(lambda: _listens(port) or process.poll() is not None, "litewitness to listen")
            assert process.poll() is None, (folder / "litewitness.log").read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def verified_by_go(folder: Path, policy: str, note: bytes) -> list[str]:
    """What Go's verifiers say of the checkpoint: origin, size and signers."""
    (folder / "policy").write_text(policy)
    (folder / "checkpoint").write_bytes(note)
    done = run("checkpoint", folder / "policy", folder / "checkpoint")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_litewitness_cosigns_our_checkpoints_and_so_do_we(log: PublishedLog, tmp_path: Path) -> None:
    """Both are fed by our feeder, miss some checkpoints and catch up; Go and Python agree on the quorum."""
    ours = witness(OURS, [log.signer.verifier_key], log.s3, log.bucket)
    with litewitness(tmp_path, log.signer) as theirs, ours as url:
        both = [("lite", LITEWITNESS.witness_key, theirs), ("ours", OURS.witness_key, url)]
        policy = policy_of(log.signer.verifier_key, *both)
        for leaves, feeder in ((1, True), (2, True), (300, False), (4, False), (70, True), (1, True)):
            log.feeder = Feeder.parse(policy) if feeder else None
            log.grow(leaves)
            note = log.publish()
            if feeder:
                assert Policy.parse(policy.encode()).check(note).size == log.frontier.size
                said = verified_by_go(tmp_path, policy, note)
                assert said[:3] == [log.signer.name, str(log.frontier.size), log.signer.name]
                assert sorted(said[3:]) == [LITEWITNESS.name, OURS.name]


def test_go_refuses_what_we_refuse(log: PublishedLog, tmp_path: Path) -> None:
    """A checkpoint that misses a witness, has a false cosignature, or is of another log."""
    log.grow(5)
    note = log.own_note()
    text = note.decode().partition("\n\n")[0] + "\n"
    cosigned = note + OURS.cosign(text, 1_800_000_000).encode()
    one = [("ours", OURS.witness_key, "https://w.example")]
    two = [*one, ("lite", LITEWITNESS.witness_key, "https://w2.example")]
    policy = policy_of(log.signer.verifier_key, *one)
    assert verified_by_go(tmp_path, policy, cosigned)[1] == "5"
    stranger = Ed25519Signer.generate(log.signer.name).verifier_key
    forged: list[tuple[str, bytes]] = [
        (policy, note),
        (policy_of(log.signer.verifier_key, *two), cosigned),
        (policy, note + OURS.cosign(text.replace("\n5\n", "\n6\n"), 1_800_000_000).encode()),
        (policy, cosigned.replace(b"\n5\n", b"\n6\n")),
        (policy_of(stranger, *one), cosigned),
    ]
    for rule, wrong in forged:
        with pytest.raises(Exception, match=r"quorum|not over this text|not signed"):
            Policy.parse(rule.encode()).check(wrong)
        with pytest.raises(AssertionError):
            verified_by_go(tmp_path, rule, wrong)


def test_a_log_by_tessera_is_witnessed_by_us(server: ApiServer, tmp_path: Path) -> None:
    """Tessera publishes a checkpoint only when its witnesses have cosigned it."""
    tessera = Ed25519Signer.generate("tessera.example/log")
    s3: Any = server.endpoint.client("s3", "person")
    bucket = f"witness-{uuid4().hex[:12]}"
    s3.create_bucket(Bucket=bucket)
    (tmp_path / "key").write_text(tessera.private_key())
    with witness(OURS, [tessera.verifier_key], s3, bucket) as url:
        policy = policy_of(tessera.verifier_key, ("ours", OURS.witness_key, url))
        (tmp_path / "policy").write_text(policy)
        for entries in (3, 2):  # and again after a restart, from where it was
            done = run("tesseralog", tmp_path / "log", tmp_path / "key", tmp_path / "policy", str(entries))
            assert done.returncode == 0, done.stderr
            published = (tmp_path / "log" / "checkpoint").read_bytes()
            assert Policy.parse(policy.encode()).check(published).size >= entries
    assert Policy.parse(policy.encode()).check(published).size == 5


def test_tesseras_fsck_accepts_our_published_log_and_finds_a_flipped_bit(log: PublishedLog, tmp_path: Path) -> None:
    log.feeder = None
    for leaves in (3, 300, 257):
        log.grow(leaves)
        log.publish()
    (tmp_path / "key").write_text(str(log.signer.verifier_key))
    for item in log.s3.list_objects_v2(Bucket=log.bucket, Prefix="timeline/")["Contents"]:
        path = tmp_path / "log" / item["Key"].removeprefix("timeline/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log.s3.get_object(Bucket=log.bucket, Key=item["Key"])["Body"].read())
    assert (done := run("fsck", tmp_path / "log", tmp_path / "key")).returncode == 0, done.stderr
    for name in ("tile/0/001", "tile/entries/001", "checkpoint"):
        data = bytearray((tmp_path / "log" / name).read_bytes())
        data[40] ^= 1
        (tmp_path / "log" / name).write_bytes(data)
        assert run("fsck", tmp_path / "log", tmp_path / "key").returncode != 0, name
        data[40] ^= 1
        (tmp_path / "log" / name).write_bytes(data)
