"""docs/consistency.md has all routes, commands and kinds of error, and each of its rows names a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from catalog.access.routes import ROUTES
from catalog.core.errors import KINDS
from tests.unit.cli.test_command import ALL

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "consistency.md"
_KEY = re.compile(r"`([a-z-]+)`")


@cache
def tables() -> dict[str, list[list[str]]]:
    """First column's heading -> the rows of that table, each a list of cells."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            heading = ""
        elif not heading:
            heading = cells[0]
            found[heading] = []
        elif not set(line) <= set("|- "):
            found[heading].append(cells)
    return found


def _first_cells(heading: str) -> list[str]:
    return [name for row in tables()[heading] for name in re.findall(r"`([^`]+)`", row[0])]


def test_every_route_has_one_row() -> None:
    assert sorted(_first_cells("route")) == sorted(route.key for route in ROUTES)


def test_every_command_has_one_row() -> None:
    assert sorted(_first_cells("commands")) == sorted(" ".join(path) for path in ALL)


def test_every_kind_of_error_has_one_row_and_is_repeated_only_if_its_kind_says_so() -> None:
    assert _first_cells("kind") == [kind.name for kind in KINDS]
    for (_, _, repeat, _), kind in zip(tables()["kind"], KINDS, strict=True):
        assert repeat.startswith("yes") == (kind.decision.value == "retry"), kind.name


@pytest.mark.parametrize("heading", ["state", "call", "kind", "route", "commands", "form"])
def test_every_row_names_its_test(heading: str) -> None:
    keys = set(_first_cells("key"))
    for row in tables()[heading]:
        named = _KEY.findall(row[-1])
        assert named, row
        assert set(named) <= keys, f"{row[0]} names {set(named) - keys}, which is no test of the page"


@pytest.mark.parametrize("row", tables()["key"], ids=lambda row: row[0].strip("`"))
def test_every_test_is_there_and_used(row: list[str]) -> None:
    path, _, name = row[1].strip("`").partition("::")
    source = ast.parse((ROOT / "tests" / path).read_text())
    names = [node.name for node in ast.walk(source) if isinstance(node, ast.FunctionDef)]
    assert any(found.startswith("test_") for found in names)
    assert not name or name in names
    uses = [cell for heading in ("state", "call", "kind", "route", "commands", "form") for cell in tables()[heading]]
    assert any(row[0] in use[-1] for use in uses), "no row names it"
