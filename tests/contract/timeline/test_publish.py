"""The public form: written once, never backwards, cheap; and keys that may change."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import boto3
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from catalog.core.errors import Invalid, Unverified
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.proof import verify as verify_proof
from catalog.timeline.log.keyring import Keyring
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.publisher import CHECKPOINT_PATH, KEYS_PATH
from catalog.timeline.log.signer import KmsSigner, secret_signer, signer_from
from catalog.timeline.reader.timeline import Timeline
from tests.worlds.lake import ORIGIN
from tests.worlds.timeline import ROWS, World

UUID = "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d"


def leaves(first: int, count: int) -> list[Leaf]:
    return [
        Leaf(
            table="made.up",
            table_uuid=UUID,
            snapshot_id=number + 1,
            parent_id=number or None,
            sequence=number,
            committed_ms=number,
            sequenced_ms=0,
            operation="append",
            ref="main",
            schema_sha256="00" * 32,
            metadata_sha256="00" * 32,
            manifest_list_sha256="00" * 32,
            content_root="00" * 32,
            content_count=1,
        )
        for number in range(first, first + count)
    ]


def puts(world: World, mark: int) -> int:
    return world.server.log.counts(mark)["s3 PUT"]


def test_one_commit_alone_costs_at_most_five_puts(world: World) -> None:
    table = world.table()
    sequencer = world.sequencer()
    sequencer.catch_up([world.name("t")])
    table.append(ROWS)
    mark = world.server.log.mark()
    sequencer.catch_up([world.name("t")])
    assert puts(world, mark) == 5  # database, tile, bundle, checkpoint, and an attestation nobody had staged
    mark = world.server.log.mark()
    sequencer.append(leaves(0, 1))
    assert puts(world, mark) == 4


def test_a_thousand_leaves_at_a_time_cost_at_most_two_puts_per_hundred(world: World) -> None:
    sequencer = world.sequencer()
    mark = world.server.log.mark()
    for batch in range(3):
        sequencer.append(leaves(batch * 1000, 1000))
    cold = 10  # opening the database, the key list
    assert puts(world, mark) - cold <= 0.02 * 3000
    public = world.published()
    for index in (0, 255, 256, 1000, 2999):
        entry = public.source.entry(index, 3000)
        assert verify_proof(public.proof(index), entry, [world.signer.verifier_key]).index == index


def test_tiles_may_be_kept_for_ever_and_the_checkpoint_never(world: World) -> None:
    world.sequencer().append(leaves(0, 257))
    s3 = world.client("s3", "stranger")

    def cache(key: str) -> str:
        return str(s3.head_object(Bucket=world.bucket, Key=key)["CacheControl"])

    assert cache("timeline/tile/0/000") == "public, max-age=31536000, immutable"
    assert cache("timeline/tile/entries/001.p/1") == "public, max-age=3600, immutable"
    assert cache(CHECKPOINT_PATH) == "no-cache"


def test_a_tile_that_is_there_with_other_bytes_stops_publication_by_name(world: World) -> None:
    world.table().append(ROWS)
    key = "timeline/tile/entries/000.p/2"
    world.client("s3", "person").put_object(Bucket=world.bucket, Key=key, Body=b"not this")
    with pytest.raises(Unverified, match=key):
        world.sequencer().catch_up([world.name("t")])
    assert CHECKPOINT_PATH not in world.objects("timeline/")


def test_every_checkpoint_stays_reachable_and_consistent(world: World) -> None:
    sequencer = world.sequencer()
    for batch in range(3):
        sequencer.append(leaves(batch * 100, 100))
    stored = world.stored()
    for size in (100, 200, 300):
        assert stored.head(size).checkpoint.size == size
    proof = stored.consistency(100)
    assert (proof.old.checkpoint.size, proof.new.checkpoint.size) == (100, 300)


def test_superseded_partial_tiles_are_pruned_and_proofs_go_on(world: World) -> None:
    sequencer = world.sequencer()
    for batch in range(4):
        sequencer.append(leaves(batch * 100, 100))
    old = world.published()
    head = old.head()
    sequencer.compact()
    tiles = {key.removeprefix("timeline/tile/") for key in world.objects("timeline/tile/")}
    assert tiles == {
        "0/000",
        "0/001.p/44",
        "0/001.p/144",
        "1/000.p/1",
        "entries/000",
        "entries/001.p/44",
        "entries/001.p/144",
    }
    sequencer.append(leaves(400, 200))
    assert world.published().head().checkpoint.size == 600
    sequencer.compact()
    # A stranger who still holds the checkpoint of 400 finds its tiles inside the full ones.
    from catalog.merkle.tiles import hash_reader
    from catalog.merkle.tree import CompactRange

    frontier = CompactRange.read(400, hash_reader(400, old.source.read_tiles))
    assert frontier.root() == head.checkpoint.root


def test_a_new_key_signs_from_its_size_on_and_old_checkpoints_stay_verifiable(world: World) -> None:
    world.sequencer().append(leaves(0, 3))
    first = world.published().head()
    new = Ed25519Signer.generate(ORIGIN)
    sequencer = world.sequencer(signer=new)
    sequencer.append(leaves(3, 4))
    sequencer.append(leaves(7, 1))
    ring = Keyring.stored(world.objects(KEYS_PATH)[KEYS_PATH])
    assert [(size, key) for size, key in ring.keys] == [(3, world.signer.verifier_key), (7, new.verifier_key)]
    assert ring.open(first.note).size == 3
    by_ring = Timeline(world.stored().source, ORIGIN)
    assert [by_ring.head(size).checkpoint.size for size in (3, 7, 8)] == [3, 7, 8]
    by_ring.consistency(3)
    # A retired key may not speak for what came after it.
    late = first.checkpoint.__class__(ORIGIN, 9, b"\x00" * 32).sign([world.signer])
    with pytest.raises(Unverified):
        ring.open(late)


def test_the_published_key_list_comes_with_the_first_checkpoint_it_is_needed_for(world: World) -> None:
    world.sequencer().append(leaves(0, 1))
    ring = Keyring.stored(world.objects(KEYS_PATH)[KEYS_PATH])
    assert ring.open(world.objects(CHECKPOINT_PATH)[CHECKPOINT_PATH]).size == 1


class _Kms(BaseHTTPRequestHandler):
    """AWS KMS for one Ed25519 key, as its API documents it (moto has none): RAW messages, DER public keys."""

    key = Ed25519PrivateKey.generate()
    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        import base64

        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        action = self.headers["X-Amz-Target"].removeprefix("TrentService.")
        self.asked.append(action)
        if action == "GetPublicKey":
            spki = self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            answer = {"PublicKey": base64.b64encode(spki).decode(), "KeySpec": "ECC_NIST_EDWARDS25519"}
        else:
            assert (body["MessageType"], body["SigningAlgorithm"]) == ("RAW", "ED25519_SHA_512")
            signature = self.key.sign(base64.b64decode(body["Message"]))
            answer = {"Signature": base64.b64encode(signature).decode()}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Silent."""


@pytest.fixture
def kms() -> Iterator[Any]:
    running = HTTPServer(("127.0.0.1", 0), _Kms)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield boto3.client(
        "kms",
        endpoint_url=f"http://127.0.0.1:{running.server_port}",
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    running.shutdown()
    running.server_close()


def test_a_key_in_kms_signs_checkpoints_that_its_public_half_verifies(world: World, kms: Any) -> None:
    signer = KmsSigner(kms, "alias/timeline", ORIGIN)
    sequencer = world.sequencer(signer=signer)
    sequencer.append(leaves(0, 2))
    sequencer.append(leaves(2, 1))
    public = Timeline(world.published().source, ORIGIN, [signer.verifier_key])
    assert public.head().checkpoint.size == 3
    # The key list once, and each checkpoint once.
    assert _Kms.asked == ["GetPublicKey", "Sign", "Sign", "Sign"]


def test_a_key_in_secrets_manager_signs_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = world.client("secretsmanager")
    name = f"timeline-{world.bucket}"
    secrets.create_secret(Name=name, SecretString=world.signer.private_key())
    settings = world.settings.model_copy(update={"signer": f"secret:{name}"})
    assert signer_from(settings).verifier_key == world.signer.verifier_key
    with pytest.raises(Invalid, match="is named"):
        secret_signer(secrets, name, "another.test/lake")
    secrets.put_secret_value(SecretId=name, SecretString="rubbish")
    with pytest.raises(Invalid, match="not a signer key") as refusal:
        secret_signer(secrets, name, ORIGIN)
    assert "rubbish" not in str(refusal.value)


def test_random_text_from_cloudformation_is_a_key_too(world: World) -> None:
    secrets = world.client("secretsmanager")
    name, text = f"generated-{world.bucket}", "x7Qp" * 16
    secrets.create_secret(Name=name, SecretString=text)
    signer = secret_signer(secrets, name, ORIGIN)
    # Stated here in its own words: whoever holds the secret can rebuild the key without this code.
    seed = sha256(b"strandline signing key\n" + ORIGIN.encode() + b"\n" + text.encode()).digest()
    assert signer.verifier_key == Ed25519Signer(ORIGIN, seed).verifier_key
    assert secret_signer(secrets, name, "another.test/lake").verifier_key != signer.verifier_key
    world.sequencer(signer=signer).append(leaves(0, 1))
    assert Timeline(world.published().source, ORIGIN, [signer.verifier_key]).head().checkpoint.size == 1
    secrets.put_secret_value(SecretId=name, SecretString=text[:42])
    with pytest.raises(Invalid, match="at least 43") as refusal:
        secret_signer(secrets, name, ORIGIN)
    assert text[:42] not in str(refusal.value)


def test_no_signer_is_said_before_anything_is_done(world: World) -> None:
    with pytest.raises(Invalid, match="STRANDLINE_SIGNER"):
        signer_from(world.settings)
