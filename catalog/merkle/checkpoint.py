"""Checkpoints (c2sp.org/tlog-checkpoint): a log's name, size and root, as the text of a signed note.

Opening one verifies its signatures. Whether one checkpoint extends another is checked by verify_consistency.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalog.merkle.note import (
    NoteError,
    Signer,
    VerifierKey,
    decode_base64,
    encode_base64,
    open_note,
    sign_note,
)

MAX_SIZE = 2**63 - 1
"""The largest tree: other tools store the size in a signed 64-bit integer."""

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_LINE = re.compile(r"[^\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a log at one size. Extension lines are signed but, by the specification, not audited."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(_LINE.fullmatch(line) for line in (self.origin, *self.extensions)):
            raise ValueError("a checkpoint's origin and extensions are lines of text, none empty")
        if not 0 <= self.size <= MAX_SIZE:
            raise ValueError(f"a checkpoint cannot have the size {self.size}")
        if len(self.root) != 32:
            raise ValueError(f"the root of a checkpoint has 32 bytes, not {len(self.root)}")

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Parses the text of a note. Raises NoteError unless it is exactly what `text` would write."""
        lines = text.split("\n")
        if len(lines) < 4 or lines.pop() != "":
            raise NoteError("a checkpoint has at least three lines, each ending in a newline")
        origin, size, root, *extensions = lines
        try:
            return cls(origin, parse_decimal(size), decode_base64(root), tuple(extensions))
        except ValueError as error:
            raise NoteError(f"not a checkpoint: {error}") from None

    def text(self) -> str:
        """The note's text: origin, size, root in base64, then the extensions, one line each."""
        lines = (self.origin, str(self.size), encode_base64(self.root), *self.extensions)
        return "".join(f"{line}\n" for line in lines)

    def sign(self, signers: Sequence[Signer]) -> bytes:
        """The checkpoint as a signed note. By convention the log's key has the origin as its name.

        A signature cannot be revoked: sign only a checkpoint that is durable, or stored by the same write, and that
        extends every checkpoint signed before.
        """
        return sign_note(self.text(), signers)


def open_checkpoint(note: bytes, verifier_keys: Iterable[VerifierKey], origin: str | None = None) -> Checkpoint:
    """The checkpoint in a note that at least one of the keys signed.

    Every key is trusted to sign for the log. The checkpoint's origin must be `origin` or, if that is not given, the
    name of a key that signed. Raises NoteError if the note, its signatures or its text are wrong, or if the
    checkpoint is of another log.
    """
    opened = open_note(note, verifier_keys)
    checkpoint = Checkpoint.parse(opened.text)
    expected = [key.name for key in opened.signed_by] if origin is None else [origin]
    if checkpoint.origin not in expected:
        raise NoteError(f"the checkpoint is of {checkpoint.origin!r:.200}, not of {' or '.join(expected)}")
    return checkpoint


def parse_decimal(text: str) -> int:
    """ASCII decimal without leading zeroes, at most MAX_SIZE; ValueError for anything else."""
    if not _DECIMAL.fullmatch(text) or int(text) > MAX_SIZE:
        raise ValueError(f"not a decimal number up to 2**63 - 1: {text!r:.100}")
    return int(text)
