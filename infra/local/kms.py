"""KMS keys of the kind ECC_NIST_EDWARDS25519, which moto lacks: they sign RAW messages with ED25519_SHA_512 (RFC 8032).

docs.aws.amazon.com/kms/latest/developerguide/symm-asymm-choose-key-spec.html
"""

from __future__ import annotations

import functools
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from moto.kms import models
from moto.kms.utils import AbstractPrivateKey

SPEC, ALGORITHM = "ECC_NIST_EDWARDS25519", "ED25519_SHA_512"


class _Ed25519Key(AbstractPrivateKey):
    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()

    def sign(self, message: bytes, signing_algorithm: str) -> bytes:
        return self._key.sign(message)

    def verify(self, message: bytes, signature: bytes, signing_algorithm: str) -> bool:
        try:
            self._key.public_key().verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def public_key(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@functools.cache
def patch_keys() -> None:
    """Applied once per process."""
    generate, algorithms = models.generate_private_key, models.Key.signing_algorithms
    check_name = "_KmsBackend__ensure_valid_key_spec"
    check = getattr(models.KmsBackend, check_name)

    def generate_private_key(key_spec: str) -> Any:
        return _Ed25519Key() if key_spec == SPEC else generate(key_spec)

    def ensure_valid_key_spec(self: Any, key_spec: str) -> None:
        if key_spec != SPEC:
            check(self, key_spec)

    models.generate_private_key = generate_private_key
    models.Key.signing_algorithms = property(
        lambda self: [ALGORITHM] if self.key_spec == SPEC else algorithms.fget(self)
    )
    setattr(models.KmsBackend, check_name, ensure_valid_key_spec)
