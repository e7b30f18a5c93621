"""Watermarks: how far a consumer has come in a table's changes. Signed, and moved forward only, one step at a
time.

A watermark is a signed note, so that whoever keeps it can neither invent nor alter one. Where it is kept is a
seam: the timeline's store, through the sequencer; S3 with conditional PUTs; memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from catalog.errors import Conflict, Invalid, Unverified
from catalog.merkle.note import NoteError, Signer, VerifierKey, open_note, sign_note

FORMAT = "strandline/watermark@v1"


class Marks(Protocol):
    """Keeps one note per consumer and table. `put` is atomic and durable when it returns."""

    def get(self, consumer: str, table: str) -> bytes | None: ...

    def put(self, consumer: str, table: str, note: bytes, expected: bytes | None) -> None:
        """Replaces the note if it is still `expected` (None: there is none); Conflict if it is not."""
        ...


@dataclass(frozen=True, slots=True)
class Watermark:
    """The consumer has processed everything up to and including this snapshot, in `moves` steps.

    `holder` is a random token of the run that made the move. It tells, when the answer to a `put` was lost,
    whether the watermark that is found now is one's own.
    """

    consumer: str
    table: str
    table_uuid: str
    snapshot_id: int
    moves: int
    holder: str

    def text(self) -> str:
        lines = [
            FORMAT,
            self.consumer,
            self.table,
            self.table_uuid,
            str(self.snapshot_id),
            str(self.moves),
            self.holder,
        ]
        if any("\n" in line or not line for line in lines) or self.moves < 1:
            raise Invalid(f"not a watermark: consumer {self.consumer!r}, table {self.table!r}, move {self.moves}")
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> Watermark:
        """Reads what `text` writes, strictly; ValueError for anything else."""
        form, consumer, table, table_uuid, snapshot_id, moves, holder, rest = text.split("\n")
        found = cls(consumer, table, table_uuid, int(snapshot_id), int(moves), holder)
        if form != FORMAT or rest or found.text() != text:
            raise ValueError("it is not in its canonical form")
        return found

    def sign(self, signer: Signer) -> bytes:
        return sign_note(self.text(), [signer])


def open_watermark(note: bytes, keys: Iterable[VerifierKey]) -> Watermark:
    """The watermark in a note; Unverified when it is not signed by a known key or is no watermark."""
    try:
        return Watermark.parse(open_note(note, keys).text)
    except (NoteError, ValueError, Invalid) as error:
        raise Unverified(f"a stored watermark does not hold: {error}") from None


def read(
    marks: Marks, consumer: str, table: str, table_uuid: str, keys: Iterable[VerifierKey]
) -> tuple[Watermark | None, bytes | None]:
    """The consumer's watermark and the note it came in; (None, None) when it has none for this table yet."""
    note = marks.get(consumer, table)
    if note is None:
        return None, None
    mark = open_watermark(note, keys)
    if (mark.consumer, mark.table) != (consumer, table):
        raise Unverified(f"the watermark kept for {consumer} on {table} is of {mark.consumer} on {mark.table}")
    if mark.table_uuid != table_uuid:
        raise Conflict(
            f"{consumer} has come to snapshot {mark.snapshot_id} of another table that was called {table}: remove its "
            "watermark to start anew"
        )
    return mark, note


def move(marks: Marks, mark: Watermark, expected: bytes | None, signer: Signer, keys: Iterable[VerifierKey]) -> bytes:
    """Puts the watermark in the place of `expected`, the note before it. Conflict when somebody else moved
    first.

    An error that leaves the outcome open is settled by looking: the move counts if it is this run's that is
    there.
    """
    known = list(keys)
    before = 0 if expected is None else open_watermark(expected, known).moves
    if mark.moves != before + 1:
        raise Invalid(f"a watermark moves one step forward: from {before} to {before + 1}, not to {mark.moves}")
    note = mark.sign(signer)
    try:
        marks.put(mark.consumer, mark.table, note, expected)
    except Exception:
        found = marks.get(mark.consumer, mark.table)
        if found is None or open_watermark(found, known) != mark:
            raise
        return found
    return note
