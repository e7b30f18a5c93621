"""Proof files: strictly read, and checked with nothing but the entry and a public key."""

from __future__ import annotations

import base64
from hashlib import sha256

import pytest

from catalog.merkle import Checkpoint, Ed25519Signer, NoteError, ProofError, ProofFile, proof

SIGNER = Ed25519Signer("example.com/log", bytes(32))
KEYS = [SIGNER.verifier_key]
LEFT, RIGHT = (sha256(b"\x00" + entry).digest() for entry in (b"left", b"right"))
ROOT = sha256(b"\x01" + LEFT + RIGHT).digest()
CHECKPOINT = Checkpoint("example.com/log", 2, ROOT)
NOTE = CHECKPOINT.sign([SIGNER])
FILE = proof.write(ProofFile(1, (LEFT,), NOTE))


def test_a_proof_file_is_what_the_specification_says():
    path = base64.b64encode(LEFT).decode()
    assert f"c2sp.org/tlog-proof@v1\nindex 1\n{path}\n\n".encode() + NOTE == FILE
    with_extra = proof.write(ProofFile(1, (LEFT,), NOTE, b"xyz"))
    assert with_extra.startswith(b"c2sp.org/tlog-proof@v1\nextra eHl6\nindex 1\n")


def test_it_is_checked_offline():
    inclusion = proof.verify(FILE, b"right", KEYS)
    assert inclusion == proof.Inclusion(1, CHECKPOINT)
    assert proof.verify(FILE, b"right", KEYS, origin="example.com/log") == inclusion


@pytest.mark.parametrize(
    ("entry", "keys", "origin", "error"),
    [
        (b"left", KEYS, None, ProofError),
        (b"", KEYS, None, ProofError),
        (b"right", [], None, NoteError),
        (b"right", [Ed25519Signer("example.com/log", b"x" * 32).verifier_key], None, NoteError),
        (b"right", KEYS, "example.com/other", NoteError),
    ],
)
def test_another_entry_key_or_log_is_refused(entry, keys, origin, error):
    with pytest.raises(error):
        proof.verify(FILE, entry, keys, origin=origin)


def test_an_empty_log_proves_nothing():
    empty = Checkpoint("example.com/log", 0, sha256().digest()).sign([SIGNER])
    with pytest.raises(ProofError, match="no leaf 0"):
        proof.verify(proof.write(ProofFile(0, (), empty)), b"right", KEYS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"proof@v1", b"proof@v2"),
        (b"c2sp.org", b"\nc2sp.org"),
        (b"@v1\n", b"@v1\r\n"),
        (b"index 1", b"index 01"),
        (b"index 1", b"index -1"),
        (b"index 1", b"index  1"),
        (b"index 1", b"index 1 "),
        (b"index 1", b"index " + b"9" * 30),
        (b"index 1", b"index " + b"9" * 5000),
        (b"index 1", "index \u0661".encode()),
        (b"index 1\n", b""),
        (b"index 1\n", b"index 1\nindex 1\n"),
        (b"index 1\n", b"index 1\nextra eHl6\n"),
        (b"index 1\n", b"extra \nindex 1\n"),
        (b"index 1\n", b"extra eHl6\nextra eHl6\nindex 1\n"),
        (b"index 1\n", b"extra eHl6=\nindex 1\n"),
        (b"index 1\n", b"extra  eHl6\nindex 1\n"),
        (b"index 1\n", b"index 1\n\n"),
        (b"index 1\n", b"index 1\n" + b"A" * 43 + b"\n"),
        (b"index 1\n", b"index 1\nAAAA\n"),
        (b"=\n\nexample", b"=\nexample"),
        (b"=\n\nexample", b"=\n\n\nexample"),
        (b"example.com/log\n2", b"example.com/log\n3"),
    ],
)
def test_a_file_spelled_otherwise_is_refused(old, new):
    assert FILE.count(old) == 1
    with pytest.raises(ProofError):
        proof.verify(FILE.replace(old, new), b"right", KEYS)


@pytest.mark.parametrize("data", [b"", b"index 1\n\n" + NOTE, FILE.split(b"\n\n")[0], FILE[:30]])
def test_a_file_that_is_something_else_is_told_so(data):
    with pytest.raises(ProofError, match="does not begin with the line"):
        proof.read(data)


def test_a_spare_or_missing_hash_is_refused():
    for hashes in ((), (LEFT, LEFT)):
        with pytest.raises(ProofError, match="hashes than it needs"):
            proof.verify(proof.write(ProofFile(1, hashes, NOTE)), b"right", KEYS)


def test_a_huge_file_is_refused():
    with pytest.raises(ProofError, match="limit"):
        proof.read(FILE + b"x" * 2_000_001)


@pytest.mark.parametrize("fields", [(-1, (), NOTE), (2**63, (), NOTE), (0, (b"short",), NOTE), (0, (ROOT,) * 64, NOTE)])
def test_what_cannot_be_read_is_not_written(fields):
    with pytest.raises(ValueError, match=r"no proof has|32 bytes"):
        proof.write(ProofFile(*fields))


def test_a_proof_at_a_million_leaves_is_under_two_kilobytes():
    note = Checkpoint("timeline.lake.example.com/production", 1_000_000, ROOT).sign(
        [SIGNER, Ed25519Signer("next.example.com", ROOT)]
    )
    assert len(proof.write(ProofFile(999_999, (ROOT,) * 20, note))) < 2048
