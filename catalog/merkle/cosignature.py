"""Cosignatures (c2sp.org/tlog-cosignature): a witness's signed statement that it saw a checkpoint and that it extends
every checkpoint of that log it saw before.

Only Ed25519 (`cosignature/v1`, signature type 0x04). ML-DSA-44 lines (type 0x06) are ignored, as are unknown keys.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from catalog.merkle.note import (
    Ed25519Key,
    NoteError,
    parse_signature,
    signature_line,
    split_note,
)

_HEADER = b"cosignature/v1\n"
_MAX_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WitnessKey(Ed25519Key):
    """A witness's key."""

    SIGNATURE_TYPE = b"\x04"
    SIGNATURE_NAME = "0x04, cosignature/v1"
    KIND = "witness key"

    def verify(self, text: str, signature: bytes) -> int:
        """The time (seconds of POSIX) at which the witness cosigned the checkpoint; NoteError if it did not."""
        # Imported at first use: proofs without signatures are checked on a bare Python.
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if len(signature) != 8 + 64:
            raise NoteError(f"the cosignature by {self.name} has {len(signature)} bytes, not 72")
        timestamp = int.from_bytes(signature[:8], "big")
        if timestamp > _MAX_TIME:
            raise NoteError(f"the cosignature by {self.name} has a time beyond 2**63 - 1")
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature[8:], _message(text, timestamp))
        except InvalidSignature:
            raise NoteError(f"the cosignature by {self.name} (key {self.key_id.hex()}) is not over this text") from None
        return timestamp


@dataclass(frozen=True, slots=True)
class WitnessSigner:
    """A witness whose secret seed (32 bytes) is in memory. A cosignature does not commit to a name.

    So each witness needs a key of its own.
    """

    name: str
    seed: bytes = field(repr=False)
    witness_key: WitnessKey = field(init=False)

    def __post_init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        public_key = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        object.__setattr__(self, "witness_key", WitnessKey(self.name, public_key))

    @classmethod
    def generate(cls, name: str) -> WitnessSigner:
        """A new key from the operating system's randomness."""
        return cls(name, secrets.token_bytes(32))

    def cosign(self, text: str, timestamp: int) -> str:
        """The signature line over a checkpoint's text. Sign only what extends everything cosigned before."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(_message(text, timestamp))
        return signature_line(self.name, self.witness_key.key_id, timestamp.to_bytes(8, "big") + signature)


@dataclass(frozen=True, slots=True)
class Cosignature:
    """That a witness cosigned a checkpoint, and when."""

    key: WitnessKey
    timestamp: int
    line: str
    """The signature line, which can be added to another copy of the same checkpoint."""


def read_cosignatures(note: bytes, keys: Iterable[WitnessKey]) -> tuple[Cosignature, ...]:
    """The cosignatures by known witnesses on a checkpoint, the first by each key.

    Lines by other keys are ignored. NoteError if the note is malformed or a known witness's line is not over its text.
    """
    text, lines = split_note(note)
    known = {(key.name, key.key_id): key for key in keys}
    cosignatures = dict[WitnessKey, Cosignature]()
    for line in lines:
        name, key_id, signature = parse_signature(line)
        key = known.get((name, key_id))
        if key is not None and key not in cosignatures:
            cosignatures[key] = Cosignature(key, key.verify(text, signature), f"{line}\n")
    return tuple(cosignatures.values())


def add_cosignatures(note: bytes, lines: bytes, keys: Iterable[WitnessKey]) -> tuple[bytes, tuple[Cosignature, ...]]:
    """The note with the valid cosignatures in `lines` that it lacks, and those cosignatures.

    `lines` is a witness's response: anything in it may be wrong. Lines by unknown keys are dropped. NoteError if the
    lines are malformed or a known witness's is not over this checkpoint: then the note stays as it is.
    """
    known = list(keys)
    present = {(cosignature.key.name, cosignature.key.key_id) for cosignature in read_cosignatures(note, known)}
    text, _ = split_note(note)
    added = tuple(
        cosignature
        for cosignature in read_cosignatures(f"{text}\n".encode() + lines, known)
        if (cosignature.key.name, cosignature.key.key_id) not in present
    )
    return note + "".join(cosignature.line for cosignature in added).encode(), added


def _message(text: str, timestamp: int) -> bytes:
    return _HEADER + f"time {timestamp}\n".encode() + text.encode()
