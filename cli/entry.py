"""The entry point of the installed command: says what to install if the command's own packages are missing."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from cli.main import main as run
    except ModuleNotFoundError as error:
        sys.exit(f"the strandline command needs {error.name}: pip install 'strandline[cli]'")
    run()
