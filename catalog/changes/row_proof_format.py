"""How a row proof is told from other proof files, without what it takes to read one."""

from __future__ import annotations

FORMAT = b"strandline/rows@v1\n"
_OLD = b"strandline/row@v1\n"


def is_row_proof(extra: bytes) -> bool:
    """Whether the `extra` of a proof file is that of a row proof, also of a version that is no longer read."""
    return extra.startswith((FORMAT, _OLD))


def check_format(extra: bytes) -> None:
    """ValueError, which says what to do, unless it is this version's format."""
    if extra.startswith(_OLD):
        raise ValueError("its format is strandline/row@v1, and this version reads strandline/rows@v1: make it again")
    if not extra.startswith(FORMAT):
        raise ValueError("it is a proof file of another kind")
