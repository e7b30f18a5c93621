"""The three write modes, and how `hybrid` chooses between the other two. Pure: no I/O, no clock.

Copy-on-write makes writes expensive: every touched file is rewritten. Merge-on-read makes reads expensive: deleted
positions stay in delete files until a compaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["cow", "mor", "hybrid"]
MODES: tuple[Mode, ...] = ("cow", "mor", "hybrid")

# Rewriting files of this size costs no more than writing delete files, and leaves no pending deletes.
SMALL_BYTES = 1 << 20
# From this share of deleted rows on, rewriting a file moves fewer bytes than its readers would skip.
LARGE_SHARE = 0.3
# With this many reads between two writes, a smaller share is worth a rewrite: each read pays for pending deletes.
READS_PER_WRITE = 10.0
READ_SHARE = 0.05
# From this share of all rows, or this many delete files, the table should be compacted.
PENDING_SHARE = 0.1
PENDING_FILES = 50


@dataclass(frozen=True)
class WriteProfile:
    """What a write touches, and how often the table is read: what the choice depends on."""

    touched_rows: int
    file_rows: int
    file_bytes: int
    pending_deletes: int = 0
    reads_per_write: float = 0.0


@dataclass(frozen=True)
class ModeChoice:
    mode: Literal["cow", "mor"]
    reason: str


def choose(mode: Mode, write: WriteProfile) -> ModeChoice:
    """Copy-on-write or merge-on-read for this write. The reason goes into the snapshot's summary."""
    if mode != "hybrid":
        return ModeChoice(mode, "the table's mode")
    share = write.touched_rows / max(write.file_rows, 1)
    pending = (write.pending_deletes + write.touched_rows) / max(write.file_rows, 1)
    if write.file_bytes <= SMALL_BYTES:
        return ModeChoice(
            "cow", f"the touched files have {write.file_bytes} bytes: rewriting costs no more than deletes"
        )
    if share >= LARGE_SHARE:
        return ModeChoice("cow", f"{share:.0%} of the rows in the touched files change")
    if pending >= LARGE_SHARE:
        return ModeChoice(
            "cow", f"{pending:.0%} of the rows in the touched files would be deleted, so they are merged now"
        )
    if write.reads_per_write >= READS_PER_WRITE and share >= READ_SHARE:
        return ModeChoice(
            "cow",
            f"{write.reads_per_write:.0f} reads per write, and {share:.0%} of the touched files' rows change",
        )
    return ModeChoice(
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
