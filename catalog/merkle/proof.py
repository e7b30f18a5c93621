"""Proof files (c2sp.org/tlog-proof@v1): an inclusion proof in one text file that is verified offline.

The file has the entry's index, its audit path and a signed checkpoint. Verifying it takes the entry and the
log's public key, and no request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.merkle.checkpoint import MAX_SIZE, Checkpoint, open_checkpoint, parse_decimal
from catalog.merkle.note import MAX_NOTE_BYTES, VerifierKey, decode_base64, encode_base64
from catalog.merkle.policy import Policy
from catalog.merkle.tree import HASH_SIZE, leaf_hash
from catalog.merkle.verify import ProofError, verify_inclusion

HEADER = "c2sp.org/tlog-proof@v1"
FILE_SUFFIX = ".tlog-proof"
MAX_BYTES = 2 * MAX_NOTE_BYTES
MAX_HASHES = MAX_SIZE.bit_length()


@dataclass(frozen=True, slots=True)
class ProofFile:
    """A parsed proof file, not verified yet. `extra` is not covered by a signature and is never verified."""

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes
    extra: bytes = b""


@dataclass(frozen=True, slots=True)
class Inclusion:
    """What a verified proof file shows: the entry has this index in the log of this checkpoint."""

    index: int
    checkpoint: Checkpoint


def write(proof: ProofFile) -> bytes:
    """The proof as a file: under 2 KB for a log of 2**20 leaves and one key. ValueError if it is malformed."""
    if not 0 <= proof.index <= MAX_SIZE or len(proof.hashes) > MAX_HASHES:
        raise ValueError(f"no proof has the index {proof.index} and {len(proof.hashes)} hashes")
    if any(len(value) != HASH_SIZE for value in proof.hashes):
        raise ValueError(f"a hash is not {HASH_SIZE} bytes long")
    extra = [f"extra {encode_base64(proof.extra)}"] if proof.extra else []
    lines = [HEADER, *extra, f"index {proof.index}", *map(encode_base64, proof.hashes)]
    return "".join(f"{line}\n" for line in lines).encode() + b"\n" + proof.checkpoint


def read(data: bytes) -> ProofFile:
    """Parses a proof file strictly. Raises ProofError unless it is exactly what `write` would write."""
    if len(data) > MAX_BYTES:
        raise ProofError(f"a proof file of {len(data)} bytes is over the limit of {MAX_BYTES}")
    head, blank, checkpoint = data.partition(b"\n\n")
    try:
        header, *lines = head.decode("ascii").split("\n")
        if header != HEADER or not blank:
            raise ValueError(f"it does not begin with the line {HEADER}, or has no blank line")
        extra = decode_base64(lines.pop(0)[6:]) if lines and lines[0].startswith("extra ") else b""
        if not lines or not lines[0].startswith("index "):
            raise ValueError("it has no index line")
        index = parse_decimal(lines.pop(0)[6:])
        hashes = tuple(decode_base64(line) for line in lines)
        proof = ProofFile(index, hashes, checkpoint, extra)
        if write(proof) != data:
            raise ValueError("it is not in its canonical form")
    except ValueError as error:
        raise ProofError(f"not a proof file: {error}") from None
    return proof


def verify(
    data: bytes,
    entry: bytes,
    verifier_keys: Iterable[VerifierKey] = (),
    *,
    origin: str | None = None,
    policy: Policy | None = None,
) -> Inclusion:
    """Verifies that `entry` is in the log, from the file and the public keys alone.

    `policy` takes the place of the keys: it names the logs, and how many of which witnesses must have cosigned.
    `origin` is the log's name; if not given, the name of the key that signed. Raises ProofError (NoteError
    for the checkpoint's part) if the file is malformed, not signed by a known key, of another log or entry, or not
    cosigned as the policy demands. ValueError for both keys and a policy.
    """
    keys = tuple(verifier_keys)
    if keys and policy is not None:
        raise ValueError("pass the keys or a policy, and not both: the policy's logs are the keys")
    proof = read(data)
    if policy is not None:
        checkpoint = policy.check(proof.checkpoint, origin)
    else:
        checkpoint = open_checkpoint(proof.checkpoint, keys, origin)
    verify_inclusion(leaf_hash(entry), proof.index, checkpoint.size, proof.hashes, checkpoint.root)
    return Inclusion(proof.index, checkpoint)
