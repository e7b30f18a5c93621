"""`--policy`: what a lake's proofs, feeds and timeline are worth to somebody who trusts witnesses, and not the lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

import strandline
from catalog.lake import Lake
from catalog.merkle.cosignature import WitnessSigner
from catalog.merkle.note import Ed25519Signer, VerifierKey
from catalog.merkle.witness import Witness
from catalog.timeline import signer_from
from catalog.timeline.log import feeder
from catalog.timeline.witness.records import WitnessRecords
from catalog.timeline.witness.server import WitnessServer
from catalog.timeline.witness.service import WitnessService
from infra.local.server import ApiServer
from tests.worlds.cli import answer, run
from tests.worlds.lake import ORIGIN, lake_on
from tests.worlds.witness import PATIENCE_S, listening, policy_of

TABLE = "sales.orders"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
WITNESS, STRANGER = WitnessSigner.generate("witness.example/w1"), WitnessSigner.generate("witness.example/w2")
NOWHERE = "https://witness.example"


@dataclass
class WitnessedLake:
    lake: Lake
    key: VerifierKey
    uuid: str

    def policy(self, *signers: WitnessSigner, needed: str = "all", log: bool = True) -> bytes:
        lines = [(signer.name.rpartition("/")[2], signer.witness_key, NOWHERE) for signer in signers]
        return policy_of(self.key if log else None, *lines, needed=needed).encode()


@pytest.fixture(scope="module")
def witnessed(server: ApiServer) -> Iterator[WitnessedLake]:
    """A lake with one table, each checkpoint of which a witness has cosigned."""
    logs: dict[str, list[VerifierKey]] = {}
    s3, bucket = server.endpoint.client("s3", "witness"), f"witness-{uuid4().hex[:12]}"
    s3.create_bucket(Bucket=bucket)
    service = WitnessService(Witness(WITNESS, logs), WitnessRecords(s3, bucket, "", WITNESS.witness_key))
    with listening(WitnessServer(service)) as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeder, "LIMIT_S", PATIENCE_S)
        patch.setenv("STRANDLINE_WITNESSES", policy_of(None, ("w1", WITNESS.witness_key, url)))
        with lake_on(server, queue=True) as lake:
            key = signer_from(lake.settings).verifier_key
            logs[ORIGIN] = [key]
            lake.iceberg.create_namespace("sales")
            table = lake.iceberg.create_table(TABLE, schema=ROWS.schema)
            for _ in range(2):
                table.append(ROWS)
                lake.sequencer.catch_up([TABLE])
            yield WitnessedLake(lake, key, str(table.metadata.table_uuid))


@pytest.fixture
def files(witnessed: WitnessedLake, tmp_path: Path) -> Path:
    """What an auditor was given, and three policies of his own."""
    answer("timeline", "prove", "1", "--to", str(tmp_path / "leaf.tlog-proof"))
    answer("changes", TABLE, "--out", str(tmp_path / "feed.jsonl"))
    (tmp_path / "kept.checkpoint").write_bytes(run("timeline", "head").stdout_bytes)
    (tmp_path / "met.policy").write_bytes(witnessed.policy(WITNESS, STRANGER, needed="any"))
    (tmp_path / "unmet.policy").write_bytes(witnessed.policy(WITNESS, STRANGER))
    other = policy_of(Ed25519Signer.generate(ORIGIN).verifier_key, ("w1", WITNESS.witness_key, NOWHERE))
    (tmp_path / "other.policy").write_text(other)
    return tmp_path


def _commands(files: Path) -> dict[str, list[str]]:
    return {
        "proof": ["proof", "verify", str(files / "leaf.tlog-proof")],
        "feed": ["changes", "verify", str(files / "feed.jsonl"), "--table", TABLE],
        "timeline": ["timeline", "verify"],
        "timeline since": ["timeline", "verify", "--since", str(files / "kept.checkpoint")],
    }


@pytest.mark.parametrize("command", ["proof", "feed", "timeline", "timeline since"])
def test_each_verification_demands_what_the_policy_says(files: Path, command: str) -> None:
    words = _commands(files)[command]
    assert answer(*words, "--policy", str(files / "met.policy"))["verified"] is True
    refused = run(*words, "--policy", str(files / "unmet.policy"))
    said = f"{refused.output} {refused.exception}"
    assert "the quorum witnesses of the policy is not met" in said and "missing: w2" in said
    assert (refused.exit_code == 3) or refused.exception.kind.exit_code == 3
    stranger = run(*words, "--policy", str(files / "other.policy"))
    assert (stranger.exit_code == 3) or stranger.exception.kind.exit_code == 3


@pytest.mark.parametrize("command", ["proof", "feed", "timeline"])
def test_keys_come_from_one_place(witnessed: WitnessedLake, files: Path, command: str) -> None:
    """A policy may leave the log to the caller; then the key says it, and not both do."""
    words = _commands(files)[command]
    bare = files / "bare.policy"
    bare.write_bytes(witnessed.policy(WITNESS, log=False))
    assert answer(*words, "--policy", str(bare), "--key", str(witnessed.key))["verified"] is True
    for wrong, reason in (
        (["--policy", str(bare)], "names no log"),
        (["--policy", str(files / "met.policy"), "--key", str(witnessed.key)], "names its logs"),
        (["--policy", str(files / "missing.policy")], "cannot be read"),
        (["--policy", str(files / "feed.jsonl")], "line 1"),
    ):
        result = run(*words, *wrong)
        assert (result.exception.kind.exit_code, reason in str(result.exception)) == (2, True), result.exception


def test_without_a_key_and_without_a_policy_nothing_offline_is_verified(files: Path) -> None:
    for command in ("proof", "feed"):
        result = run(*_commands(files)[command])
        assert (result.exception.kind.exit_code, "--policy" in str(result.exception)) == (2, True)


def test_the_witnesses_are_named(files: Path) -> None:
    verified = answer(*_commands(files)["proof"], "--policy", str(files / "met.policy"))
    assert verified["witnesses"] == ["w1"]
    for command in ("proof", "timeline"):
        shown = run(*_commands(files)[command], "--policy", str(files / "met.policy")).stdout
        assert "cosigned by w1." in shown


def test_a_proof_without_its_cosignature_is_still_signed_and_no_longer_witnessed(
    witnessed: WitnessedLake, files: Path
) -> None:
    """Whoever passes the file on can drop a line: the policy notices, the bare key cannot."""
    proof = files / "leaf.tlog-proof"
    lines = proof.read_text().splitlines(keepends=True)
    proof.write_text("".join(line for line in lines if WITNESS.name not in line))
    assert answer(*_commands(files)["proof"], "--key", str(witnessed.key))["verified"] is True
    refused = run(*_commands(files)["proof"], "--policy", str(files / "met.policy"))
    assert refused.exception.kind.exit_code == 3 and "missing: w1, w2" in str(refused.exception)


def test_a_checkpoint_that_was_kept_without_cosignatures_is_not_trusted(witnessed: WitnessedLake, files: Path) -> None:
    size = witnessed.lake.timeline.head().checkpoint.size
    result = run("timeline", "verify", "--since", str(size), "--policy", str(files / "met.policy"))
    assert result.exception.kind.exit_code == 3 and "missing: w1" in str(result.exception)


def test_python_verifies_by_the_same_policy(witnessed: WitnessedLake, files: Path) -> None:
    met, unmet, path = files / "met.policy", files / "unmet.policy", files / "leaf.tlog-proof"
    checkpoint = files / "kept.checkpoint"
    expected = {"table": TABLE, "uuid": witnessed.uuid}
    verify = strandline.verify
    assert verify.proof(path, policy=met, **expected).index == 1  # type: ignore[arg-type]
    assert verify.checkpoint(checkpoint, policy=met.read_bytes()).size > 1
    assert verify.feed(files / "feed.jsonl", policy=met, **expected).commits > 0  # type: ignore[arg-type]
    note = checkpoint.read_bytes()
    assert verify.consistency(note, note, [], policy=met).size > 1
    proof = strandline.Proof(path.read_bytes())
    assert proof.verify(policy=met, **expected).index == 1  # type: ignore[arg-type]
    for refused in (
        lambda: verify.proof(path, policy=unmet, **expected),
        lambda: verify.checkpoint(checkpoint, policy=unmet),
        lambda: verify.feed(files / "feed.jsonl", policy=unmet, **expected),
        lambda: verify.consistency(note, note, [], policy=unmet),
        lambda: proof.verify(policy=unmet, **expected),
    ):
        with pytest.raises(strandline.errors.Unverified, match="missing: w2"):
            refused()
    with pytest.raises(strandline.errors.Invalid, match="key"):
        verify.checkpoint(checkpoint)
    with pytest.raises(strandline.errors.Invalid, match="names its logs"):
        verify.checkpoint(checkpoint, policy=met, key=str(witnessed.key))
