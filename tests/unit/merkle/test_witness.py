"""Cosignatures, trust policies and the witness protocol, against somebody who wants a false checkpoint believed."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.merkle import tree
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.cosignature import WitnessKey, WitnessSigner, add_cosignatures, read_cosignatures
from catalog.merkle.note import Ed25519Signer, NoteError
from catalog.merkle.policy import Policy, PolicyError
from catalog.merkle.tree import leaf_hash
from catalog.merkle.witness import AddCheckpoint, Refused, Witness, WitnessRecord

ORIGIN = "lake.example/log"
LOG = Ed25519Signer(ORIGIN, sha256(b"log").digest())
STRANGER = Ed25519Signer(ORIGIN, sha256(b"stranger").digest())
W1, W2, W3 = (WitnessSigner(f"witness.example/w{n}", sha256(b"w%d" % n).digest()) for n in (1, 2, 3))
NOW = 1_794_000_000


def root(size: int, fork: int = 0) -> bytes:
    return tree.root(leaf_hash(b"%d/%d" % (fork, index)) for index in range(size))


def note(size: int, signer: Ed25519Signer = LOG, fork: int = 0) -> bytes:
    return Checkpoint(ORIGIN, size, root(size, fork)).sign([signer])


def text(signed: bytes) -> str:
    return signed.decode().partition("\n\n")[0] + "\n"


def cosigned(signed: bytes, *witnesses: WitnessSigner) -> bytes:
    return signed + "".join(witness.cosign(text(signed), NOW) for witness in witnesses).encode()


def test_the_cosigned_message_is_the_one_the_specification_prints() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    body = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    line = W1.cosign(body, 1679315147)
    raw = base64.b64decode(line.split(" ")[2])
    key_id = sha256(b"witness.example/w1\n\x04" + W1.witness_key.public_key).digest()[:4]
    assert (raw[:4], raw[4:12]) == (key_id, (1679315147).to_bytes(8, "big"))
    message = b"cosignature/v1\ntime 1679315147\n" + body.encode()
    Ed25519PublicKey.from_public_bytes(W1.witness_key.public_key).verify(raw[12:], message)


def test_a_witness_key_reads_back_and_no_other_spelling_does() -> None:
    key = W1.witness_key
    assert WitnessKey.parse(str(key)) == key
    for wrong in (str(LOG.verifier_key), str(key)[:-1], str(key).replace(key.key_id.hex(), "00000000"), "w+1", ""):
        with pytest.raises(ValueError, match="witness key"):
            WitnessKey.parse(wrong)


def test_cosignatures_by_strangers_are_ignored_and_false_ones_refused() -> None:
    signed = cosigned(note(3), W1, W2)
    assert [c.key for c in read_cosignatures(signed, [W1.witness_key])] == [W1.witness_key]
    assert [c.timestamp for c in read_cosignatures(signed, [W1.witness_key])] == [NOW]
    lent = note(4) + W1.cosign(text(note(3)), NOW).encode()
    with pytest.raises(NoteError, match="not over this text"):
        read_cosignatures(lent, [W1.witness_key])
    later = signed.replace(b"\n\xe2\x80\x94 " + W1.name.encode(), b"\n\xe2\x80\x94 " + W2.name.encode())
    assert read_cosignatures(later, [W1.witness_key]) == ()


@given(st.integers(0, 71), st.integers(0, 7))
def test_no_bit_of_a_cosignature_can_be_changed(byte: int, bit: int) -> None:
    name, encoded = W1.cosign(text(note(3)), NOW)[2:].split(" ")
    raw = bytearray(base64.b64decode(encoded))
    raw[4 + byte] ^= 1 << bit
    line = f"— {name} {base64.b64encode(raw).decode()}\n"
    with pytest.raises(NoteError):
        read_cosignatures(note(3) + line.encode(), [W1.witness_key])


def test_a_witness_s_response_adds_only_what_is_valid_and_new() -> None:
    signed = cosigned(note(3), W1)
    lines = "".join(witness.cosign(text(signed), NOW + 5) for witness in (W1, W2, W3)).encode()
    merged, added = add_cosignatures(signed, lines, [W1.witness_key, W2.witness_key])
    assert [cosignature.key for cosignature in added] == [W2.witness_key]
    assert {c.key for c in read_cosignatures(merged, [w.witness_key for w in (W1, W2, W3)])} == {
        W1.witness_key, W2.witness_key
    }  # fmt: skip
    for response in (b"<html>", b"\n\n", W2.cosign(text(note(4)), NOW).encode()):
        with pytest.raises(NoteError):
            add_cosignatures(signed, response, [W2.witness_key])


POLICY = f"""
# two of three, in any order
log {LOG.verifier_key} https://lake.example
\twitness a {W1.witness_key}  https://w1.example/
witness b {W2.witness_key}
witness c {W3.witness_key}
group two-of-three 2 a b c
quorum two-of-three
"""


def test_a_policy_accepts_a_quorum_and_nothing_less() -> None:
    policy = Policy.parse(POLICY.encode())
    assert policy.urls == {"a": "https://w1.example/"}
    assert policy.check(cosigned(note(3), W1, W3)).size == 3
    for short in (note(3), cosigned(note(3), W2), cosigned(note(3), W2, W2), cosigned(note(3, STRANGER), W1, W2, W3)):
        with pytest.raises(NoteError):
            policy.check(short)
    with pytest.raises(NoteError, match=r"not of other\.example"):
        policy.check(cosigned(note(3), W1, W3), "other.example")


def test_an_old_checkpoint_is_not_taken_for_a_recent_one() -> None:
    """Nor one with a time in the future, which would stay recent for ever."""
    policy = Policy.parse(POLICY.encode())
    old = note(3) + "".join(witness.cosign(text(note(3)), NOW - 7200) for witness in (W1, W2)).encode()
    future = note(3) + "".join(witness.cosign(text(note(3)), 2**62) for witness in (W1, W2, W3)).encode()
    mixed = note(3) + (W1.cosign(text(note(3)), NOW - 10) + W2.cosign(text(note(3)), NOW - 7200)).encode()
    for signed in (old, future, mixed):
        assert policy.check(signed).size == 3
        with pytest.raises(NoteError, match="POSIX seconds"):
            policy.recent(3600, NOW).check(signed)
    assert policy.recent(7201, NOW).check(old).size == 3
    assert policy.recent(3600, NOW - 60).check(cosigned(note(3), W1, W3)).size == 3  # a clock that is ahead
    with pytest.raises(PolicyError, match="no witness"):
        Policy.parse(f"log {LOG.verifier_key}\nquorum none\n".encode()).recent(60, NOW)
    with pytest.raises(PolicyError, match="not 0"):
        policy.recent(0, NOW)


def test_groups_nest_and_none_demands_no_witness() -> None:
    two_of_three = "group two-of-three 2 a b c\nquorum two-of-three"
    nested = POLICY.replace(two_of_three, "group ab any a b\ngroup all3 all ab c\nquorum all3")
    assert Policy.parse(nested.encode()).check(cosigned(note(1), W2, W3)).size == 1
    with pytest.raises(NoteError, match="quorum all3"):
        Policy.parse(nested.encode()).check(cosigned(note(1), W1, W2))
    alone = f"log {LOG.verifier_key}\nquorum none\n"
    assert Policy.parse(alone.encode()).check(note(2)).size == 2
    with pytest.raises(NoteError, match="names no log"):
        Policy.parse(b"quorum none\n").check(note(2))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("quorum two-of-three", "second"),
        ("group d 1 e", "not defined"),
        ("group d 1 a", "member of a group already"),
        ("group d 2 two-of-three", "needs 2 of 1"),
        ("group d 0 two-of-three", "threshold"),
        ("group d 01 two-of-three", "threshold"),
        ("group d 1 two-of-three two-of-three", "already"),
        ("group none any two-of-three", "taken"),
        ("witness a " + str(W1.witness_key), "taken"),
        ("witness d " + str(W1.witness_key), "second witness"),
        ("witness d " + str(LOG.verifier_key), "witness key"),
        ("log " + str(W1.witness_key), "verifier key"),
        ("log " + str(LOG.verifier_key), "second log"),
        ("witness d " + str(WitnessKey("log.example/w", LOG.verifier_key.public_key)), "public key of a log"),
        ("witness d", "a line is"),
        ("quorom none", "a line is"),
        ("group d any \x0b", "control characters"),
    ],
)
def test_a_policy_with_a_fault_is_refused_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        Policy.parse(f"{POLICY}{line}\n".encode())
    with pytest.raises(PolicyError, match="quorum"):
        Policy.parse(b"# nothing\n")


WITNESS = Witness(W1, {ORIGIN: [LOG.verifier_key]})


def proof(old: int, new: int) -> tuple[bytes, ...]:
    def read(coordinates: Sequence[tuple[int, int]]) -> list[bytes]:
        leaves = [leaf_hash(b"0/%d" % index) for index in range(new)]
        return [tree.root(leaves[index << level : (index + 1) << level]) for level, index in coordinates]

    return tuple(tree.consistency_proof(old, new, read))


def status(request: AddCheckpoint, record: WitnessRecord | None) -> int:
    with pytest.raises(Refused) as refused:
        WITNESS.add_checkpoint(request, record, NOW)
    return refused.value.status


def test_a_witness_cosigns_what_extends_its_record_and_keeps_both_signatures() -> None:
    line, first = WITNESS.add_checkpoint(AddCheckpoint(0, (), note(3)), None, NOW)
    assert (first.size, first.root) == (3, root(3))
    assert Policy.parse(f"log {LOG.verifier_key}\nwitness w {W1.witness_key}\nquorum w\n".encode()).check(first.note)
    assert line in first.note.decode()
    sent = AddCheckpoint.decode(AddCheckpoint(3, proof(3, 8), cosigned(note(8), W2)).encode())
    _, second = WITNESS.add_checkpoint(sent, first, NOW + 1)
    assert second.size == 8 and W2.name.encode() not in second.note
    again, third = WITNESS.add_checkpoint(AddCheckpoint(8, (), note(8)), second, NOW + 2)
    assert third.size == 8 and again != line


def test_a_witness_refuses_with_the_status_that_the_protocol_demands() -> None:
    record = WitnessRecord(3, root(3), b"")
    assert status(AddCheckpoint(0, (), note(8)), record) == 409
    assert status(AddCheckpoint(9, (), note(8)), record) == 400
    assert status(AddCheckpoint(3, proof(3, 8), note(8, STRANGER)), record) == 403
    assert status(AddCheckpoint(3, proof(3, 8), note(8).replace(b"\n8\n", b"\n9\n")), record) == 403
    assert status(AddCheckpoint(3, proof(3, 8), note(8, fork=1)), record) == 422
    assert status(AddCheckpoint(3, (), note(3, fork=1)), record) == 422
    assert status(AddCheckpoint(3, (), note(8)), record) == 422
    assert status(AddCheckpoint(0, (bytes(32),), note(8)), None) == 422
    other = Checkpoint("other.example/log", 1, root(1)).sign([LOG])
    assert status(AddCheckpoint(0, (), other), None) == 404
    empty = Checkpoint(ORIGIN, 0, bytes(32)).sign([LOG])
    assert status(AddCheckpoint(0, (), empty), None) == 422


def test_a_conflict_tells_the_size_to_start_from() -> None:
    with pytest.raises(Refused) as refused:
        WITNESS.add_checkpoint(AddCheckpoint(0, (), note(8)), WitnessRecord(3, root(3), b""), NOW)
    assert (refused.value.body, refused.value.content_type) == ("3\n", "text/x.tlog.size")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"old 3\n",
        b"old 03\n\n",
        b"old -1\n\n",
        b"new 3\n\n",
        b"old 3\nnot base64\n\n",
        b"old 3\nAAAA\n\n",
        b"old 3\n" + b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n" * 64 + b"\n",
        b"old 3\n\n" + b"x" * 2_000_000,
    ],
)
def test_a_malformed_request_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        AddCheckpoint.decode(body)
    assert refused.value.status == 400
