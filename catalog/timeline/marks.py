"""Watermarks: how far a consumer has come with a table's leaves. Kept in the timeline's store, signed by its key.

A consumer needs no key of its own: it asks the sequencer to move its mark, and what it reads back is a note that the
sequencer signed when it stored it. A mark moves forward only, from where the consumer says that it stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.errors import Unverified
from catalog.merkle.checkpoint import parse_decimal
from catalog.merkle.note import NoteError, VerifierKey, open_note, sign_note
from catalog.timeline.signer import Signer

FORMAT = "strandline/mark@v1"


@dataclass(frozen=True, slots=True)
class Mark:
    """The consumer has dealt with the table's leaves up to and including `sequence`, in `moves` steps.

    `holder` is a token of the run that made the last move: by it a run knows its own.
    """

    consumer: str
    table: str
    table_uuid: str
    sequence: int
    moves: int
    holder: str

    def text(self) -> str:
        lines = [self.consumer, self.table, self.table_uuid, str(self.sequence), str(self.moves), self.holder]
        return "".join(f"{line}\n" for line in (FORMAT, *lines))

    def sign(self, signer: Signer) -> bytes:
        return sign_note(self.text(), [signer])

    @classmethod
    def parse(cls, text: str) -> Mark:
        """Reads what `text` writes, strictly; ValueError for anything else."""
        form, consumer, table, uuid, sequence, moves, holder, rest = text.split("\n")
        found = cls(consumer, table, uuid, parse_decimal(sequence), parse_decimal(moves), holder)
        if form != FORMAT or rest or found.text() != text:
            raise ValueError("it is not in its canonical form")
        return found

    @classmethod
    def stored(cls, note: bytes | None) -> Mark | None:
        """The mark in a note of one's own store, its signature not looked at."""
        return None if note is None else cls.parse(note.decode().partition("\n\n")[0] + "\n")


def open_mark(note: bytes, verifier_keys: Iterable[VerifierKey], consumer: str, table: str) -> Mark:
    """The mark of the consumer on the table; Unverified when the timeline did not sign it, or for another."""
    try:
        found = Mark.parse(open_note(note, verifier_keys).text)
    except (NoteError, ValueError) as error:
        raise Unverified(f"the watermark of {consumer} on {table} does not hold: {error}", subject=table) from None
    if (found.consumer, found.table) != (consumer, table):
        raise Unverified(f"the watermark kept for {consumer} on {table} is of {found.consumer} on {found.table}")
    return found
