"""The key list: which key signs the timeline's checkpoints, from which size on. Old keys stay in it for ever.

Published as `timeline/keys`, a note signed by the newest key. It tells a reader which keys there are; whom to
trust he must know from elsewhere: a list cannot vouch for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.errors import Unverified
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint, parse_decimal
from catalog.merkle.note import NoteError, VerifierKey, open_note, sign_note
from catalog.timeline.signer import Signer

HEADER = "strandline/keys@v1"


@dataclass(frozen=True, slots=True)
class Keyring:
    """(first size it signed, key), oldest first."""

    keys: tuple[tuple[int, VerifierKey], ...] = ()

    @classmethod
    def parse(cls, note: bytes) -> Keyring:
        """Reads a key list and checks that its newest key signed it; Unverified if not."""
        try:
            header, *lines = note.decode().partition("\n\n")[0].split("\n")
            if header != HEADER:
                raise ValueError(f"its first line is not {HEADER}")
            pairs = [line.split(" ") for line in lines]
            keys = tuple((parse_decimal(size), VerifierKey.parse(text)) for size, text in pairs)
            open_note(note, [keys[-1][1]])
        except (ValueError, IndexError, NoteError) as error:
            raise Unverified(f"not the timeline's key list: {error}", subject="keys") from None
        return cls(keys)

    def with_signer(self, signer: Signer, size: int) -> tuple[Keyring, bytes | None]:
        """The ring in which this signer signs from `size` on, and its note when that is news."""
        if self.keys and self.keys[-1][1] == signer.verifier_key:
            return self, None
        ring = Keyring((*self.keys, (size, signer.verifier_key)))
        lines = [HEADER, *(f"{first} {key}" for first, key in ring.keys)]
        return ring, sign_note("".join(f"{line}\n" for line in lines), [signer])

    def open(self, note: bytes, origin: str | None = None) -> Checkpoint:
        """The checkpoint in a note, signed by the key that was in use at its size; Unverified otherwise."""
        try:
            checkpoint = open_checkpoint(note, dict.fromkeys(key for _, key in self.keys), origin)
            in_use = [key for first, key in self.keys if first <= checkpoint.size][-1:]
            open_note(note, in_use)
        except (NoteError, ValueError) as error:
            raise Unverified(f"the timeline's checkpoint does not hold: {error}", subject="checkpoint") from None
        return checkpoint
