"""How a row proof is told from other proof files, without what it takes to read one."""

from __future__ import annotations

FORMAT = b"strandline/row@v1\n"


def is_row_proof(extra: bytes) -> bool:
    """Whether the `extra` of a proof file is that of a row proof."""
    return extra.startswith(FORMAT)
