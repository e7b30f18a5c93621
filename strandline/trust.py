"""What the offline verifier trusts (keys or a policy, and a checkpoint that they sign), and how it reads its input."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from catalog.merkle.checkpoint import open_checkpoint
from catalog.merkle.note import VerifierKey
from catalog.merkle.policy import Policy, PolicyError
from catalog.merkle.verify import ProofError
from strandline.errors import Invalid, Unverified

if TYPE_CHECKING:
    from catalog.changes import ParsedLeaf


class ProofData(Protocol):
    """A proof that is in memory: the result of `lake.prove`."""

    @property
    def data(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A signed state of the timeline: the log's name, how many leaves it has, and their RFC 6962 root.

    >>> strandline.verify.checkpoint(lake.checkpoint(), key=key).origin == key.split("+")[0]
    True
    """

    origin: str
    size: int
    root: bytes


def checkpoint(
    data: bytes | str | os.PathLike[str],
    *,
    key: str | Iterable[str] | None = None,
    origin: str | None = None,
    policy: bytes | str | os.PathLike[str] | None = None,
    max_age: timedelta | None = None,
) -> Checkpoint:
    """Checks that a checkpoint (c2sp.org/tlog-checkpoint) is signed by the key, or as the policy demands.

    `data`, `policy`: the bytes, or a path. `max_age`: with a policy, how long ago its witnesses may have cosigned. An
    old checkpoint is valid for ever otherwise, and may hide what came later.

    >>> strandline.verify.checkpoint(lake.checkpoint(), key=key).size > 0
    True
    """
    keys, trusted = trust_in(key, policy, max_age)
    try:
        note = read_source(data)
        opened = open_checkpoint(note, keys, origin) if trusted is None else trusted.check(note, origin)
    except ProofError as error:
        raise Unverified(str(error)) from None
    return Checkpoint(opened.origin, opened.size, opened.root)


def trust_in(
    key: str | Iterable[str] | None, policy: Any, max_age: timedelta | None = None
) -> tuple[list[VerifierKey], Policy | None]:
    """The keys, or the policy that takes their place."""
    if policy is None:
        if max_age is not None:
            raise Invalid("max_age needs a policy: only a witness's cosignature says how old a checkpoint is")
        if key is None:
            raise Invalid(
                "there is nothing to verify with: pass the log's verifier key as key=, or a policy as policy="
            )
        return verifier_keys(key), None
    try:
        trusted = Policy.parse(read_source(policy)).for_logs([] if key is None else verifier_keys(key))
        return [], trusted if max_age is None else trusted.recent(int(max_age.total_seconds()), int(time.time()))
    except PolicyError as error:
        raise Invalid(f"the policy cannot be used: {error}") from None


def verifier_keys(key: str | Iterable[str]) -> list[VerifierKey]:
    texts: list[str] = [key] if isinstance(key, str) else list(key)
    if not texts:
        raise Invalid("there is no key to verify with: pass the log's verifier key as key=")
    try:
        return [VerifierKey.parse(text.strip()) for text in texts]
    except (ValueError, AttributeError) as error:
        raise Invalid(f"a verifier key reads name+id+base64: {error}") from None


def read_source(source: Any) -> bytes:
    """The bytes of a path, of bytes, or of a ProofData."""
    data = getattr(source, "data", source)
    if isinstance(data, bytes):
        return data
    try:
        return Path(source).read_bytes()
    except (OSError, TypeError) as error:
        raise Invalid(f"{source!r:.80} cannot be read: {error}") from None


def parse_commit(leaf: bytes) -> ParsedLeaf:
    """The fields of a commit's leaf; Unverified if the leaf is of another kind, or has a second reading."""
    from catalog import LakeError
    from catalog.changes import parse_leaf

    try:
        return parse_leaf(leaf)
    except LakeError as error:
        raise Unverified(error.message) from None
