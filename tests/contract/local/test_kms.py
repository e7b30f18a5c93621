"""A key of the kind that signs the timeline in prod: KMS signs with it, and its public half verifies."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from catalog.timeline.log.signer import KmsSigner
from infra.local.server import ApiServer


def test_an_ed25519_key_signs_what_its_public_half_verifies(server: ApiServer) -> None:
    kms = server.endpoint.client("kms")
    key = kms.create_key(KeySpec="ECC_NIST_EDWARDS25519", KeyUsage="SIGN_VERIFY")["KeyMetadata"]["Arn"]
    signer = KmsSigner(kms, key, "strandline.test/lake")
    assert signer.verifier_key.verify(b"a checkpoint", signer.sign(b"a checkpoint"))
    assert not signer.verifier_key.verify(b"another", signer.sign(b"a checkpoint"))
    with pytest.raises(ClientError):
        kms.sign(KeyId=key, Message=b"m", MessageType="RAW", SigningAlgorithm="ECDSA_SHA_256")
