"""Who signs the checkpoints: a key that never leaves AWS KMS, or one that is held in Secrets Manager.

Both sign Ed25519, under the timeline's origin as the key's name. A key that signed once is remembered with
its public half in the timeline's key list (keyring.py), so changing keys leaves every old checkpoint
verifiable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Protocol

import boto3
from botocore.config import Config

from catalog.errors import Invalid
from catalog.merkle.note import Ed25519Signer, VerifierKey
from catalog.settings import Settings

# SubjectPublicKeyInfo of an Ed25519 key [RFC 8410]: this, then its 32 bytes.
_SPKI = bytes.fromhex("302a300506032b6570032100")

KEY_PREFIX = "PRIVATE+KEY+"
MIN_RANDOM_TEXT = 43
"""Letters and digits: 43 of them carry 256 bits, as many as a seed has."""


class Signer(Protocol):
    """Signs the text of notes (catalog.merkle.note.Signer), and says with which key that is checked."""

    @property
    def name(self) -> str: ...

    @property
    def key_id(self) -> bytes: ...

    @property
    def verifier_key(self) -> VerifierKey: ...

    def sign(self, message: bytes) -> bytes: ...


@dataclass(frozen=True)
class KmsSigner:
    """An ECC_NIST_EDWARDS25519 key in AWS KMS: one Sign per checkpoint, one GetPublicKey per process."""

    kms: Any
    kms_key: str
    name: str

    @cached_property
    def verifier_key(self) -> VerifierKey:
        encoded: bytes = self.kms.get_public_key(KeyId=self.kms_key)["PublicKey"]
        if len(encoded) != len(_SPKI) + 32 or not encoded.startswith(_SPKI):
            raise Invalid(f"the KMS key {self.kms_key} is not an Ed25519 key (ECC_NIST_EDWARDS25519)")
        return VerifierKey(self.name, encoded[len(_SPKI) :])

    @property
    def key_id(self) -> bytes:
        return self.verifier_key.key_id

    def sign(self, message: bytes) -> bytes:
        # RAW and ED25519_SHA_512 is RFC 8032's plain Ed25519; ED25519_PH_SHA_512 would be the prehashed
        # variant.
        answer = self.kms.sign(
            KeyId=self.kms_key, Message=message, MessageType="RAW", SigningAlgorithm="ED25519_SHA_512"
        )
        return bytes(answer["Signature"])


def secret_signer(secrets: Any, secret_id: str, name: str) -> Signer:
    """A key held in Secrets Manager, read once: one GetSecretValue.

    Either `PRIVATE+KEY+name+keyid+base64`, or random text that CloudFormation generated when the stack was
    made: it can generate strings, but no keys, and a key that somebody had to paste would be seen by them.
    """
    text = secrets.get_secret_value(SecretId=secret_id)["SecretString"].strip()
    if not text.startswith(KEY_PREFIX) and len(text) >= MIN_RANDOM_TEXT:
        return Ed25519Signer(name, seed_from(text, name))
    try:
        signer = Ed25519Signer.parse(text)
    except ValueError as error:
        raise Invalid(
            f"the secret {secret_id} is {error}, nor random text of at least {MIN_RANDOM_TEXT} characters",
            subject=secret_id,
        ) from None
    if signer.name != name:
        raise Invalid(f"the key in {secret_id} is named {signer.name}, but the timeline is {name}")
    return signer


def seed_from(text: str, origin: str) -> bytes:
    """The Ed25519 seed that random text stands for: SHA-256 over a text that nothing else hashes.

    The origin is in it, so that two lakes given one secret do not sign with one key.
    """
    return sha256(f"strandline signing key\n{origin}\n{text}".encode()).digest()


def signer_from(settings: Settings) -> Signer:
    """The signer the settings name: `kms:<key id>` or `secret:<secret id>`."""
    kind, _, identity = (settings.signer or "").partition(":")
    if not identity:
        raise Invalid("no signer is set: STRANDLINE_SIGNER is kms:<key id> or secret:<secret id>")
    make: Any = boto3.client
    client = make(
        "kms" if kind == "kms" else "secretsmanager",
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        config=Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "max_attempts": 3}),
    )
    if kind == "kms":
        return KmsSigner(client, identity, settings.origin)
    return secret_signer(client, identity, settings.origin)
