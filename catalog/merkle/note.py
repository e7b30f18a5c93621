"""Signed notes (c2sp.org/signed-note): text with Ed25519 signatures, as Go's checksum database uses them.

Knows nothing of trees. Keys are passed in; none is looked up, fetched or stored.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import ClassVar, Protocol, Self

from catalog.merkle.verify import ProofError

MAX_SIGNATURES = 100
MAX_NOTE_BYTES = 1_000_000

_SIGNER_PREFIX = "PRIVATE+KEY+"
_SIGNATURE_PREFIX = "— "
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")  # all but the newline


class NoteError(ProofError):
    """A note that is malformed, wrongly signed, or not signed by a known key. Its text must not be used."""


class Signer(Protocol):
    """Signs notes. The key may be elsewhere (AWS KMS): only its name, id and signatures are needed here.

    `sign` returns the bare signature; for an Ed25519 key, 64 bytes that VerifierKey(name, public_key)
    accepts.
    """

    @property
    def name(self) -> str: ...

    @property
    def key_id(self) -> bytes: ...

    def sign(self, message: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Ed25519Key:
    """An Ed25519 public key (32 bytes) under a name. Its text form, str(key), is `name+keyid+base64`."""

    SIGNATURE_TYPE: ClassVar[bytes]
    """The byte that tells what the key signs."""
    SIGNATURE_NAME: ClassVar[str]
    KIND: ClassVar[str]

    name: str
    public_key: bytes

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.public_key) != 32:
            raise ValueError(f"an Ed25519 public key has 32 bytes, not {len(self.public_key)}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `name+keyid+base64`. Raises ValueError unless it is exactly what str() would write."""
        try:
            name, _, encoded = text.split("+", 2)
            raw = decode_base64(encoded)
            if raw[:1] != cls.SIGNATURE_TYPE:
                raise ValueError(f"its type is not {cls.SIGNATURE_NAME}")
            key = cls(name, raw[1:])
        except ValueError as error:
            raise ValueError(f"not a {cls.KIND} `name+keyid+base64`: {text!r:.200} ({error})") from None
        if str(key) != text:
            raise ValueError(f"the {cls.KIND} {text!r:.200} should have the key id {key.key_id.hex()}")
        return key

    @property
    def key_id(self) -> bytes:
        """SHA-256(name || 0x0A || type || public key)[:4]: an identifier, not a commitment to the key."""
        return sha256(self.name.encode() + b"\n" + self.SIGNATURE_TYPE + self.public_key).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{encode_base64(self.SIGNATURE_TYPE + self.public_key)}"


@dataclass(frozen=True, slots=True)
class VerifierKey(Ed25519Key):
    """A key that signs notes."""

    SIGNATURE_TYPE = b"\x01"
    SIGNATURE_NAME = "Ed25519"
    KIND = "verifier key"

    def verify(self, message: bytes, signature: bytes) -> bool:
        # Imported at first use, here and below: proofs without signatures are checked on a bare Python.
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Ed25519Signer:
    """A signer whose secret seed (32 bytes) is in memory."""

    name: str
    seed: bytes = field(repr=False)
    verifier_key: VerifierKey = field(init=False)

    def __post_init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        public_key = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        object.__setattr__(self, "verifier_key", VerifierKey(self.name, public_key))

    @classmethod
    def generate(cls, name: str) -> Ed25519Signer:
        """A new key from the operating system's randomness."""
        return cls(name, secrets.token_bytes(32))

    @classmethod
    def parse(cls, text: str) -> Ed25519Signer:
        """Reads what `private_key` writes. Raises ValueError, never quoting the secret."""
        try:
            if not text.startswith(_SIGNER_PREFIX):
                raise ValueError
            name, _, encoded = text.removeprefix(_SIGNER_PREFIX).split("+", 2)
            signer = cls(name, decode_base64(encoded)[1:])
            if signer.private_key() != text:
                raise ValueError
        except ValueError:
            raise ValueError(f"not a signer key `{_SIGNER_PREFIX}name+keyid+base64`") from None
        return signer

    @property
    def key_id(self) -> bytes:
        return self.verifier_key.key_id

    def private_key(self) -> str:
        """The secret as `PRIVATE+KEY+name+keyid+base64`, the form Go's note package reads."""
        return (
            f"{_SIGNER_PREFIX}{self.name}+{self.key_id.hex()}+{encode_base64(VerifierKey.SIGNATURE_TYPE + self.seed)}"
        )

    def sign(self, message: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)


@dataclass(frozen=True, slots=True)
class Note:
    """A note whose text is vouched for by the keys in `signed_by`: at least one. `lines` are their signature lines."""

    text: str
    signed_by: tuple[VerifierKey, ...]
    lines: tuple[str, ...] = ()


def sign_note(text: str, signers: Sequence[Signer]) -> bytes:
    """The text with a signature line by each signer, in their order (one request per signer that is remote).

    The text ends in a newline and has no other control characters. Raises ValueError if it cannot be a note.
    """
    message = text.encode()
    if not text.endswith("\n") or _has_control_characters(text):
        raise ValueError("the text of a note ends in a newline and has no other control characters")
    if not signers or len({(signer.name, signer.key_id) for signer in signers}) != len(signers):
        raise ValueError("a note is signed by at least one key, and once by each")
    lines = [text, "\n"]
    for signer in signers:
        check_name(signer.name)
        if len(signer.key_id) != 4:
            raise ValueError(f"the key id of {signer.name} has {len(signer.key_id)} bytes, not 4")
        lines.append(signature_line(signer.name, signer.key_id, signer.sign(message)))
    return "".join(lines).encode()


def signature_line(name: str, key_id: bytes, signature: bytes) -> str:
    """`— name base64(key id || signature)`, with its newline."""
    return f"{_SIGNATURE_PREFIX}{name} {encode_base64(key_id + signature)}\n"


def open_note(note: bytes, verifier_keys: Iterable[VerifierKey]) -> Note:
    """Verifies a signed note and returns its text.

    Signatures by unknown keys are ignored. The first signature by each known key must be right, or the note
    is rejected; later ones by the same key are ignored. Raises NoteError if the note is malformed,
    too large, wrongly signed, or signed by none of the keys.
    """
    known = _by_name_and_id(verifier_keys)
    text, signatures = split_note(note)
    signed_by = dict[VerifierKey, str]()
    for line in signatures:
        name, key_id, signature = parse_signature(line)
        key = known.get((name, key_id))
        if key is None or key in signed_by:
            continue
        if not key.verify(text.encode(), signature):
            raise NoteError(f"the signature by {name} (key {key_id.hex()}) is not over this text")
        signed_by[key] = f"{line}\n"
    if not signed_by:
        names = ", ".join(f"{name} (key {key_id.hex()})" for name, key_id in known) or "none"
        raise NoteError(f"the note is not signed by a known key; known: {names}")
    return Note(text, tuple(signed_by), tuple(signed_by.values()))


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_base64(text: str) -> bytes:
    """Standard base64 with padding [RFC 4648, 4], in its one canonical spelling; ValueError for any other."""
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:  # UnicodeEncodeError and binascii.Error are both
        data = b""
    if not data or encode_base64(data) != text:  # spare bits in the last character are a second spelling
        raise ValueError(f"not base64: {text!r:.100}")
    return data


def split_note(note: bytes) -> tuple[str, list[str]]:
    """The text, and the lines after the last blank line."""
    if len(note) > MAX_NOTE_BYTES:
        raise NoteError(f"a note of {len(note)} bytes is over the limit of {MAX_NOTE_BYTES}")
    try:
        decoded = note.decode()
    except UnicodeDecodeError:
        raise NoteError("a note is UTF-8, and this is not") from None
    if _has_control_characters(decoded):
        raise NoteError("the note has control characters")
    text, blank, block = decoded.rpartition("\n\n")
    if not blank or not block.endswith("\n"):
        raise NoteError("a note ends in a blank line and signature lines; this one does not")
    lines = block[:-1].split("\n")  # not splitlines, which breaks at other characters too
    if len(lines) > MAX_SIGNATURES:
        raise NoteError(f"a note with {len(lines)} signatures is over the limit of {MAX_SIGNATURES}")
    return text + "\n", lines


def parse_signature(line: str) -> tuple[str, bytes, bytes]:
    """The key name, key id and signature of a line `— name base64`."""
    try:
        if not line.startswith(_SIGNATURE_PREFIX):
            raise ValueError("no em dash and space at its start")
        name, _, encoded = line.removeprefix(_SIGNATURE_PREFIX).partition(" ")
        check_name(name)
        raw = decode_base64(encoded)
        if len(raw) < 5:
            raise ValueError("too short for a key id and a signature")
    except ValueError as error:
        raise NoteError(f"not a signature line: {line!r:.200} ({error})") from None
    return name, raw[:4], raw[4:]


def _by_name_and_id(keys: Iterable[VerifierKey]) -> dict[tuple[str, bytes], VerifierKey]:
    known = dict[tuple[str, bytes], VerifierKey]()
    for key in keys:
        if known.setdefault((key.name, key.key_id), key) != key:
            raise ValueError(f"two verifier keys have the name {key.name} and the id {key.key_id.hex()}")
    return known


def check_name(name: str) -> None:
    if not name or "+" in name or any(c.isspace() for c in name) or _has_control_characters(name):
        raise ValueError(f"not a key name, which is not empty and has no spaces and no plus: {name!r:.100}")


def _has_control_characters(text: str) -> bool:
    return _CONTROL.search(text) is not None
