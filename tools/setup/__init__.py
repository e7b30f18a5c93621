"""Set-up from python3 and make alone: each part has `ensure()`, which does nothing when the part is there.

Standard library only, as it runs before anything is installed. Progress and trouble go to stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"


class SetupFailed(SystemExit):
    """Set-up cannot go on; the message says what is missing and what to type. Uncaught, it ends make."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(f"setup: {message}")


def say(message: str) -> None:
    print(f"setup: {message}", file=sys.stderr, flush=True)
