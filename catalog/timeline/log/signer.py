"""Signers of checkpoints: a key that never leaves AWS KMS, or one that is stored in Secrets Manager.

Both sign with Ed25519, and the key's name is the timeline's origin. The public key of every signer stays in the
timeline's key list (keyring.py), so old checkpoints remain verifiable after a change of keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Protocol

from catalog.core.clients import client_for
from catalog.core.errors import Invalid
from catalog.core.settings import Settings
from catalog.merkle.note import Ed25519Signer, VerifierKey

# SubjectPublicKeyInfo of an Ed25519 key [RFC 8410]: this prefix, then the 32 bytes of the key.
_SPKI = bytes.fromhex("302a300506032b6570032100")

KEY_PREFIX = "PRIVATE+KEY+"
MIN_RANDOM_TEXT = 43
"""43 letters and digits carry 256 bits, as many as a seed has."""


class Signer(Protocol):
    """Signs the text of notes (catalog.merkle.note.Signer), and has the key that verifies its signatures."""

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
        # RAW with ED25519_SHA_512 is RFC 8032's Ed25519. ED25519_PH_SHA_512 would be the prehashed variant.
        response = self.kms.sign(
            KeyId=self.kms_key, Message=message, MessageType="RAW", SigningAlgorithm="ED25519_SHA_512"
        )
        return bytes(response["Signature"])


def secret_signer(secrets: Any, secret_id: str, name: str) -> Signer:
    """A key that is stored in Secrets Manager. One GetSecretValue.

    The secret is either `PRIVATE+KEY+name+keyid+base64`, or random text that CloudFormation generated with the stack:
    CloudFormation generates strings, not keys, and whoever pasted a key would have seen it.
    """
    text = secrets.get_secret_value(SecretId=secret_id)["SecretString"].strip()
    if not text.startswith(KEY_PREFIX) and len(text) >= MIN_RANDOM_TEXT:
        return Ed25519Signer(name, seed_from(text, name))
    try:
        signer = Ed25519Signer.parse(text)
    except ValueError as error:
        raise Invalid(
            f"the secret {secret_id} is {error}, and not random text of at least {MIN_RANDOM_TEXT} characters",
            subject=secret_id,
        ) from None
    if signer.name != name:
        raise Invalid(f"the key in the secret {secret_id} is named {signer.name}, but the timeline's origin is {name}")
    return signer


def seed_from(text: str, origin: str) -> bytes:
    """The Ed25519 seed derived from random text: SHA-256 with a prefix that no other use of SHA-256 has.

    It includes the origin, so that two lakes that share a secret sign with different keys.
    """
    return sha256(f"strandline signing key\n{origin}\n{text}".encode()).digest()


def signer_from(settings: Settings) -> Signer:
    """The signer the settings name: `kms:<key id>` or `secret:<secret id>`."""
    kind, _, identity = (settings.signer or "").partition(":")
    if not identity:
        raise Invalid("no signer is configured: set STRANDLINE_SIGNER to kms:<key id> or secret:<secret id>")
    client = client_for(settings, "kms" if kind == "kms" else "secretsmanager", read_timeout_s=10)
    if kind == "kms":
        return KmsSigner(client, identity, settings.origin)
    return secret_signer(client, identity, settings.origin)
