"""The three modes of writing, and how `hybrid` chooses between the other two. Pure: no I/O, no clock.

Copy-on-write pays when writing: every touched file is written again. Merge-on-read pays when reading: deleted
positions are kept beside the file until a compaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["cow", "mor", "hybrid"]
MODES: tuple[Mode, ...] = ("cow", "mor", "hybrid")

# A file this small is rewritten for the price of a delete file, and leaves nothing behind.
SMALL_BYTES = 1 << 20
# From this share of its rows on, rewriting a file moves fewer bytes than its readers would skip over.
LARGE_SHARE = 0.3
# Readers that come this often between two writes pay for pending deletes each time.
READS_PER_WRITE = 10.0
READ_SHARE = 0.05
# Pending deletes beyond this share of all rows, or on this many files, ask for a compaction.
PENDING_SHARE = 0.1
PENDING_FILES = 50


@dataclass(frozen=True)
class Write:
    """What is known when a write is planned: the files it touches, the table, and how it is read."""

    touched_rows: int
    file_rows: int
    file_bytes: int
    pending_deletes: int = 0
    reads_per_write: float = 0.0


@dataclass(frozen=True)
class Choice:
    mode: Literal["cow", "mor"]
    reason: str


def choose(mode: Mode, write: Write) -> Choice:
    """Copy-on-write or merge-on-read for this write. The reason is kept in the snapshot's summary."""
    if mode != "hybrid":
        return Choice(mode, "the table's mode")
    share = write.touched_rows / max(write.file_rows, 1)
    pending = (write.pending_deletes + write.touched_rows) / max(write.file_rows, 1)
    if write.file_bytes <= SMALL_BYTES:
        return Choice("cow", f"the touched files have {write.file_bytes} bytes: rewriting costs no more than deletes")
    if share >= LARGE_SHARE:
        return Choice("cow", f"{share:.0%} of the rows in the touched files change")
    if pending >= LARGE_SHARE:
        return Choice("cow", f"{pending:.0%} of the rows in the touched files would be deleted, so they are merged now")
    if write.reads_per_write >= READS_PER_WRITE and share >= READ_SHARE:
        return Choice(
            "cow",
            f"{write.reads_per_write:.0f} reads per write, and {share:.0%} of the touched files' rows change",
        )
    return Choice(
        "mor",
        f"{share:.1%} of the rows in the touched files change, {write.reads_per_write:.1f} reads per write",
    )


def compaction_reason(rows: int, deletes: int, delete_files: int) -> str | None:
    """Why the table should be compacted now; None if it need not be. `rows` counts the deleted ones too."""
    if rows and deletes / rows >= PENDING_SHARE:
        return f"{deletes / rows:.0%} of the rows in its files are deleted"
    if delete_files >= PENDING_FILES:
        return f"{delete_files} files have pending deletes"
    return None
