"""Watermarks: the sequence up to which a consumer has processed a table. Stored in the timeline's database, signed.

A consumer needs no key: it requests that the sequencer advances its watermark, and reads back a note that the
sequencer signed. A watermark only advances, and only from the sequence that the consumer states as its present one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.core.errors import Unverified
from catalog.merkle.checkpoint import parse_decimal
from catalog.merkle.note import NoteError, VerifierKey, open_note, sign_note
from catalog.timeline.log.signer import Signer

FORMAT = "strandline/mark@v1"
OWNER_DIGITS = 20


def owner_of(holder: str) -> str:
    """Whose watermark it is; empty for that of a job, or of a person that does not use the API."""
    owner, dash, _ = holder.partition("-")
    return owner if dash and len(owner) == OWNER_DIGITS else ""


@dataclass(frozen=True, slots=True)
class Watermark:
    """The consumer has processed the table's leaves up to and including `sequence`, in `moves` steps.

    `holder` is a token of the run that made the last move; by it a run recognises its own. It begins with the owner, if
    a caller of the API made the first move.
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

    @property
    def owner(self) -> str:
        return owner_of(self.holder)

    def sign(self, signer: Signer) -> bytes:
        return sign_note(self.text(), [signer])

    @classmethod
    def parse(cls, text: str) -> Watermark:
        """Parses the text strictly; ValueError unless it is exactly what `text` would write."""
        header, consumer, table, uuid, sequence, moves, holder, after = text.split("\n")
        watermark = cls(consumer, table, uuid, parse_decimal(sequence), parse_decimal(moves), holder)
        if header != FORMAT or after or watermark.text() != text:
            raise ValueError("it is not in its canonical form")
        return watermark

    @classmethod
    def stored(cls, note: bytes | None) -> Watermark | None:
        """The watermark in a note from the sequencer's own database. Does not check the signature."""
        return None if note is None else cls.parse(note.decode().partition("\n\n")[0] + "\n")


def open_watermark(
    note: bytes,
    verifier_keys: Iterable[VerifierKey],
    consumer: str,
    table: str,
    *,
    table_uuid: str | None = None,
    seen: Watermark | None = None,
) -> Watermark:
    """The consumer's watermark on the table; Unverified unless one of the keys signed it for both.

    A signed note stays valid for ever, so an old one can be shown again. `seen`: the last watermark that the caller
    knows; one that is behind it is refused, and one on another table of that name unless it is `table_uuid`.
    """
    try:
        watermark = Watermark.parse(open_note(note, verifier_keys).text)
    except (NoteError, ValueError) as error:
        raise Unverified(f"the watermark of {consumer} on {table} does not verify: {error}", subject=table) from None
    if (watermark.consumer, watermark.table) != (consumer, table):
        raise Unverified(
            f"the watermark stored for {consumer} on {table} is that of {watermark.consumer} on {watermark.table}"
        )
    if table_uuid not in (None, watermark.table_uuid):
        raise Unverified(
            f"the watermark of {consumer} is on the table {table} with uuid {watermark.table_uuid}, not {table_uuid}",
            subject=table,
        )
    if seen is not None and not _follows(watermark, seen, table_uuid):
        raise Unverified(
            f"the watermark of {consumer} on {table} is at leaf {watermark.sequence} after {watermark.moves} moves, "
            f"and was at leaf {seen.sequence} after {seen.moves}: an old one is shown again",
            subject=table,
        )
    return watermark


def _follows(watermark: Watermark, seen: Watermark, table_uuid: str | None) -> bool:
    """Whether the watermark is the one that was seen, or a later one."""
    if (watermark.consumer, watermark.table) != (seen.consumer, seen.table):
        return False
    if watermark.table_uuid != seen.table_uuid:
        return table_uuid is not None  # the caller knows that the table was made anew
    return watermark == seen or (watermark.moves > seen.moves and watermark.sequence > seen.sequence)
