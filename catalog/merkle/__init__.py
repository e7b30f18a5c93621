"""The Merkle timeline's mathematics and public formats, usable by a third party on their own.

    tree        make hashes, roots and proofs [RFC 6962, 2.1]
    verify      check proofs; reads alone, needs nothing installed [RFC 9162, 2.1.3.2 and 2.1.4.2]
    note        text signed with Ed25519 (c2sp.org/signed-note)
    checkpoint  a log's signed size and root (c2sp.org/tlog-checkpoint)
    tiles       the tree as static files (c2sp.org/tlog-tiles)
    proof       offline proofs of inclusion in one file (c2sp.org/tlog-proof@v1)
    cosignature a witness's signature on a checkpoint (c2sp.org/tlog-cosignature)
    policy      which logs and how many witnesses a verifier demands (c2sp.org/tlog-policy)
    prefix_map  a map whose every key has a provable value, or a provable absence; map_verify checks both
    witness     what a log sends to a witness and what the witness decides (c2sp.org/tlog-witness)

Wrong evidence raises ProofError (NoteError if it is a signed note); a caller's mistake raises ValueError.
"""

from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.note import Ed25519Signer, NoteError, Signer, VerifierKey, open_note, sign_note
from catalog.merkle.proof import ProofFile
from catalog.merkle.tree import CompactRange, leaf_hash, node_hash
from catalog.merkle.verify import ProofError, verify_batch, verify_consistency, verify_inclusion, verify_range

__all__ = [
    "Checkpoint",
    "CompactRange",
    "Ed25519Signer",
    "NoteError",
    "ProofError",
    "ProofFile",
    "Signer",
    "VerifierKey",
    "leaf_hash",
    "node_hash",
    "open_checkpoint",
    "open_note",
    "sign_note",
    "verify_batch",
    "verify_consistency",
    "verify_inclusion",
    "verify_range",
]
