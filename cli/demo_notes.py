"""The notes that `strandline demo` drops into the lake: short, about several things, linked to each other."""

from __future__ import annotations

import re
from pathlib import Path

QUESTION = "why is the water higher when the moon is full"


def demo_notes() -> dict[str, bytes]:
    """File name -> Markdown, one for each heading of demo_notes.md beside this module."""
    text = Path(__file__).with_suffix(".md").read_text()
    notes = re.split(r"^(?=# )", text, flags=re.M)[1:]
    return {f"{note[2:].splitlines()[0].lower().replace(' ', '-')}.md": note.encode() for note in notes}
