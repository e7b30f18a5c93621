"""Generates docs/reference from the code. `make docs` writes it; a test fails if it is out of date."""

from __future__ import annotations

from pathlib import Path

from tools.reference import api, cli, errors, rooms, settings

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
_PAGES = {
    "cli.md": cli.page,
    "api.md": api.page,
    "settings.md": settings.page,
    "errors.md": errors.page,
    "rooms.md": rooms.page,
}
_NOTICE = "<!-- Written by `make docs` from the code. Change the code, not this page. -->"


def pages() -> dict[str, str]:
    """File name -> content."""
    return {name: f"{_NOTICE}\n\n{page().rstrip()}\n" for name, page in _PAGES.items()}
