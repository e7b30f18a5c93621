"""Set-up that needs only python3 and make. Each part has `ensure()`, which does nothing if the part is installed.

Standard library only, since it runs before anything is installed. Progress and errors go to stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"


class SetupFailed(SystemExit):
    """Set-up cannot continue. The message says what is missing and what to type. Uncaught, it ends make."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(f"setup: {message}")


def say(message: str) -> None:
    print(f"setup: {message}", file=sys.stderr, flush=True)
