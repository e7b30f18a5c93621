"""A witness adds its cosignature (c2sp.org/tlog-cosignature) to the published checkpoint: the text stays the same."""

from __future__ import annotations

from hashlib import sha256

import pytest

from catalog.core.errors import Unverified
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.note import Ed25519Signer, encode_base64
from catalog.merkle.proof import read, verify
from catalog.timeline.log.publisher import CHECKPOINT_PATH
from tests.contract.timeline.test_tampering import named
from tests.contract.timeline.test_tampering import verify as verify_timeline
from tests.worlds.lake import ORIGIN
from tests.worlds.timeline import ROWS, World

WITNESS = Ed25519Signer("witness.example/w1", b"w" * 32)
TIME = 1_800_000_000


def cosignature(note: bytes, name: str = WITNESS.name) -> bytes:
    """The line of a witness: cosignature/v1, whose key has the type 0x04."""
    text = note.decode().partition("\n\n")[0] + "\n"
    signed = WITNESS.sign(f"cosignature/v1\ntime {TIME}\n{text}".encode())
    key_id = sha256(name.encode() + b"\n\x04" + WITNESS.verifier_key.public_key).digest()[:4]
    return f"— {name} {encode_base64(key_id + TIME.to_bytes(8, 'big') + signed)}\n".encode()


def cosigned(note: bytes, name: str = WITNESS.name) -> bytes:
    return note + cosignature(note, name)


def before_ours(note: bytes) -> bytes:
    """The witness's line first, and under the log's own name: told apart by the key's id alone."""
    text, _, lines = note.partition(b"\n\n")
    return text + b"\n\n" + cosignature(note, ORIGIN) + lines


def replace_published(world: World, note: bytes) -> None:
    world.client("s3", "witness").put_object(Bucket=world.bucket, Key=CHECKPOINT_PATH, Body=note)


@pytest.fixture
def note(world: World) -> bytes:
    world.table().append(ROWS)
    world.sequencer().catch_up([world.name("t")])
    return world.published().head().note


@pytest.mark.parametrize("adding", [cosigned, before_ours])
@pytest.mark.parametrize("warm", [False, True], ids=["opened again", "warm"])
def test_the_sequencer_goes_on_from_a_cosigned_checkpoint(world: World, note: bytes, adding, warm: bool) -> None:  # type: ignore[no-untyped-def]
    replace_published(world, adding(note))
    world.catalog().load_table(world.name("t")).append(ROWS)
    sequencer = world.sequencers[0] if warm else world.sequencer()
    outcome = sequencer.catch_up([world.name("t")])
    assert (outcome.failed, outcome.size) == ({}, 3)
    assert world.published().head().checkpoint.size == 3
    assert verify_timeline(world).faults == ()


@pytest.mark.parametrize("adding", [cosigned, before_ours])
def test_a_cosigned_checkpoint_is_no_fault_and_proves_as_before(world: World, note: bytes, adding) -> None:  # type: ignore[no-untyped-def]
    both = adding(note)
    replace_published(world, both)
    assert verify_timeline(world, deep=True).faults == ()
    assert verify_timeline(world, since=both).faults == ()
    public = world.published()
    assert public.head().note == both
    proof = public.proof(1)
    assert read(proof).checkpoint == both
    assert verify(proof, public.source.entry(1, 2), [world.signer.verifier_key]).checkpoint.size == 2
    answer = public.as_of(world.name("t"), index=1)
    assert answer.evidence.note == both
    assert open_checkpoint(both, [key for _, key in public.source.keyring().keys]).size == 2


def _only_the_witness(world: World, note: bytes) -> bytes:
    return note.partition(b"\n\n")[0] + b"\n\n" + cosignature(note)


def _wrongly_signed(world: World, note: bytes) -> bytes:
    other = Checkpoint(ORIGIN, 2, b"\1" * 32).sign([world.signer]).partition(b"\n\n")[2]
    return note.partition(b"\n\n")[0] + b"\n\n" + other + cosignature(note)


def _another_root(world: World, note: bytes) -> bytes:
    return cosigned(Checkpoint(ORIGIN, 2, b"\1" * 32).sign([world.signer]))


@pytest.mark.parametrize("forged", [_only_the_witness, _wrongly_signed, _another_root])
def test_a_cosignature_does_not_stand_in_for_the_logs_own(world: World, note: bytes, forged) -> None:  # type: ignore[no-untyped-def]
    replace_published(world, forged(world, note))
    assert named(verify_timeline(world)) == [(CHECKPOINT_PATH, 1)]
    world.catalog().load_table(world.name("t")).append(ROWS)
    sequencer = world.sequencer()
    with pytest.raises(Unverified, match="checkpoint"):
        sequencer.catch_up([world.name("t")])


def test_another_tree_of_the_size_that_is_to_be_published_is_refused(world: World, note: bytes) -> None:
    """While the sequencer is warm it looks at the published checkpoint only when it cannot replace it."""
    replace_published(world, Checkpoint(ORIGIN, 3, b"\1" * 32).sign([world.signer]))
    world.catalog().load_table(world.name("t")).append(ROWS)
    with pytest.raises(Unverified, match="size 3"):
        world.sequencers[0].catch_up([world.name("t")])
