"""docs/reference: written by the code it describes. `make docs` writes it; a test fails when it no longer matches."""

from __future__ import annotations

from pathlib import Path

from tools.reference import api, cli, errors, settings

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
_PAGES = {"cli.md": cli.page, "api.md": api.page, "settings.md": settings.page, "errors.md": errors.page}
_NOTICE = "<!-- Written by `make docs` from the code. Change the code, not this page. -->"


def pages() -> dict[str, str]:
    """File name -> what it should say."""
    return {name: f"{_NOTICE}\n\n{write().rstrip()}\n" for name, write in _PAGES.items()}
